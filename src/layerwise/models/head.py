"""The modules of an embedding model after its transformer, ready to use; loaded with the classes of
sentence-transformers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.core.errors import InputError, MissingExtra, ModelError
from layerwise.core.quiet import quiet_libraries
from layerwise.core.templates import INPUT, parse_template
from layerwise.models.modes import evaluation_mode
from layerwise.models.shipped import (
    MODULES_WITHOUT_WEIGHTS,
    NO_LAYERS,
    STATIC_MODULE,
    Shipped,
    ShippedModule,
    other_similarity,
    own_encode_reason,
    unusual_settings,
)


@dataclass
class Head:
    """The modules after the transformer, ready to use, and the model's own `encode` for models that need it."""

    shipped: Shipped
    modules: tuple[nn.Module, ...] = ()
    model: Any = None  # the full SentenceTransformer; loaded on first use
    source: tuple[str, str | None] = field(default=("", None))  # its name and revision
    difference: str = ""  # how this network differs from the model on disk, which then cannot be used in its place

    def __call__(self, states: Tensor, inputs: Mapping[str, Tensor], left_out: int = 0) -> Tensor:
        """states (B, T, D), the output of the transformer, and its inputs (B, T) -> (B, E).

        `left_out`: how many tokens at the start of each text are not pooled.
        """
        features: dict[str, Any] = {"token_embeddings": states, **inputs}
        if left_out:
            features["prompt_length"] = left_out
        for module in self.modules:
            with evaluation_mode(module):
                features = module.to(states.device)(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors

    def prompt_of(self, texts: Sequence[object], template: str) -> str:
        """What precedes each text: the template's prompt, or the default one if all texts already begin with it."""
        default = self.shipped.prompt
        if before := parse_template(template).before:
            return before
        return default if all(isinstance(text, str) and text.startswith(default) for text in texts) else ""

    def left_out(self, tokenizer: Any, texts: Sequence[object], template: str) -> int:
        """How many tokens at the start of each text are not pooled: those of its prompt, if the model excludes it."""
        if self.shipped.include_prompt or not (prompt := self.prompt_of(texts, template)):
            return 0
        return prompt_token_count(tokenizer, prompt)

    def own_modules(self) -> tuple[nn.Module, ...]:
        """The modules of a model that encodes texts itself, after its transformer; loaded if it is on disk."""
        if not self.shipped.own_encode_reason or self.difference or (self.model is None and not self.source[0]):
            return ()
        return tuple(self.sentence_transformer().children())[1:]

    def require_template(self, template: str) -> None:
        """Raises if the model as shipped cannot be read with this template."""
        reason = self.shipped.own_encode_reason or (
            "" if self.shipped.include_prompt else "it leaves out the tokens of its prompt"
        )
        if reason and parse_template(template).after:
            raise InputError(
                f"the model as shipped cannot be read with a template that has text after {INPUT} ({reason}); choose "
                f"its last layer by number, or a template that ends with {INPUT}"
            )

    def encode(self, examples: Sequence[object], max_length: int, template: str = "") -> Tensor:
        """Encodes texts with the full model; the template, or else the texts, include the prompt."""
        before = parse_template(template).before
        texts = [before + text for text in examples if isinstance(text, str)]
        if len(texts) != len(examples):
            reason = self.shipped.own_encode_reason or "for the comparison"
            raise InputError(
                f"the model as shipped must encode its inputs itself ({reason}), which layerwise does with texts only; "
                "choose layers by number instead of last"
            )
        model = self.sentence_transformer()
        prompt = self.prompt_of(examples, template)
        previous_length = model.max_seq_length
        if not self.shipped.static:  # which reads every text whole
            model.max_seq_length = max_length
        try:
            with evaluation_mode(model):
                vectors: Tensor = model.encode(
                    [text.removeprefix(prompt) for text in texts], prompt=prompt, convert_to_tensor=True,
                    show_progress_bar=False,
                )  # fmt: skip
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:  # its files may be damaged
            raise ModelError(f"the model's own encode failed ({type(error).__name__}: {error})") from error
        finally:
            if not self.shipped.static:
                model.max_seq_length = previous_length  # it may be the user's object
        return vectors.float().cpu()

    def sentence_transformer(self) -> Any:
        """The full SentenceTransformer, loaded on first use."""
        if self.difference:
            raise InputError(
                f"this model must encode texts itself ({self.shipped.own_encode_reason or 'for the comparison'}), but "
                f"would do so without {self.difference}; save the merged adapter to a folder, use float32, or choose a "
                "layer by number"
            )
        if self.model is None:
            self.model = load_sentence_transformer(*self.source, dtype=torch.float32)
        return self.model


def settings_of(modules: Sequence[Any]) -> list[str]:
    """The settings of these modules besides their weights, such as an activation."""
    return [repr(m.get_config_dict()) for m in modules if hasattr(m, "get_config_dict")]


def weights_of(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    return {f"head.{i}.{name}": w for i, m in enumerate(modules) for name, w in m.state_dict().items()}


def load_head(shipped: Shipped, name: str, revision: str | None) -> Head:
    """Loads the modules of a folder or hub id with the classes of sentence-transformers."""
    head = Head(shipped, source=(name, revision))
    if shipped.own_encode_reason:
        return head
    head.modules = tuple(load_module(module, name, revision) for module in shipped.modules)
    return head


def head_from_model(model: Any) -> Head:
    """The head of a SentenceTransformer in memory."""
    first, *rest = model.children()
    modules = tuple(ShippedModule(type(m).__name__, f"{type(m).__module__}.{type(m).__name__}", "") for m in rest)
    pooling_module = next((m for m in rest if type(m).__name__ == "Pooling"), None)
    modes: Any = getattr(pooling_module, "pooling_mode", ())
    config = first.get_config_dict() if hasattr(first, "get_config_dict") else {}
    settings = unusual_settings(config, getattr(model, "truncate_dim", None))
    static = type(first).__name__ == STATIC_MODULE
    prompt = (model.prompts or {}).get(model.default_prompt_name or "", "") or ""
    length = model.max_seq_length
    shipped = Shipped(
        "", modules, (modes,) if isinstance(modes, str) else tuple(modes),
        bool(getattr(pooling_module, "include_prompt", True)), prompt, int(length) if length and not static else None,
        dict(model.prompts or {}), model.default_prompt_name,
        NO_LAYERS if static else own_encode_reason(modules, config, settings), settings,
        similarity=other_similarity(getattr(model, "similarity_fn_name", None)),
    )  # fmt: skip
    return Head(shipped, () if shipped.own_encode_reason else tuple(rest), model=model)


def load_module(module: ShippedModule, name: str, revision: str | None) -> nn.Module:
    require_sentence_transformers()
    if not module.type.startswith("sentence_transformers."):
        raise ModelError(f"{name!r} contains custom code ({module.type}), which layerwise does not run")
    if module.kind not in MODULES_WITHOUT_WEIGHTS and not has_safetensors(name, revision, module.path):
        raise ModelError(f"{module.path} of {name!r} has no model.safetensors; convert its weights first")
    classes = import_module("sentence_transformers.sentence_transformer.modules")
    try:
        loaded: nn.Module = getattr(classes, module.kind).load(name, subfolder=module.path, revision=revision)
    except Exception as error:  # of any kind: it parses files of strangers
        problem = f"{type(error).__name__}: {error}"
        raise ModelError(f"sentence-transformers cannot load {module.path} of {name!r} ({problem})") from error
    return loaded.eval().requires_grad_(False)


def has_safetensors(name: str, revision: str | None, path: str) -> bool:
    if Path(name).is_dir():
        return (Path(name) / path / "model.safetensors").is_file()
    from transformers.utils.hub import has_file

    return bool(has_file(name, f"{path}/model.safetensors", revision=revision or "main"))


def prompt_token_count(tokenizer: Any, prompt: str) -> int:
    """The number of prompt tokens as sentence-transformers counts them: without a trailing special token."""
    ids = list(tokenizer(prompt)["input_ids"])
    return len(ids) - (1 if ids and ids[-1] in tokenizer.all_special_ids else 0)


def load_sentence_transformer(name: str, revision: str | None = None, *, dtype: torch.dtype | None = None) -> Any:
    """Loads a SentenceTransformer from a folder or hub id, from safetensors only; by default with the saved dtype."""
    require_sentence_transformers()
    from sentence_transformers import SentenceTransformer

    options = {"use_safetensors": True} | ({} if dtype is None else {"dtype": dtype})
    try:
        with quiet_libraries():
            return SentenceTransformer(name, revision=revision, device="cpu", model_kwargs=options)
    except Exception as error:  # of any kind: it parses files of strangers
        raise ModelError(f"sentence-transformers cannot load {name!r} ({type(error).__name__}: {error})") from error


def require_sentence_transformers() -> None:
    if find_spec("sentence_transformers") is None:
        raise MissingExtra("reading the model as shipped needs sentence-transformers: pip install 'layerwise[export]'")
