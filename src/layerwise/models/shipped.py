"""The model as shipped: the pooling, linear map, normalisation, prompt and length of an embedding model.

A SentenceTransformer folder lists its modules in modules.json. Only JSON is read until the modules are needed, so that
planning needs no weights. A folder without modules.json ships none of this; `plain_pooling` returns how
`SentenceTransformer(folder)` would pool it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from layerwise.core.checks import PoolingChoice
from layerwise.core.errors import InputError, MissingExtra, ModelError
from layerwise.core.quiet import quiet_libraries
from layerwise.core.templates import INPUT, parse_template

# sentence-transformers' names for poolings, and ours.
POOLING_NAMES: dict[str, PoolingChoice] = {"mean": "mean", "max": "max", "cls": "first", "lasttoken": "last"}
OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Modules that need only token vectors, so they can run after our own forward pass.
SUPPORTED_MODULES = ("Pooling", "Dense", "Normalize", "LayerNorm", "Dropout", "WordWeights")
MODULES_WITHOUT_WEIGHTS = ("Pooling", "Normalize", "Dropout", "WordWeights")
STATIC_MODULE = "StaticEmbedding"  # the first module of a model without a transformer
NO_LAYERS = "it is a static model: a mean of token vectors, without layers"
CONFIG_FILES = (  # names of sentence-transformers' settings file in past versions
    "sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)  # fmt: skip


@dataclass(frozen=True)
class ShippedModule:
    """One entry of modules.json after the transformer: its class and folder."""

    kind: str  # the class's name, such as Pooling
    type: str  # its full import path
    path: str


@dataclass(frozen=True)
class Shipped:
    """The settings in the JSON files of a SentenceTransformer folder."""

    transformer: str  # subfolder that holds config.json and the weights
    modules: tuple[ShippedModule, ...]
    pooling: tuple[str, ...]  # names used by sentence-transformers
    include_prompt: bool
    prompt: str  # prepended to every text by default
    max_length: int | None
    prompts: Mapping[str, str] = field(default_factory=dict, compare=False)  # all named prompts
    default_prompt: str | None = None  # name of the default prompt
    own_encode_reason: str = ""  # why our forward pass cannot be used; the model then encodes texts itself

    @property
    def identity(self) -> tuple[Any, ...]:
        """What affects its vectors besides weights, tokenizer and length; the same for a folder and an object."""
        return (
            tuple(m.kind for m in self.modules),
            self.pooling,
            self.include_prompt,
            self.prompt,
            self.own_encode_reason,
        )

    @property
    def static(self) -> bool:
        """True for a model without a transformer."""
        return self.own_encode_reason == NO_LAYERS

    @property
    def pooling_choice(self) -> PoolingChoice | None:
        """Our name for its pooling; None if we have none, or if it excludes the prompt's tokens."""
        if len(self.pooling) != 1 or (self.prompt and not self.include_prompt):
            return None
        return POOLING_NAMES.get(self.pooling[0])

    def require_pooling_choice(self) -> PoolingChoice:
        if (pooling := self.pooling_choice) is None:
            method = " and ".join(self.pooling) or "something other than a Pooling module"
            exception = " without the prompt's tokens" if self.prompt and not self.include_prompt else ""
            raise InputError(
                f"this model pools by {method}{exception}, which cannot be applied to one layer; choose how layers are "
                "pooled with pooling= (--pooling mean), or use `last` (the model as shipped)"
            )
        return pooling


def default_pooling(config: Any) -> PoolingChoice:
    """The pooling that sentence-transformers 6 uses if a model ships none: the last token for a causal language
    model."""
    architecture = (getattr(config, "architectures", None) or [""])[0]
    return "last" if architecture.endswith("ForCausalLM") and getattr(config, "is_causal", True) else "mean"


def read_shipped(name: str, revision: str | None = None) -> Shipped | None:
    """What a folder or hub id ships besides the transformer; None without a modules.json."""
    entries = read_json(name, revision, "modules.json")
    if entries is None:
        return None
    try:
        ordered = sorted(entries, key=lambda module: module["idx"])
        first, *rest = [
            ShippedModule(str(m["type"]).rpartition(".")[2], str(m["type"]), str(m["path"])) for m in ordered
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError(f"modules.json of {name!r} is damaged ({type(error).__name__}: {error})") from None
    for module in (first, *rest):
        if module.path.startswith("/") or ".." in Path(module.path).parts:
            raise ModelError(f"modules.json of {name!r} points outside its folder: {module.path!r}")
    if first.kind not in ("Transformer", STATIC_MODULE):
        raise ModelError(f"the first module of {name!r} is {first.kind}, not a transformer: it has no layers to read")
    configs = (read_object(name, revision, file, first.path) for file in CONFIG_FILES)
    config: dict[str, Any] = next((candidate for candidate in configs if candidate), {})
    prompts, default_prompt = read_prompts(name, revision)
    pooling_module = next((m for m in rest if m.kind == "Pooling"), None)
    pooling_config = (read_object(name, revision, "config.json", pooling_module.path) if pooling_module else None) or {}
    length = config.get("max_seq_length")
    return Shipped(
        first.path,
        tuple(rest),
        pooling_modes(pooling_config) if pooling_module else (),
        bool(pooling_config.get("include_prompt", True)),
        str(prompts.get(default_prompt) or "") if default_prompt else "",
        int(length) if isinstance(length, int) and length > 0 else None,
        prompts,
        default_prompt,
        NO_LAYERS if first.kind == STATIC_MODULE else own_encode_reason(rest, config),
    )


def read_prompts(name: str, revision: str | None) -> tuple[dict[str, str], str | None]:
    """The prompts of a model by name, and the name of the default one."""
    file = "config_sentence_transformers.json"
    if find_file(name, revision, file) is None:
        return {}, None
    config = read_json(name, revision, file)
    prompts = config.get("prompts") or {} if isinstance(config, dict) else None
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise ModelError(f"{file} of {name!r} is damaged: it needs an object, with prompts as texts by name")
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ModelError(f"{file} of {name!r} is damaged: its default prompt {default!r} is not one of its prompts")
    return prompts, default


def pooling_modes(config: dict[str, Any]) -> tuple[str, ...]:
    """The pooling modes in a module's config.json, in old or new format; several are concatenated."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return (mode,) if isinstance(mode, str) else tuple(mode)
    return tuple(pooling for key, pooling in OLD_POOLING_KEYS.items() if config.get(key)) or ("mean",)


def own_encode_reason(modules: Sequence[ShippedModule], config: dict[str, Any]) -> str:
    """Why vectors must come from the model's own `encode`; "" if our forward pass can be used."""
    if unsupported := [m.kind for m in modules if m.kind not in SUPPORTED_MODULES]:
        return f"it has a {unsupported[0]} module"
    if config.get("do_lower_case"):
        return "it lowercases texts"
    if config.get("transformer_task", "feature-extraction") != "feature-extraction":
        return f"its transformer task is {config['transformer_task']}"
    modalities = config.get("modality_config") or {}
    if "message" in modalities:
        return "it wraps texts in a chat template"
    outputs = [(method or {}).get("method_output_name", "last_hidden_state") for method in modalities.values()]
    usual = all(output in ("last_hidden_state", ["last_hidden_state"]) for output in outputs)
    return "" if usual else "it uses an output other than the last hidden state"


def find_file(name: str, revision: str | None, file: str, subfolder: str = "", *, download: bool = True) -> Path | None:
    """The local path of a file in a folder or hub repository; None if it does not exist."""
    if Path(name).is_dir():
        path = Path(name) / subfolder / file
        return path if path.is_file() else None
    from huggingface_hub import errors, hf_hub_url
    from transformers.utils.hub import cached_file

    try:
        hf_hub_url(name, file)
    except errors.HFValidationError:  # neither a folder nor an id: nothing of that name exists
        return None
    cached = cached_file(
        name, file, subfolder=subfolder, revision=revision or "main", local_files_only=not download,
        _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )  # fmt: skip
    return Path(cached) if cached else None


def read_json(name: str, revision: str | None, file: str, subfolder: str = "") -> Any:
    """A JSON file of a folder or hub repository; None if it does not exist."""
    if (path := find_file(name, revision, file, subfolder)) is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} of {name!r} cannot be read ({error})") from None


def read_object(name: str, revision: str | None, file: str, subfolder: str = "") -> dict[str, Any] | None:
    """The same for a file that must hold a JSON object."""
    record = read_json(name, revision, file, subfolder)
    if record is not None and not isinstance(record, dict):
        raise ModelError(f"{Path(subfolder, file)} of {name!r} is damaged: it holds no JSON object")
    return record


@dataclass
class Head:
    """The modules after the transformer, ready to use, and the model's own `encode` for models that need it."""

    shipped: Shipped
    modules: tuple[nn.Module, ...] = ()
    prompt_length: int = 0  # number of prompt tokens, if pooling excludes them
    model: Any = None  # the full SentenceTransformer; loaded on first use
    source: tuple[str, str | None] = field(default=("", None))  # its name and revision
    difference: str = ""  # how this network differs from the model on disk, which then cannot be used in its place

    def __call__(self, states: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """states (B, T, D), the output of the transformer, and its inputs (B, T) -> (B, E)."""
        features: dict[str, Any] = {"token_embeddings": states, **inputs}
        if self.prompt_length:
            features["prompt_length"] = self.prompt_length
        for module in self.modules:
            features = module.to(states.device)(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors

    def settings(self) -> list[str]:
        """The settings of the modules besides their weights, such as an activation."""
        modules: list[Any] = [m for m in self.modules if hasattr(m, "get_config_dict")]
        return [repr(m.get_config_dict()) for m in modules]

    def weights(self) -> dict[str, Tensor]:
        return {f"head.{i}.{name}": w for i, m in enumerate(self.modules) for name, w in m.state_dict().items()}

    def require_template(self, template: str) -> None:
        """Raises if the model as shipped cannot be read with this template."""
        reason = self.shipped.own_encode_reason or (
            "it leaves out the tokens of its prompt" if self.prompt_length else ""
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
        prompt = self.shipped.prompt if all(text.startswith(self.shipped.prompt) for text in texts) else ""
        previous_length = model.max_seq_length
        if not self.shipped.static:  # which reads every text whole
            model.max_seq_length = max_length
        try:
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
            self.model = load_sentence_transformer(*self.source)
        return self.model


def load_head(shipped: Shipped, name: str, revision: str | None, tokenizer: Any) -> Head:
    """Loads the modules of a folder or hub id with the classes of sentence-transformers."""
    head = Head(shipped, source=(name, revision))
    if shipped.own_encode_reason:
        return head
    head.modules = tuple(load_module(module, name, revision) for module in shipped.modules)
    if shipped.prompt and not shipped.include_prompt:
        head.prompt_length = prompt_token_count(tokenizer, shipped.prompt)
    return head


def head_from_model(model: Any, tokenizer: Any) -> Head:
    """The head of a SentenceTransformer in memory."""
    first, *rest = model.children()
    modules = tuple(ShippedModule(type(m).__name__, f"{type(m).__module__}.{type(m).__name__}", "") for m in rest)
    pooling_module = next((m for m in rest if type(m).__name__ == "Pooling"), None)
    modes: Any = getattr(pooling_module, "pooling_mode", ())
    config = first.get_config_dict() if hasattr(first, "get_config_dict") else {}
    static = type(first).__name__ == STATIC_MODULE
    prompt = (model.prompts or {}).get(model.default_prompt_name or "", "") or ""
    length = model.max_seq_length
    shipped = Shipped(
        "", modules, (modes,) if isinstance(modes, str) else tuple(modes),
        bool(getattr(pooling_module, "include_prompt", True)), prompt, int(length) if length and not static else None,
        dict(model.prompts or {}), model.default_prompt_name,
        NO_LAYERS if static else own_encode_reason(modules, config),
    )  # fmt: skip
    head = Head(shipped, () if shipped.own_encode_reason else tuple(rest), model=model)
    if prompt and not shipped.include_prompt:
        head.prompt_length = prompt_token_count(tokenizer, prompt)
    return head


def load_module(module: ShippedModule, name: str, revision: str | None) -> nn.Module:
    require_sentence_transformers()
    if not module.type.startswith("sentence_transformers."):
        raise ModelError(f"{name!r} contains custom code ({module.type}), which layerwise does not run")
    if module.kind not in MODULES_WITHOUT_WEIGHTS and not has_safetensors(name, revision, module.path):
        raise ModelError(f"{module.path} of {name!r} has no model.safetensors; convert its weights first")
    classes = import_module("sentence_transformers.sentence_transformer.modules")
    loaded: nn.Module = getattr(classes, module.kind).load(name, subfolder=module.path, revision=revision)
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


def load_sentence_transformer(name: str, revision: str | None = None, device: str = "cpu") -> Any:
    """Loads a SentenceTransformer from a folder or hub id, from safetensors only."""
    require_sentence_transformers()
    from sentence_transformers import SentenceTransformer

    try:
        with quiet_libraries():
            return SentenceTransformer(name, revision=revision, device=device, model_kwargs={"use_safetensors": True})
    except Exception as error:  # of any kind: it parses files of strangers
        raise ModelError(f"sentence-transformers cannot load {name!r} ({type(error).__name__}: {error})") from error


def require_sentence_transformers() -> None:
    if find_spec("sentence_transformers") is None:
        raise MissingExtra("reading the model as shipped needs sentence-transformers: pip install 'layerwise[export]'")
