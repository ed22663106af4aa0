"""The sentence-transformers backend: what it can hold, and the folder saved and loaded again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import MissingExtra
from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Recipe
from layerwise.exporter.backends.backend import Job, Saved
from layerwise.exporter.backends.sentence_transformers.left_out import LeftOut, choose_left_out
from layerwise.exporter.backends.sentence_transformers.modules import save_modules
from layerwise.exporter.backends.sentence_transformers.routes import (
    Route,
    choose_route,
    require_loadable,
    require_static,
)
from layerwise.models.network import Network

LOADING = """from sentence_transformers import SentenceTransformer

SentenceTransformer("PATH").encode(["a text"])"""
UNTIED = "transformers >= 5.18; an older one silently applies the final norm and gives other vectors"
CUT_ALONE = "`transformers.AutoModel.from_pretrained(PATH)` loads the cut model alone, without pooling and map."
BATCH = 8  # texts; small enough that a certificate sees several padded batches


@dataclass(frozen=True)
class LoadedModel:
    """A SentenceTransformer as an encoder."""

    model: Any

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    def encode(self, texts: Sequence[str]) -> Tensor:
        """One row per text, on the CPU."""
        found: Tensor = self.model.encode(
            list(texts), batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False
        )
        return found.cpu()


@dataclass(frozen=True)
class SentenceTransformersBackend:
    """A folder that plain `SentenceTransformer(path)` loads."""

    name: str = "sentence_transformers"

    def require(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises where sentence-transformers is not installed, or its modules cannot say what the recipe says."""
        if find_spec("sentence_transformers") is None:
            raise MissingExtra("export needs sentence-transformers: pip install 'layerwise[export]'")
        self.plan(network, recipe, mode)

    def plan(self, network: Network, recipe: Recipe, mode: str) -> tuple[Route, LeftOut]:
        """How the recipe is said in modules; raises where it cannot be."""
        require_loadable(network)
        left_out = choose_left_out(network.tokenizer, recipe)
        if recipe.static:
            require_static(network, recipe.pooling, prompt_left_out=left_out.prompt)
        return choose_route(network, recipe.layer, recipe.norm, mode), left_out

    def save(self, job: Job, folder: Path) -> Saved:
        """Writes the modules, the cut model first."""
        route, left_out = self.plan(job.network, job.recipe, job.mode)
        save_modules(job, route, left_out, folder)
        return Saved(
            loading=LOADING,
            needs=f"sentence-transformers >= 5.4 and {UNTIED if route.untied else 'transformers 5'}",
            blocks=route.keep,
            library="sentence-transformers",
            packages=("transformers", "sentence-transformers"),
            record={"route": asdict(route)},
            notes=(CUT_ALONE,),
        )

    def load(self, folder: Path, device: torch.device) -> LoadedModel:
        from sentence_transformers import SentenceTransformer

        with quiet_libraries():
            return LoadedModel(SentenceTransformer(str(folder), device=str(device)))
