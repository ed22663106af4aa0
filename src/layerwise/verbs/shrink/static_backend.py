"""A static model as a folder for sentence-transformers: its StaticEmbedding module, in float32 or with 8-bit rows."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from layerwise.core.errors import MissingExtra
from layerwise.core.recipe import Recipe
from layerwise.models.head import require_sentence_transformers
from layerwise.models.network import Network
from layerwise.models.static import MadeStatic
from layerwise.verbs.export.backends.backend import ExportJob, SavedExport
from layerwise.verbs.export.backends.sentence_transformers.backend import (
    LOADING_CODE,
    LoadedModel,
    SentenceTransformersBackend,
)
from layerwise.verbs.export.backends.sentence_transformers.old_names import write_old_names
from layerwise.verbs.export.certificate import RELATIVE_TOLERANCE, checked_inputs

TOLERANCE_PER_TOKEN = 2**-24  # torch adds the rows of a text one by one in float32; each sum is rounded by that much
WEIGHTS = "model.safetensors"
INT8_VERSION = "6.2"  # of sentence-transformers: older ones do not multiply rows by their scales, and raise an error


@dataclass(frozen=True)
class StaticBackend:
    """Writes a static model; the network of the job is one that `made_static` has made."""

    int8: bool = False
    name: str = SentenceTransformersBackend.name

    def check_supported(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises if sentence-transformers is missing, or too old for 8-bit rows."""
        require_sentence_transformers()
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding

        if self.int8 and '"weights"' not in inspect.getsource(StaticEmbedding.load):
            raise MissingExtra(
                f"--int8 needs sentence-transformers {INT8_VERSION} or newer: pip install -U sentence-transformers"
            )

    def save(self, job: ExportJob, folder: Path) -> SavedExport:
        """Writes rows, tokenizer and modules.json."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

        head = job.network.head
        assert isinstance(head, MadeStatic), "the network of a static export was made for it"
        first = StaticEmbedding(head.backend, embedding_weights=head.rows.clone())
        modules: list[Any] = [first, *([Normalize()] if head.unit else [])]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
        if self.int8:
            (path,) = folder.rglob(WEIGHTS)
            path.unlink()
            whole, scales = quantized_rows(head.rows)
            save_file({"embeddings": whole, "weights": scales}, path)
        write_old_names(folder, job.max_length)
        longest = max(len(encoding.ids) for encoding in head.backend.encode_batch(checked_inputs(job)[0]))
        return SavedExport(
            loading_code=LOADING_CODE,
            requirements=f"sentence-transformers >= {INT8_VERSION if self.int8 else '5.4'}",
            library="sentence-transformers",
            packages=("transformers", "sentence-transformers", "tokenizers"),
            tolerance=max(RELATIVE_TOLERANCE, TOLERANCE_PER_TOKEN * longest),
        )

    def load(self, folder: Path, device: torch.device) -> LoadedModel:
        return SentenceTransformersBackend().load(folder, device)


def quantized_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The rows as 8-bit integers, and the number that each row is multiplied by."""
    scales = rows.abs().amax(dim=1).clamp(min=1e-30) / 127
    return (rows / scales.unsqueeze(1)).round().to(torch.int8), scales


def rounded_rows(rows: Tensor) -> Tensor:
    """The rows that their 8-bit form stands for."""
    whole, scales = quantized_rows(rows)
    return whole.float() * scales.unsqueeze(1)
