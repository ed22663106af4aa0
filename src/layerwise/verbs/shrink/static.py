"""A static model: one vector per entry of the vocabulary, fitted so that their mean is like the teacher's vector.

Everything is in closed form or by conjugate gradients: first a linear map from the mean of the tokens' own vectors to
the teacher's, then the vectors themselves, which are kept near what the map gives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerwise.core.recipe import Readout
from layerwise.inputs.processor import make_prepared
from layerwise.inputs.source import Example
from layerwise.maps.ridge import fit_ridge
from layerwise.models.network import Network
from layerwise.passes.tapped_pass import run_pass
from layerwise.passes.vectors import PoolingConsumer, require_finite_vectors
from layerwise.verbs.shrink.bags import Bags

BATCH_TOKENS = 4096
SAMPLE = "word"
Entry = tuple[int, ...]  # the token ids of an entry: one, or those of an added word


def token_rows(
    network: Network, entries: Sequence[Entry], readout: Readout, on_batch: Callable[[int], None] = lambda done: None
) -> Tensor:
    """One row per entry (V, D): the readout of a text that is this entry, with the tokens that every text gets."""
    before, after = added_tokens(network.tokenizer)
    examples = [Example(str(i), str(i)) for i in range(len(entries))]
    prepared = [
        make_prepared(example, ((*before, *entry, *after),), [len(before) + len(entry) + len(after)])
        for example, entry in zip(examples, entries, strict=True)
    ]
    consumer = PoolingConsumer(network, [readout], on_batch)
    run_pass(network, prepared, {readout.layer}, BATCH_TOKENS, consumer)
    found = {readout: consumer.rows[readout].take([consumer.places[example.key] for example in examples])}
    require_finite_vectors(found, examples, network.dtype)
    return found[readout].float()


def added_tokens(tokenizer: Any) -> tuple[Entry, Entry]:
    """The special tokens that the tokenizer puts before and after a text."""
    plain = list(tokenizer(SAMPLE, add_special_tokens=False)["input_ids"])
    whole = list(tokenizer(SAMPLE)["input_ids"])
    places = [i for i in range(len(whole) - len(plain) + 1) if whole[i : i + len(plain)] == plain]
    first = places[0] if plain and places else 0
    return tuple(whole[:first]), tuple(whole[first + len(plain) :])


# relative to the mean share of a token; inf keeps what the map gives
ROW_PENALTIES = (float("inf"), 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
CHOOSING_DIRECTIONS = 32  # of the teacher's space, at random, on which the penalty is chosen
TOLERANCE, MOST_STEPS = 1e-3, 60  # of conjugate gradients


@dataclass(frozen=True)
class StaticFit:
    """The rows of a static model (vocabulary, E), and how they were fitted."""

    rows: Tensor
    map_penalty: float
    map_unexplained: float  # share of the variance of held-out targets that the map leaves
    row_penalty: float  # inf: the rows are what the map gives
    unexplained: float  # the same for the fitted rows


def fit_static(rows: Tensor, bags: Bags, targets: Tensor, held_bags: Bags, held_targets: Tensor) -> StaticFit:
    """The rows whose means are nearest to the targets (N, E); both penalties have the least error on held-out texts."""
    held_means = held_bags.means(rows)
    mapped = fit_ridge(bags.means(rows), targets, held_means, held_targets)
    start = mapped.linear(rows).float()
    directions = random_directions(targets.shape[1])
    narrow = start @ directions
    variance = float((held_targets - targets.mean(dim=0)).square().sum())
    errors: dict[float, float] = {}
    fitted = narrow
    for penalty in ROW_PENALTIES:
        if penalty < float("inf"):
            fitted = fit_rows(narrow, bags, targets @ directions, penalty, fitted)
        errors[penalty] = float((held_bags.means(fitted) - held_targets @ directions).square().sum())
        if len(errors) > 2 and errors[penalty] > sorted(errors.values())[1]:
            break  # the error rises again
    best = min(errors, key=errors.__getitem__)
    if best < float("inf"):
        start = fit_rows(start, bags, targets, best, start)
    left = float((held_bags.means(start) - held_targets).square().sum())
    return StaticFit(start, mapped.penalty, mapped.unexplained, best, left / variance if variance else 0.0)


def random_directions(width: int) -> Tensor:
    """Orthonormal directions (width, CHOOSING_DIRECTIONS), or all of a narrow space."""
    generator = torch.Generator().manual_seed(0)
    directions: Tensor = torch.linalg.qr(torch.randn(width, min(width, CHOOSING_DIRECTIONS), generator=generator)).Q
    return directions


def fit_rows(near: Tensor, bags: Bags, targets: Tensor, penalty: float, start: Tensor) -> Tensor:
    """The rows R with the least |means(R) - targets|^2 + weight |R - near|^2, by conjugate gradients from `start`.

    The weight is `penalty` times the number of texts per entry of the vocabulary. A token that no text has stays.
    """
    weight = penalty * len(targets) / len(near)
    found = start.clone()
    residual = torch.sparse.mm(bags.transposed, targets - bags.means(found)) - weight * (found - near)
    direction, size = residual.clone(), residual.square().sum(dim=0)
    enough = TOLERANCE**2 * torch.sparse.mm(bags.transposed, targets - bags.means(near)).square().sum()
    for _ in range(MOST_STEPS):
        if float(size.sum()) <= float(enough):
            break
        image = torch.sparse.mm(bags.transposed, bags.means(direction)) + weight * direction
        step = size / (direction * image).sum(dim=0).clamp(min=1e-30)
        found += step * direction
        residual -= step * image
        new_size = residual.square().sum(dim=0)
        direction = residual + (new_size / size.clamp(min=1e-30)) * direction
        size = new_size
    return found


def centered_rows(rows: Tensor, bags: Bags) -> Tensor:
    """The rows, shifted so that the vectors of these texts have mean 0.

    The vectors of many embedding models have a large mean in common. A static model gives less of what differs between
    texts, so the mean would hide it.
    """
    return rows - bags.means(rows).mean(dim=0)


def principal_directions(vectors: Tensor, count: int) -> Tensor:
    """The directions (E, count) that keep most of the dot products of these vectors (N, E); nothing is subtracted."""
    double = vectors.double()
    directions: Tensor = torch.linalg.eigh(double.mT @ double).eigenvectors
    return directions.flip(1)[:, :count].float()
