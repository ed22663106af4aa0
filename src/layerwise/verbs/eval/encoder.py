"""The encoder passed to mteb: reads one recipe's vectors from the store and applies its map."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.core.recipe import Readout, Recipe
from layerwise.core.templates import template_of_prompt
from layerwise.maps.fitted import AnyRecipe, FittedRecipe, plain_recipe
from layerwise.maps.linear import LinearMap, combine_maps, fit_parts
from layerwise.passes.vectors import not_finite, not_finite_rows
from layerwise.verbs.eval.vectors import VectorStore

SHOWN_TEXT = 40  # characters of a text in a message
StoreFactory = Callable[[str, str, int | None], VectorStore]  # template, role, max_length (None: default)


@dataclass
class RecipeVectors:
    """Vectors of a recipe from the store. The map of a plain recipe is fitted to `fit` on first use, and not stored."""

    stores: StoreFactory
    given_recipe: AnyRecipe
    fit: Sequence[str] = ()

    @property
    def recipe(self) -> Recipe:
        return plain_recipe(self.given_recipe)

    def __call__(self, texts: Sequence[str], template: str = "", role: str = "") -> NDArray[np.float32]:
        store = self.stores(template, role, self.recipe.max_length)
        rows = np.concatenate([finite_vectors(store, texts, readout) for readout, _ in self.recipe.parts], axis=1)
        if self.recipe.transform != "none":
            rows = self.linear_map(torch.from_numpy(rows)).numpy()
        if self.recipe.normalize:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows

    @cached_property
    def linear_map(self) -> LinearMap:
        if isinstance(self.given_recipe, FittedRecipe) and self.given_recipe.combined_map is not None:
            return self.given_recipe.combined_map
        store = self.stores(self.recipe.template, "", self.recipe.max_length)
        rows = [
            (map_name, torch.from_numpy(finite_vectors(store, self.fit, readout)))
            for readout, map_name in self.recipe.parts
        ]
        return combine_maps(fit_parts(rows, self.recipe.dims), self.recipe.dims)


def finite_vectors(store: VectorStore, texts: Sequence[str], readout: Readout) -> NDArray[np.float32]:
    """The vectors of these texts; raises NotFiniteError with the layer and a text where they are not finite."""
    rows = store.vectors(texts, readout)
    if len(bad := not_finite_rows(torch.from_numpy(rows))):
        raise not_finite(readout.layer, getattr(torch, store.kind.dtype), repr(texts[int(bad[0])][:SHOWN_TEXT]))
    return rows


def make_encoder(
    vectors: RecipeVectors, *, name: str, revision: str, prompts: dict[str, str], similarity: str = ""
) -> Any:
    """An mteb encoder for one recipe. Prompts are prepended according to mteb's rules.

    `similarity`: how vectors are compared, by the name that sentence-transformers has for it; by default by cosine.
    """
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class LayerEncoder(AbsEncoder):
        model_prompts = prompts
        mteb_model_meta = ModelMeta.create_empty(
            overwrites={
                "name": model_name(name),
                "revision": safe_path_part(revision),
                "experiment_kwargs": experiment_settings(vectors.given_recipe),
            }
        )

        def encode(
            self, inputs: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, prompt_type: Any = None, **_: Any
        ) -> NDArray[np.float32]:
            texts = [text for batch in inputs for text in batch["text"]]
            prompt_name = self.get_prompt_name(task_metadata, prompt_type) if prompts else None
            prompt = prompts.get(prompt_name or "")
            template = vectors.recipe.template if prompt is None else template_of_prompt(prompt)
            role = getattr(prompt_type, "value", prompt_type) or ""
            return vectors(texts, template, role if prompts else "")

    encoder: Any = LayerEncoder()
    if similarity:
        from sentence_transformers.util import SimilarityFunction

        encoder.similarity = SimilarityFunction.to_similarity_fn(similarity)
        encoder.similarity_pairwise = SimilarityFunction.to_similarity_pairwise_fn(similarity)
    return encoder


def model_name(name: str) -> str:
    """mteb expects organisation/model; a folder becomes local/<its name>."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return "/".join(parts) if len(parts) == 2 and not name.startswith(("/", ".")) else f"local/{parts[-1]}"


def safe_path_part(revision: str) -> str:
    """A revision as a safe path component: mteb names a folder after it, and it may come from an untrusted config."""
    return re.sub(r"[^\w.-]", "-", revision).lstrip(".")[:100] or "main"


def experiment_settings(given_recipe: AnyRecipe) -> dict[str, Any]:
    """Settings that name this recipe's results in mteb's folders: the layer, and everything that is not default."""
    recipe = plain_recipe(given_recipe)
    defaults, settings = asdict(Recipe(recipe.layer)), asdict(recipe)
    if recipe.template:  # it becomes part of a folder name
        template = recipe.template.encode("utf-8", "surrogatepass")
        settings["template"] = hashlib.blake2b(template, digest_size=6).hexdigest()
    if isinstance(given_recipe, FittedRecipe) and given_recipe.maps:
        settings["map"] = given_recipe.identity[:12]
    return {"layer": recipe.layer} | {name: value for name, value in settings.items() if value != defaults.get(name)}
