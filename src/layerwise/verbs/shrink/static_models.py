"""shrink --method static: a model without blocks, one vector per token, fitted to give the vectors of the original."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.core.checks import with_dims
from layerwise.core.errors import InputError
from layerwise.core.hub import offline
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.progress import announce, progress_bar
from layerwise.core.recipe import Readout, Recipe
from layerwise.maps.fitted import FittedOn, FittedRecipe, texts_fingerprint
from layerwise.maps.linear import fit_parts
from layerwise.models.layers import choose_layers
from layerwise.models.network import Network
from layerwise.models.readouts import last_recipe
from layerwise.models.shipped import similarity_of
from layerwise.models.static import made_static
from layerwise.verbs.export.agreement import MOST_TEXTS, ComparedTexts
from layerwise.verbs.export.api import texts_to_compare
from layerwise.verbs.export.run import export_fitted
from layerwise.verbs.shrink.bags import (
    add_words,
    bare_tokenizer,
    frequent_words,
    token_bags,
    token_weights,
    vocabulary_size,
)
from layerwise.verbs.shrink.index_advice import check_compatibility, grouped_agreement
from layerwise.verbs.shrink.options import ShrinkOptions
from layerwise.verbs.shrink.static import StaticFit, centered_rows, fit_static, principal_directions, token_rows
from layerwise.verbs.shrink.static_backend import StaticBackend, rounded_rows
from layerwise.verbs.shrink.student import (
    Vectors,
    default_prompt,
    is_unit,
    own_vectors,
    require_own_vectors,
    search_prompts,
)
from layerwise.verbs.shrink.texts import GivenTexts, PromptedText, TextSplit, open_given, split_texts

CHUNK = 512  # texts between two steps of the progress bar
REMEDY = "keep some blocks (--method linear or distill), or add texts like your queries and documents"
TEACHER = "teacher"  # as a map: to the vectors of the model itself


@dataclass(frozen=True)
class StaticModel:
    """A static model to compare with, which runs no block; and the layer and map that its token vectors come from."""

    network: Network
    made_from: Recipe


@dataclass(frozen=True)
class MadeRows:
    """The rows of a static model (V, E), whether their means are scaled to length 1, and how they were made."""

    rows: Tensor
    unit: bool
    record: dict[str, Any]


def require_texts(given: GivenTexts | None, options: ShrinkOptions) -> None:
    """Raises for options that need texts where there are none."""
    needing = [name for name in ("dims", "words") if getattr(options, name)]
    needing += ["transform"] if options.transform != "none" else []
    needing += ["weights"] if options.weights in ("sif", "idf") else []
    if given is None and needing:
        raise InputError(f"--{needing[0]} needs texts of your own kind: pass --data FILE (data=)")


def export_static(
    network: Network, given: GivenTexts | None, out: Path, options: ShrinkOptions, stored: Vectors | None = None
) -> Any:
    """Writes a static model; returns it, loaded on the CPU. `stored` gives the model's vectors where they are kept."""
    require_texts(given, options)
    if given is not None and options.transform == "none":
        require_own_vectors(network)
        similarity_of(network.shipped)  # raises before the fit if it is not known
    with offline():  # sentence-transformers would look the model up on the hub
        static, record, split = make_static(network, given, options, stored)
        if record["space"] == TEACHER and split is not None:
            announce(f"comparing vectors of both models for {len(split.check):,} held-out texts")
            teacher = stored or partial(own_vectors, network, max_length=network.default_length)
            student, of_search = partial(bag_vectors, static), search_prompts(network)
            record["agreement"] = grouped_agreement(
                teacher, student, split, of_search[1] if of_search else default_prompt(network), centered=True
            ).to_record()
            record["compatibility"] = check_compatibility(
                teacher, student, split, similarity_of(network.shipped), of_search, REMEDY
            ).to_record()
    compared = texts_to_compare("demo")
    if split is not None and given is not None:
        compared = ComparedTexts([item.text for item in split.check[:MOST_TEXTS]], given.name)
    return export_fitted(
        static, FittedRecipe(last_recipe(static), static.identity()), out, backend=StaticBackend(options.int8),
        compared=compared, original=network, static=record,
        coordinates="no cosine: " + (
            "the mean of its vectors was subtracted" if record["space"] == TEACHER
            else "its vectors are in other coordinates"
        ),
    )  # fmt: skip


def static_model_of(network: Network, texts: Sequence[str], *, progress: bool = False) -> StaticModel:
    """What `shrink --method static` makes of a model, in memory.

    Of an embedding model, token vectors that are fitted on these texts; of a language model, whitened embeddings.
    """
    made_from = Recipe(network.depth) if network.has_own_vectors else Recipe(0, transform="whiten")
    options = ShrinkOptions(
        network, [*texts], out="", method="static", layer=made_from.layer, transform=made_from.transform,
        progress=progress,
    )  # fmt: skip
    with offline():
        static, _, _ = make_static(network, open_given([*texts]), options)
    return StaticModel(static, made_from)


def make_static(
    network: Network, given: GivenTexts | None, options: ShrinkOptions, stored: Vectors | None = None
) -> tuple[Network, dict[str, Any], TextSplit | None]:
    """The static model, how it was made, and how the texts were divided."""
    require_tokenizer(network.preprocessor, "shrink")
    StaticBackend(options.int8).check_supported(network, last_recipe(network), "portable")
    tokenizer = bare_tokenizer(network.tokenizer, network.name)
    readout = rows_readout(network, options.layer)
    split = None
    if given is not None:
        split = split_texts(given, (default_prompt(network),), options.seed, search_prompts(network))
    made = make_rows(network, tokenizer, readout, given, split, options, stored)
    static = made_static(network.name, made.rows, tokenizer, unit=made.unit)
    return static, made.record | {"rows": len(made.rows), "dimensions": made.rows.shape[1]}, split


def rows_readout(network: Network, layer: int | str) -> Readout:
    """Which vector of an entry is its row: its embedding at layer 0; above it, that of the text that it is alone."""
    (number,) = choose_layers(layer, network.depth) if layer != "last" else (network.depth,)
    if number == 0:
        return Readout(0, tokens="no_special")
    pooling = network.shipped.pooling_choice if network.shipped else network.plain_pooling
    last = number == network.depth and network.has_norm
    return Readout(number, "normed" if last else "raw", "all", pooling or "mean")


def make_rows(
    network: Network, tokenizer: Any, readout: Readout, given: GivenTexts | None, split: TextSplit | None,
    options: ShrinkOptions, stored: Vectors | None = None,
) -> MadeRows:  # fmt: skip
    """The rows: those of the layer, weighted, then mapped or fitted. Adds words to the tokenizer."""
    size = vocabulary_size(tokenizer)
    entries: list[tuple[int, ...]] = [(i,) for i in range(size)]
    texts = [item.text for item in split.fit] if split else []
    if options.words:
        words = frequent_words(tokenizer, texts, options.words)
        entries += [tuple(encoding.ids) for encoding in tokenizer.encode_batch(words, add_special_tokens=False)]
        add_words(tokenizer, words)
    known = network.module.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    entries = [entry if max(entry) < known else (0,) for entry in entries]  # ids that the model has no embedding of
    announce(f"layer {readout.layer} of {len(entries):,} tokens")
    with progress_bar(options.progress, len(entries), "tokens") as on_batch:
        own = token_rows(network, entries, readout, lambda done: on_batch(done, 0))
    bags = token_bags(tokenizer, texts) if split else None
    rows = own * token_weights(options.weights, len(entries), bags).unsqueeze(1)
    record: dict[str, Any] = {
        "layer": readout.layer, "words": len(entries) - size, "weights": options.weights, "map": "none", "space": "own",
        "fitted_on": None, "agreement": None, "compatibility": None, "dtype": "int8" if options.int8 else "float32",
    }  # fmt: skip
    unit = options.normalize
    if split is not None and given is not None:
        assert bags is not None
        record["fitted_on"] = asdict(FittedOn("texts", given.name, texts_fingerprint(texts), len(texts)))
        if options.transform == "none":
            vectors = stored or partial(vectors_with_bar, network, options.progress)
            found, targets = fit_to_teacher(network, tokenizer, rows, split, vectors)
            unit, rows = unit or is_unit(targets, network.dtype), centered_rows(found.rows, bags)
            record |= {"map": TEACHER, "space": TEACHER} | fit_record(found)
            if options.dims is not None:
                require_fewer(options.dims, rows.shape[1])
                rows, record["space"] = rows @ principal_directions(bags.means(rows), options.dims), "own"
        else:
            (linear,) = fit_parts([(options.transform, bags.means(rows))], options.dims)
            rows, record["map"] = linear(rows).float(), with_dims(options.transform, options.dims)
    if options.int8:
        whole, rows = rows, rounded_rows(rows)
        record["int8_cosine"] = float(torch.nn.functional.cosine_similarity(whole, rows, dim=1).min())
    return MadeRows(rows.contiguous(), unit, record)


def require_fewer(dims: int, width: int) -> None:
    if dims > width:
        raise InputError(f"cannot keep {dims} dimensions of vectors that have {width}; use {width} or fewer")


def fit_to_teacher(
    network: Network, tokenizer: Any, rows: Tensor, split: TextSplit, vectors: Vectors
) -> tuple[StaticFit, Tensor]:
    """Rows whose means are like the vectors of the model itself; and those vectors."""
    announce(f"vectors of {Path(network.name).name} for {len(split.fit) + len(split.held_out):,} texts")
    targets, held_targets = vectors(split.fit), vectors(split.held_out)
    announce(f"fitting {len(rows):,} token vectors on {len(split.fit):,} texts")
    bags, held_bags = (token_bags(tokenizer, [item.text for item in part]) for part in (split.fit, split.held_out))
    return fit_static(rows, bags, targets, held_bags, held_targets), targets


def vectors_with_bar(network: Network, progress: bool, texts: Sequence[PromptedText]) -> Tensor:
    """The vectors of the model, some texts at a time."""
    parts = []
    with progress_bar(progress, len(texts), "texts") as on_batch:
        for start in range(0, len(texts), CHUNK):
            parts.append(own_vectors(network, texts[start : start + CHUNK], network.default_length))
            on_batch(len(parts[-1]), 0)
    return torch.cat(parts)


def bag_vectors(static: Network, texts: Sequence[PromptedText]) -> Tensor:
    """The vectors of a static model, which reads texts without their prompts."""
    assert static.head is not None
    return static.head.encode([item.text for item in texts], static.max_length)


def fit_record(found: StaticFit) -> dict[str, Any]:
    """How the rows were fitted, for layerwise.json; `row_penalty` is null where the map alone was better."""
    return {
        "map_penalty": found.map_penalty,
        "map_unexplained": found.map_unexplained,
        "row_penalty": found.row_penalty if found.row_penalty < float("inf") else None,
        "unexplained": found.unexplained,
    }
