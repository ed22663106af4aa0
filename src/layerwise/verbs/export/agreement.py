"""Agreement: how much the vectors of an exported model are like those of the original model as shipped.

The certificate proves that an export is faithful to its recipe. It says nothing about how far that recipe is from what
the user had before; these numbers do, without labels. They are no substitute for a score on a task.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.models.network import Network
from layerwise.models.readouts import last_recipe
from layerwise.models.shipped import MODULES_WITHOUT_WEIGHTS
from layerwise.passes.vectors import part_rows
from layerwise.verbs.export.backends.backend import Encoder, ExportJob

NEIGHBOURS = 10
DEMO_TEXTS = 120  # of the 200 that come with layerwise
MOST_TEXTS = 500  # of the user's own: more hardly change the two numbers


@dataclass(frozen=True)
class ComparedTexts:
    """The texts to compare on, and where they come from."""

    texts: Sequence[Any]  # or images
    source: str


@dataclass(frozen=True)
class Agreement:
    """How alike the vectors of two models are on the same texts, as `agreement` in layerwise.json."""

    texts: int
    source: str
    mean_cosine: float | None  # between the two vectors of a text; None where that would say nothing, see `note`
    neighbour_overlap: float | None  # mean share of a text's nearest neighbours that are the same in both models
    neighbours: int  # how many nearest neighbours are compared
    note: str = ""  # why a number is missing, or how the original was read


def agreement(job: ExportJob, encoder: Encoder, compared: ComparedTexts) -> Agreement:
    """Compares the exported model with the original one, which reads the texts with its own prompt and length.

    A number that cannot be had is None, and no reason to refuse the export: a tokenizer may know no word of the texts.
    """
    network, texts = job.whole, compared.texts
    if not texts:
        return Agreement(0, compared.source, None, None, 0, "not compared: pass some of your own with --texts")
    count = neighbour_count(len(texts))
    try:
        (before,) = part_rows(network, last_recipe(network), texts, network.default_length)
    except InputError as error:
        return Agreement(len(texts), compared.source, None, None, count, f"not comparable: {error}")
    if not torch.isfinite(before).all():
        reason = f"not comparable: vectors of the original hold NaN or infinity in {network.dtype}"
        return Agreement(len(texts), compared.source, None, None, count, reason)
    after = encoder.encode(texts)
    reason = reason_without_cosine(network, job.recipe, before, after) or job.coordinates
    cosine = None if reason else mean_cosine(before, after)
    overlap = neighbour_overlap(before, after, count) if count else None
    few = "" if count else f"{len(texts)} texts are too few to compare neighbours"
    notes = (reason, few, chat_template_note(network))
    return Agreement(len(texts), compared.source, cosine, overlap, count, "; ".join(filter(None, notes)))


def chat_template_note(network: Network) -> str:
    """How the original is read, where sentence-transformers would read it otherwise; "" for most models."""
    if network.shipped is not None or not getattr(network.preprocessor, "chat_template", None):
        return ""
    return "the original was read without its chat template; SentenceTransformer(MODEL) wraps texts in it"


def neighbour_count(texts: int) -> int:
    """10, or fewer for few texts: at most half of the others, since all of the others would always be the same."""
    return min(NEIGHBOURS, max(0, texts - 1) // 2)


def reason_without_cosine(network: Network, recipe: Recipe, before: Tensor, after: Tensor) -> str:
    """Why the cosine between the two vectors of a text would say nothing; "" where it is meaningful."""
    if before.shape[1] != after.shape[1]:
        return f"no cosine: {after.shape[1]} dimensions, {before.shape[1]} in the original"
    if recipe.transform != "none":
        return f"no cosine: the map {recipe.transform} gives vectors in other coordinates than the original's"
    mapped = (
        [m.kind for m in network.shipped.modules if m.kind not in MODULES_WITHOUT_WEIGHTS] if network.shipped else []
    )
    if mapped and not recipe.shipped:
        return f"no cosine: the original's {mapped[0]} module gives vectors in other coordinates"
    return ""


def mean_cosine(before: Tensor, after: Tensor) -> float:
    """The mean over texts of the cosine between the text's two vectors; both (N, D)."""
    return float(torch.nn.functional.cosine_similarity(before.double(), after.double(), dim=1).mean())


def neighbour_overlap(before: Tensor, after: Tensor, count: int) -> float:
    """The mean share of a text's `count` nearest neighbours by cosine that both models have; widths may differ."""
    one, two = (nearest(rows, count) for rows in (before, after))  # (N, count) each
    shared = (one.unsqueeze(2) == two.unsqueeze(1)).any(dim=2)
    return float(shared.double().mean())


def nearest(rows: Tensor, count: int) -> Tensor:
    """The places of each row's nearest other rows by cosine: (N, count)."""
    unit = torch.nn.functional.normalize(rows.double(), dim=1)
    cosines = unit @ unit.mT
    cosines.fill_diagonal_(-torch.inf)
    return cosines.topk(count, dim=1).indices
