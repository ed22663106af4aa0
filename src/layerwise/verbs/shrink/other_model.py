"""Another embedding model as the student: a linear map takes its vectors to those of the original."""

from collections.abc import Sequence
from typing import Any

from layerwise.core.errors import InputError, ModelError
from layerwise.core.progress import announce
from layerwise.maps.alignment import Alignment, fit_alignment
from layerwise.maps.linear import LinearMap
from layerwise.models.modules import as_sentence_transformer, linear_module
from layerwise.models.network import Network
from layerwise.models.opening import open_network
from layerwise.models.spec import ModelLike
from layerwise.verbs.shrink.student import (
    NOT_COPIED,
    Teacher,
    Vectors,
    default_prompt,
    require_own_vectors,
    search_prompts,
)
from layerwise.verbs.shrink.texts import PromptedText, TextSplit

REMEDY = "use another model as the student, or add texts like your queries and documents"


def open_student(model: ModelLike, teacher: Network) -> Network:
    """The other model; raises where no map can follow its vectors."""
    network = open_network(model)
    require_own_vectors(network)
    if network.fingerprint() == teacher.fingerprint():
        raise InputError(f"--student {network.name} is the model itself; pass another one")
    if (head := network.head) is not None:
        if (reason := head.shipped.own_encode_reason).startswith(NOT_COPIED):
            raise ModelError(f"{network.name} cannot be the student: {reason}")
        if head.shipped.dimensions is not None:
            raise ModelError(f"{network.name} cannot be the student: it cuts its vectors at the end (truncate_dim)")
    return network


def read_by(student: Network, vectors: Vectors) -> Vectors:
    """The student's vectors of texts that are given with the original's prompts: it reads them with its own."""
    of_search = search_prompts(student)
    prompts = dict(zip(("query", "document"), of_search or (), strict=False))
    default = default_prompt(student)

    def found(texts: Sequence[PromptedText]) -> Any:
        return vectors([item._replace(prompt=prompts.get(item.kind, default)) for item in texts])

    return found


def fit_map_of(teacher: Teacher, own: Vectors, split: TextSplit, name: str) -> Alignment:
    """The map from the student's vectors to the original's."""
    announce(f"fitting the map of {name} on {len(split.fit):,} texts")
    return fit_alignment(
        own(split.fit), teacher.vectors(split.fit), own(split.held_out), teacher.vectors(split.held_out)
    )


def with_map(student: Network, linear: LinearMap, *, unit: bool) -> Any:
    """The student as a SentenceTransformer whose vectors are those of the map."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    whole = as_sentence_transformer(student, student.default_length)
    modules = [*whole.children(), linear_module(linear.weight, linear.bias, student.dtype)]
    return SentenceTransformer(
        modules=[*modules, *([Normalize()] if unit else [])], device=str(student.device), prompts=dict(whole.prompts),
        default_prompt_name=whole.default_prompt_name,
    ).eval()  # fmt: skip
