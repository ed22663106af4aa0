"""The sentence-transformers backend: checks support, saves the folder and loads it again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import MissingExtra
from layerwise.core.hub import offline
from layerwise.core.preprocessors import is_image
from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Recipe
from layerwise.inputs.images import load_image
from layerwise.inputs.templating import with_template
from layerwise.models.network import Network
from layerwise.verbs.export.backends.backend import BATCH_SIZE, ExportJob, SavedExport
from layerwise.verbs.export.backends.sentence_transformers.excluded_tokens import ExcludedTokens, choose_excluded_tokens
from layerwise.verbs.export.backends.sentence_transformers.modules import save_modules
from layerwise.verbs.export.backends.sentence_transformers.routes import (
    Route,
    choose_route,
    require_loadable,
    require_plain_images,
    require_static_exportable,
)

LOADING_CODE = """from sentence_transformers import SentenceTransformer

SentenceTransformer("PATH").encode(["a text"])"""
IMAGE_CODE = """from PIL import Image
from sentence_transformers import SentenceTransformer

SentenceTransformer("PATH").encode([Image.open("photo.jpg").convert("RGB")])"""
IMAGE_NOTE = (
    "Images are resized with Pillow. Where torchvision is installed, transformers uses that instead, and the vectors "
    "differ slightly."
)
UNTIED_REQUIREMENT = "transformers >= 5.18 (older versions silently apply the final norm and give different vectors)"
TRUNCATED_MODEL_NOTE = (
    "`transformers.AutoModel.from_pretrained(PATH)` loads only the truncated model, without pooling and linear map."
)


@dataclass(frozen=True)
class LoadedModel:
    """A SentenceTransformer as an encoder."""

    model: Any

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    def encode(self, texts: Sequence[Any], batch_size: int = BATCH_SIZE) -> Tensor:
        """One row per text or image, on the CPU."""
        inputs = [text if isinstance(text, str) else load_image(text, "an image") for text in texts]
        vectors: Tensor = self.model.encode(
            inputs, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
        )
        return vectors.cpu()


@dataclass(frozen=True)
class SentenceTransformersBackend:
    """Writes a folder that plain `SentenceTransformer(path)` can load."""

    name: str = "sentence_transformers"

    def check_supported(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises if sentence-transformers is not installed, or its modules cannot express the recipe."""
        if find_spec("sentence_transformers") is None:
            raise MissingExtra("export needs sentence-transformers: pip install 'layerwise[export]'")
        self.plan(network, recipe, mode)

    def plan(self, network: Network, recipe: Recipe, mode: str) -> tuple[Route, ExcludedTokens]:
        """How the recipe is expressed in modules; raises if it cannot be."""
        require_loadable(network)
        if is_image(network.preprocessor):
            require_plain_images(network, recipe)
            return choose_route(network, recipe.layer, recipe.norm, mode), ExcludedTokens()
        excluded = choose_excluded_tokens(network.tokenizer, recipe)
        if recipe.static:
            require_static_exportable(network, recipe.pooling, prompt_excluded=excluded.prompt)
        with_template(network.tokenizer, recipe.template)  # raises if the tokenizer cannot add it
        return choose_route(network, recipe.layer, recipe.norm, mode), excluded

    def save(self, job: ExportJob, folder: Path) -> SavedExport:
        """Writes the modules, starting with the truncated model."""
        route, excluded = self.plan(job.network, job.recipe, job.mode)
        save_modules(job, route, excluded, folder)
        images = is_image(job.network.preprocessor)
        return SavedExport(
            loading_code=IMAGE_CODE if images else LOADING_CODE,
            requirements=f"sentence-transformers >= 5.4 and {UNTIED_REQUIREMENT if route.untied else 'transformers 5'}",
            blocks=route.blocks,
            library="sentence-transformers",
            packages=("transformers", "sentence-transformers"),
            record={"route": asdict(route)},
            notes=(TRUNCATED_MODEL_NOTE, *((IMAGE_NOTE,) if images else ())),
        )

    def load(self, folder: Path, device: torch.device) -> LoadedModel:
        from sentence_transformers import SentenceTransformer

        with quiet_libraries(), offline():  # it would look the model up on the hub, for its card
            return LoadedModel(SentenceTransformer(str(folder), device=str(device)))
