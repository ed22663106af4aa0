"""The model as shipped: the pooling, linear map, normalisation, prompt and length of an embedding model.

A SentenceTransformer folder lists its modules in modules.json. Only JSON is read here, so that planning needs no
weights; head.py loads the modules. A folder without modules.json ships none of this; `plain_pooling` returns how
`SentenceTransformer(folder)` would pool it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerwise.core.checks import PoolingChoice
from layerwise.core.errors import InputError, ModelError

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
METHODS = "modality_config"  # of the transformer module: what it calls, and which output it takes
DIMENSIONS = "truncate_dim"
# Settings of the transformer module that do not change vectors, that are read above, or that other kinds of model use.
KNOWN_SETTINGS = (
    "max_seq_length", "do_lower_case", "transformer_task", "module_output_name", "unpad_inputs", "query_length",
    "document_length", "query_expansion",
)  # fmt: skip
OWN_CHOICES = ("trust_remote_code", "attn_implementation", "dtype", "torch_dtype", "use_safetensors")  # layerwise's
SIMILARITIES = ("dot", "euclidean", "manhattan")  # besides the cosine; the names of sentence-transformers
SETTINGS_FILE = "config_sentence_transformers.json"
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
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)  # unusual ones that change its vectors
    lowercase: bool = False  # whether the tokenizer must be changed to lowercase texts
    similarity: str = ""  # how its vectors are compared, if not by their cosine

    @property
    def identity(self) -> tuple[Any, ...]:
        """What affects its vectors besides weights, tokenizer and length; the same for a folder and an object."""
        return (
            tuple(m.kind for m in self.modules),
            self.pooling,
            self.include_prompt,
            self.prompt,
            self.own_encode_reason,
            *([json.dumps(self.settings, sort_keys=True)] if self.settings else []),
            *([self.similarity] if self.similarity else []),
        )

    @property
    def hidden_state(self) -> int | None:
        """The hidden state that is pooled, as transformers counts them; None for the last one."""
        outputs = [method.get("method_output_name") for method in self.settings.get(METHODS, {}).values()]
        states = [output[1] for output in outputs if isinstance(output, list) and output[:1] == ["hidden_states"]]
        return states[0] if states else None

    @property
    def dimensions(self) -> int | None:
        """How many dimensions of its vectors are kept; None for all."""
        kept: int | None = self.settings.get(DIMENSIONS)
        return kept

    @property
    def not_followed(self) -> tuple[str, ...]:
        """Settings that only its own `encode` follows: its layers are read without them."""
        return tuple(name for name in self.settings if name not in (METHODS, DIMENSIONS))

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
        require_known_activation(module, name, revision)
    if first.kind not in ("Transformer", STATIC_MODULE):
        raise ModelError(f"the first module of {name!r} is {first.kind}, not a transformer: it has no layers to read")
    configs = (read_object(name, revision, file, first.path) for file in CONFIG_FILES)
    config: dict[str, Any] = next((candidate for candidate in configs if candidate), {})
    found = find_file(name, revision, SETTINGS_FILE) is not None
    own_settings = read_json(name, revision, SETTINGS_FILE) if found else {}
    prompts, default_prompt = prompts_in(own_settings, name)
    settings = unusual_settings(config, own_settings.get("truncate_dim"))
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
        NO_LAYERS if first.kind == STATIC_MODULE else own_encode_reason(rest, config, settings),
        settings,
        bool(config.get("do_lower_case")),
        other_similarity(own_settings.get("similarity_fn_name")),
    )


def require_known_activation(module: ShippedModule, name: str, revision: str | None) -> None:
    """Raises for a Dense whose activation is not torch's: sentence-transformers would use Tanh in its place."""
    config = (read_object(name, revision, "config.json", module.path) if module.kind == "Dense" else None) or {}
    activation = config.get("activation_function", "torch.")
    if not (isinstance(activation, str) and activation.startswith("torch.")):
        raise ModelError(
            f"{module.path}/config.json of {name!r} names the activation {activation!r}, which is not one of torch: "
            "without running its code, sentence-transformers computes Tanh in its place. Load the model with "
            "sentence-transformers and trust_remote_code=True, and pass the loaded model"
        )


def prompts_in(settings: object, name: str) -> tuple[dict[str, str], str | None]:
    """The prompts of a model by name, and the name of the default one."""
    prompts = settings.get("prompts") or {} if isinstance(settings, dict) else None
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise ModelError(f"{SETTINGS_FILE} of {name!r} is damaged: it needs an object, with prompts as texts by name")
    assert isinstance(settings, dict), "it has prompts"
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ModelError(
            f"{SETTINGS_FILE} of {name!r} is damaged: its default prompt {default!r} is not one of its prompts"
        )
    return prompts, default


def similarity_of(shipped: Shipped | None) -> str:
    """How the vectors of a model are compared, "" for cosine; raises if layerwise does not know it."""
    if shipped is None or shipped.similarity in ("", *SIMILARITIES):
        return shipped.similarity if shipped else ""
    raise ModelError(
        f"this model's vectors are compared by {shipped.similarity!r}, and layerwise knows cosine, "
        f"{' and '.join(SIMILARITIES)}; choose layers by number instead of last"
    )


def pooling_modes(config: dict[str, Any]) -> tuple[str, ...]:
    """The pooling modes in a module's config.json, in old or new format; several are concatenated."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return (mode,) if isinstance(mode, str) else tuple(mode)
    return tuple(pooling for key, pooling in OLD_POOLING_KEYS.items() if config.get(key)) or ("mean",)


def own_encode_reason(modules: Sequence[ShippedModule], config: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Why vectors must come from the model's own `encode`; "" if our forward pass can be used."""
    if unsupported := [m.kind for m in modules if m.kind not in SUPPORTED_MODULES]:
        return f"it has a {unsupported[0]} module"
    if config.get("transformer_task", "feature-extraction") != "feature-extraction":
        return f"its transformer task is {config['transformer_task']}"
    if "message" in settings.get(METHODS, {}):
        return "it wraps texts in a chat template"
    if METHODS in settings:
        return "it uses an output other than the last hidden state"
    if others := [name for name in settings if name not in (METHODS, DIMENSIONS)]:
        return f"it sets {others[0]}"
    return f"it keeps {settings[DIMENSIONS]} dimensions of its vectors" if settings else ""


def unusual_settings(config: Mapping[str, Any], dimensions: object) -> dict[str, Any]:
    """The settings that change a model's vectors and are not the usual ones, as JSON has them.

    config: of its transformer module. dimensions: how many of its vectors are kept; None for all.
    """
    methods = config.get(METHODS) or {}
    if not isinstance(methods, dict) or not all(isinstance(method, dict) for method in methods.values()):
        raise ModelError(f"the {METHODS} of the transformer module is damaged: it needs an object per modality")
    unusual: dict[str, Any] = {
        METHODS: {str(k): method for k, method in methods.items() if k == "message" or not is_usual(method)}
    }
    for name, value in config.items():
        if name not in (METHODS, *KNOWN_SETTINGS):
            kept = value if not isinstance(value, dict) else {k: v for k, v in value.items() if k not in OWN_CHOICES}
            unusual[str(name)] = kept
    if dimensions is not None and not isinstance(dimensions, int):
        raise ModelError(f"{DIMENSIONS} is damaged: it needs a number, not {dimensions!r}")
    unusual[DIMENSIONS] = dimensions
    found: dict[str, Any] = json.loads(json.dumps({name: value for name, value in unusual.items() if value}))
    return found


def other_similarity(name: object) -> str:
    """The name of a similarity, if it is not the cosine."""
    found = str(getattr(name, "value", name) or "")
    return "" if found == "cosine" else found


def is_usual(method: dict[str, Any]) -> bool:
    output = method.get("method_output_name", "last_hidden_state")
    return method.get("method", "forward") == "forward" and output in ("last_hidden_state", ["last_hidden_state"])


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
