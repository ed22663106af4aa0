"""The model as shipped: the pooling, map, normalisation, prompt and length that come with an embedding model.

A SentenceTransformer folder lists its modules in modules.json. Only JSON is read here until the modules are needed, so
a plan can be made before any weight is loaded. A folder without modules.json ships none of this; `plain_pooling` says
how plain `SentenceTransformer(folder)` pools it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from layerwise.core.checks import PoolingWord
from layerwise.core.errors import InputError, MissingExtra, ModelError
from layerwise.core.quiet import quiet_libraries

# Their words for pooling, and ours.
POOLING_WORDS: dict[str, PoolingWord] = {"mean": "mean", "max": "max", "cls": "first", "lasttoken": "last"}
OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Modules that turn token vectors into one vector and need nothing but them: they can follow our own forward pass.
FOLLOWERS = ("Pooling", "Dense", "Normalize", "LayerNorm", "Dropout", "WordWeights")
WEIGHTLESS = ("Pooling", "Normalize", "Dropout", "WordWeights")
CONFIG_FILES = (  # names that sentence-transformers gave its own settings over the years, whatever the model
    "sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)  # fmt: skip


@dataclass(frozen=True)
class ShippedModule:
    """One line of modules.json after the transformer: its class, and the folder of its files."""

    kind: str  # the class's name, such as Pooling
    type: str  # its whole import path
    path: str


@dataclass(frozen=True)
class Shipped:
    """What the JSON files of a SentenceTransformer folder say."""

    transformer: str  # subfolder that holds config.json and the weights
    modules: tuple[ShippedModule, ...]
    pooling: tuple[str, ...]  # sentence-transformers' own words
    include_prompt: bool
    prompt: str  # put before every text by default
    max_length: int | None
    prompts: Mapping[str, str] = field(default_factory=dict, compare=False)  # all that it knows by name
    default_prompt: str | None = None  # the name of the one that is used unasked
    own_pass: str = ""  # why our forward pass cannot feed these modules; then the model encodes texts itself

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides its vectors beside weights, tokenizer and length; the same for a folder and for an object."""
        return tuple(m.kind for m in self.modules), self.pooling, self.include_prompt, self.prompt, self.own_pass

    @property
    def pooling_word(self) -> PoolingWord | None:
        """Our word for its pooling; None where there is none, or where it leaves the prompt's tokens out."""
        if len(self.pooling) != 1 or (self.prompt and not self.include_prompt):
            return None
        return POOLING_WORDS.get(self.pooling[0])

    def require_pooling_word(self) -> PoolingWord:
        if (word := self.pooling_word) is None:
            how = " and ".join(self.pooling) or "something other than a Pooling module"
            left_out = " without the prompt's tokens" if self.prompt and not self.include_prompt else ""
            raise InputError(
                f"this model pools by {how}{left_out}, which cannot be applied to a single layer; say how layers are "
                "pooled with pooling= (--pooling mean), or use `last`, the model as shipped"
            )
        return word


def plain_pooling(config: Any) -> PoolingWord:
    """How sentence-transformers 6 pools a model that ships no pooling: a causal language model by its last token."""
    named = (getattr(config, "architectures", None) or [""])[0]
    return "last" if named.endswith("ForCausalLM") and getattr(config, "is_causal", True) else "mean"


def read_shipped(name: str, revision: str | None = None) -> Shipped | None:
    """What a folder or hub id ships beside the transformer; None where it has no modules.json."""
    listed = read_json(name, revision, "modules.json")
    if listed is None:
        return None
    try:
        ordered = sorted(listed, key=lambda module: module["idx"])
        first, *rest = [
            ShippedModule(str(m["type"]).rpartition(".")[2], str(m["type"]), str(m["path"])) for m in ordered
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError(f"modules.json of {name!r} is damaged ({type(error).__name__}: {error})") from None
    for module in (first, *rest):
        if module.path.startswith("/") or ".." in Path(module.path).parts:
            raise ModelError(f"modules.json of {name!r} leads out of its folder: {module.path!r}")
    if first.kind != "Transformer":
        raise ModelError(f"{name!r} begins with {first.kind}, not with a transformer: it has no layers to read")
    configs = (read_json(name, revision, file, first.path) for file in CONFIG_FILES)
    config: dict[str, Any] = next((found for found in configs if found), {})
    whole = read_json(name, revision, "config_sentence_transformers.json") or {}
    pooled = next((m for m in rest if m.kind == "Pooling"), None)
    pooling = (read_json(name, revision, "config.json", pooled.path) or {}) if pooled else {}
    prompts, named = whole.get("prompts") or {}, whole.get("default_prompt_name")
    length = config.get("max_seq_length")
    return Shipped(
        first.path,
        tuple(rest),
        pooling_modes(pooling) if pooled else (),
        bool(pooling.get("include_prompt", True)),
        str(prompts.get(named) or "") if named else "",
        int(length) if isinstance(length, int) and length > 0 else None,
        prompts,
        named,
        reason_for_own_pass(rest, config),
    )


def pooling_modes(config: dict[str, Any]) -> tuple[str, ...]:
    """The pooling of a module's config.json, in either spelling; several are concatenated."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return (mode,) if isinstance(mode, str) else tuple(mode)
    return tuple(word for key, word in OLD_POOLING_KEYS.items() if config.get(key)) or ("mean",)


def reason_for_own_pass(modules: Sequence[ShippedModule], config: dict[str, Any]) -> str:
    """Why vectors must come from the model's own `encode`; "" where our forward pass can feed its modules."""
    if unusual := [m.kind for m in modules if m.kind not in FOLLOWERS]:
        return f"it has a {unusual[0]} module"
    if config.get("do_lower_case"):
        return "it puts texts into lower case"
    if config.get("transformer_task", "feature-extraction") != "feature-extraction":
        return f"its transformer does {config['transformer_task']}"
    modalities = config.get("modality_config") or {}
    if "message" in modalities:
        return "it wraps texts in a chat template"
    output = (modalities.get("text") or {}).get("method_output_name", "last_hidden_state")
    return "" if output in ("last_hidden_state", ["last_hidden_state"]) else "it takes another output than the last"


def file_of(name: str, revision: str | None, file: str, subfolder: str = "", *, download: bool = True) -> Path | None:
    """Where a file of a folder or hub id is on this machine; None where there is none."""
    if Path(name).is_dir():
        path = Path(name) / subfolder / file
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    found = cached_file(
        name, file, subfolder=subfolder, revision=revision or "main", local_files_only=not download,
        _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )  # fmt: skip
    return Path(found) if found else None


def read_json(name: str, revision: str | None, file: str, subfolder: str = "") -> Any:
    """A JSON file of a folder or hub id; None where there is none."""
    if (found := file_of(name, revision, file, subfolder)) is None:
        return None
    try:
        return json.loads(found.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} of {name!r} cannot be read ({error})") from None


@dataclass
class Head:
    """The modules behind the transformer, ready to use, and the model's own `encode` where they are not enough."""

    shipped: Shipped
    modules: tuple[nn.Module, ...] = ()
    prompt_length: int = 0  # tokens of the prompt, where pooling leaves them out
    model: Any = None  # the whole SentenceTransformer; loaded when first needed
    place: tuple[str, str | None] = field(default=("", None))  # its name and revision
    unlike: str = ""  # how this network differs from the model at that place, which then cannot speak for it

    def __call__(self, states: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """states (B, T, D) as the transformer puts them out, and its inputs (B, T) -> (B, E)."""
        features: dict[str, Any] = {"token_embeddings": states, **inputs}
        if self.prompt_length:
            features["prompt_length"] = self.prompt_length
        for module in self.modules:
            features = module.to(states.device)(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors

    def settings(self) -> list[str]:
        """What the modules do beside their weights, such as an activation."""
        modules: list[Any] = [m for m in self.modules if hasattr(m, "get_config_dict")]
        return [repr(m.get_config_dict()) for m in modules]

    def weights(self) -> dict[str, Tensor]:
        return {f"head.{i}.{name}": w for i, m in enumerate(self.modules) for name, w in m.state_dict().items()}

    def encode(self, examples: Sequence[object], max_length: int) -> Tensor:
        """What the whole model gives for these texts, which carry their prompt already."""
        texts = [text for text in examples if isinstance(text, str)]
        assert len(texts) == len(examples), "only models of text ship such a head"
        model = self.whole()
        prompt = self.shipped.prompt if all(text.startswith(self.shipped.prompt) for text in texts) else ""
        before = model.max_seq_length
        model.max_seq_length = max_length
        try:
            found: Tensor = model.encode(
                [text.removeprefix(prompt) for text in texts], prompt=prompt, convert_to_tensor=True,
                show_progress_bar=False,
            )  # fmt: skip
        finally:
            model.max_seq_length = before  # it may be the user's own object
        return found.float().cpu()

    def whole(self) -> Any:
        """The model as sentence-transformers loads it."""
        if self.unlike:
            raise InputError(
                f"this model must encode texts itself ({self.shipped.own_pass or 'to be compared'}), and would do so "
                f"without {self.unlike}; merge the adapter into a folder, use float32, or name a layer by number"
            )
        if self.model is None:
            self.model = load_whole(*self.place)
        return self.model


def load_head(shipped: Shipped, name: str, revision: str | None, tokenizer: Any) -> Head:
    """The modules of a folder or hub id, loaded by sentence-transformers' own classes."""
    head = Head(shipped, place=(name, revision))
    if shipped.own_pass:
        return head
    head.modules = tuple(load_module(module, name, revision) for module in shipped.modules)
    if shipped.prompt and not shipped.include_prompt:
        head.prompt_length = length_of_prompt(tokenizer, shipped.prompt)
    return head


def head_of(model: Any, tokenizer: Any) -> Head:
    """The head of a SentenceTransformer in memory."""
    first, *rest = model.children()
    listed = tuple(ShippedModule(type(m).__name__, f"{type(m).__module__}.{type(m).__name__}", "") for m in rest)
    pooled = next((m for m in rest if type(m).__name__ == "Pooling"), None)
    modes: Any = getattr(pooled, "pooling_mode", ())
    config = first.get_config_dict() if hasattr(first, "get_config_dict") else {}
    prompt = (model.prompts or {}).get(model.default_prompt_name or "", "") or ""
    length = model.max_seq_length
    shipped = Shipped(
        "", listed, (modes,) if isinstance(modes, str) else tuple(modes), bool(getattr(pooled, "include_prompt", True)),
        prompt, int(length) if length else None, dict(model.prompts or {}), model.default_prompt_name,
        reason_for_own_pass(listed, config),
    )  # fmt: skip
    head = Head(shipped, () if shipped.own_pass else tuple(rest), model=model)
    if prompt and not shipped.include_prompt:
        head.prompt_length = length_of_prompt(tokenizer, prompt)
    return head


def load_module(module: ShippedModule, name: str, revision: str | None) -> nn.Module:
    require_sentence_transformers()
    if not module.type.startswith("sentence_transformers."):
        raise ModelError(f"{name!r} brings code of its own ({module.type}); layerwise does not run it")
    if module.kind not in WEIGHTLESS and not has_safetensors(name, revision, module.path):
        raise ModelError(f"{module.path} of {name!r} has no model.safetensors; convert its weights first")
    classes = import_module("sentence_transformers.sentence_transformer.modules")
    loaded: nn.Module = getattr(classes, module.kind).load(name, subfolder=module.path, revision=revision)
    return loaded.eval().requires_grad_(False)


def has_safetensors(name: str, revision: str | None, path: str) -> bool:
    if Path(name).is_dir():
        return (Path(name) / path / "model.safetensors").is_file()
    from transformers.utils.hub import has_file

    return bool(has_file(name, f"{path}/model.safetensors", revision=revision or "main"))


def length_of_prompt(tokenizer: Any, prompt: str) -> int:
    """Tokens of a prompt as sentence-transformers counts them: without a special token at its end."""
    ids = list(tokenizer(prompt)["input_ids"])
    return len(ids) - (1 if ids and ids[-1] in tokenizer.all_special_ids else 0)


def load_whole(name: str, revision: str | None = None, device: str = "cpu") -> Any:
    """The SentenceTransformer of a folder or hub id, from safetensors."""
    require_sentence_transformers()
    from sentence_transformers import SentenceTransformer

    with quiet_libraries():
        return SentenceTransformer(name, revision=revision, device=device, model_kwargs={"use_safetensors": True})


def require_sentence_transformers() -> None:
    if find_spec("sentence_transformers") is None:
        raise MissingExtra("the model as shipped needs sentence-transformers: pip install 'layerwise[export]'")
