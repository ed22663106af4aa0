"""Static models: a vector per token and their mean, without a transformer; read as a network without layers.

Only the model as shipped (`last`) can be read. sentence-transformers itself encodes the texts, except for a model that
was just made, which is compared with what sentence-transformers gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.core.errors import InputError, ModelError
from layerwise.core.hashes import KnownHashes
from layerwise.core.preprocessors import NO_LIMIT
from layerwise.core.templates import parse_template
from layerwise.models.find_blocks import ModelStructure
from layerwise.models.fingerprint import weight_files_hash
from layerwise.models.head import Head, has_safetensors, head_from_model, load_sentence_transformer
from layerwise.models.network import Network
from layerwise.models.shipped import NO_LAYERS, STATIC_MODULE, Shipped, ShippedModule
from layerwise.models.spec import ModelSpec


class StaticRows(nn.Module):
    """The vectors of the vocabulary (V, E), with a config as models of transformers have one."""

    def __init__(self, rows: Tensor) -> None:
        from transformers import PretrainedConfig

        super().__init__()
        self.config = PretrainedConfig()
        self.rows = nn.Parameter(rows, requires_grad=False)


@dataclass
class MadeStatic(Head):
    """A static model that was just made. Its vectors are computed here, in double precision."""

    rows: Tensor = field(default_factory=lambda: torch.empty(0, 0))  # (V, E)
    backend: Any = None  # the tokenizer, as the tokenizers package has it
    unit: bool = False  # whether vectors are scaled to length 1

    def encode(self, examples: Sequence[object], max_length: int, template: str = "") -> Tensor:
        """One row per text: the mean of the rows of its tokens, however long it is."""
        before, rows = parse_template(template).before, self.rows.double()
        vectors = torch.zeros(len(examples), rows.shape[1], dtype=torch.float64)
        for i, text in enumerate(examples):
            ids = self.backend.encode(f"{before}{text}", add_special_tokens=False).ids
            if ids:
                vectors[i] = rows[ids].mean(dim=0)
        return (nn.functional.normalize(vectors, dim=1) if self.unit else vectors).float()


def made_static(name: str, rows: Tensor, backend: Any, *, unit: bool) -> Network:
    """The network of a static model with these rows and this tokenizer, which is not on disk yet."""
    modules = (ShippedModule("Normalize", "", ""),) if unit else ()
    head = MadeStatic(Shipped("", modules, (), True, "", None, own_encode_reason=NO_LAYERS), rows=rows)
    head.backend, head.unit = backend, unit
    return static_network(name, rows, transformers_tokenizer(backend), head)


def transformers_tokenizer(backend: Any) -> Any:
    """A tokenizer of the tokenizers package as transformers has it."""
    from transformers import PreTrainedTokenizerFast

    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=backend)


def static_network(
    name: str, rows: Tensor, tokenizer: Any, head: Head, revision: str = "main", files_hash: str = ""
) -> Network:
    """A network with no block; its only readout is the model as shipped."""
    structure = ModelStructure("", (), 0, rows.shape[1], None)
    return Network(
        name, revision, StaticRows(rows), tokenizer, structure, NO_LIMIT, NO_LIMIT, head, files_hash=files_hash
    )


def load_static(spec: ModelSpec, shipped: Shipped, known_hashes: KnownHashes | None = None) -> Network:
    """Loads a folder or hub id whose first module is a StaticEmbedding."""
    if spec.dtype != "float32" or spec.adapter or spec.part or spec.device_map:
        raise InputError(f"{spec.name!r} is a static model; leave out dtype, adapter, part and device_map")
    if custom := [module.type for module in shipped.modules if not module.type.startswith("sentence_transformers.")]:
        raise ModelError(f"{spec.name!r} contains custom code ({custom[0]}), which layerwise does not run")
    if not has_safetensors(spec.name, spec.revision, shipped.transformer):
        raise ModelError(f"{spec.name!r} has no model.safetensors; convert its weights first")
    files_hash = weight_files_hash(spec.name, spec.revision, shipped, None, known_hashes) or ""
    model = load_sentence_transformer(spec.name, spec.revision)
    return static_from_object(model, spec.name, spec.revision or "main", files_hash)


def static_from_object(
    model: Any, name: str = STATIC_MODULE, revision: str = "main", files_hash: str = ""
) -> Network:  # fmt: skip
    """The network of a SentenceTransformer in memory whose first module is a StaticEmbedding."""
    first = next(iter(model.children()))
    tokenizer = transformers_tokenizer(first.tokenizer)
    rows, head = first.embedding.weight.detach().float(), head_from_model(model)
    return static_network(name, rows, tokenizer, head, revision, files_hash)


def is_static(model: object) -> bool:
    """True for a SentenceTransformer in memory whose first module is a StaticEmbedding."""
    return isinstance(model, nn.Module) and type(next(iter(model.children()), None)).__name__ == STATIC_MODULE


def require_layers(shipped: Shipped | None, name: str) -> None:
    """Raises for a static model, where layers are needed."""
    if shipped is not None and shipped.static:
        raise ModelError(
            f"{name} has no layers to read: {NO_LAYERS}; layerwise eval and layerwise embed read it as shipped. To "
            "read layers, pass the model that it was made from"
        )
