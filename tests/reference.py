"""A second implementation of what layerwise reads and measures, in plain transformers and NumPy: the oracle of
test_reference.py, and of eval in test_eval_reference.py.

It imports nothing of layerwise. Each text goes through the model alone, without padding; hidden states are read by
hooks of its own, and every number is computed in float64 straight from its definition, with loops where they are
plainest. Perturbed texts are given to it: they are what `layerwise lab views` shows.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

UNSURE = "unsure"  # a value that depends on rounding errors, such as the angle between two steps of length 1e-16
TINY = 1e-9  # relative; rounding errors in float64 are far below it, real differences far above


@dataclass(frozen=True)
class Read:
    """One text: its token ids, which ids the tokenizer adds, and its hidden states (T, D) by layer, raw and normed."""

    ids: list[int]
    added: set[int]
    opening: int | None
    raw: list[np.ndarray]
    normed: list[np.ndarray]


def read_text(model: Any, tokenizer: Any, blocks: str, norm: str, text: str, max_length: int) -> Read:
    """The text alone in a batch of one. Layer 0 is what enters the first block, k the output of block k."""
    encoded = tokenizer(text, truncation=True, max_length=max_length)
    ids = list(encoded["input_ids"])
    added, opening = added_tokens(tokenizer)
    if not ids:
        return Read([], added, opening, [], [])
    stack = list(model.get_submodule(blocks))
    found: dict[int, torch.Tensor] = {}

    def before_first(module: Any, args: Any, kwargs: Any) -> None:
        found[0] = args[0] if args else kwargs["hidden_states"]

    def after(number: int) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            found[number] = output[0] if isinstance(output, tuple) else output

        return hook

    handles = [stack[0].register_forward_pre_hook(before_first, with_kwargs=True)]
    handles += [block.register_forward_hook(after(k + 1)) for k, block in enumerate(stack)]
    try:
        with torch.no_grad():
            model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
            layers = [found[k].detach().clone() for k in range(len(stack) + 1)]
    finally:
        for handle in handles:
            handle.remove()
    with torch.no_grad():
        normed = [model.get_submodule(norm)(states) for states in layers] if norm else layers
    return Read(ids, added, opening, *([states[0].double().numpy() for states in each] for each in (layers, normed)))


def added_tokens(tokenizer: Any) -> tuple[set[int], int | None]:
    """The ids that the tokenizer's post-processor adds to a text, and the one that it puts first, if it does."""
    encoded = tokenizer("w", return_special_tokens_mask=True)
    ids, mask = encoded["input_ids"], encoded["special_tokens_mask"]
    return {i for i, is_added in zip(ids, mask, strict=True) if is_added}, ids[0] if ids and mask[0] else None


def counted(text: Read, states: np.ndarray, tokens: str) -> list[bool]:
    """Which tokens of a text count."""
    if tokens == "all":
        return [True] * len(text.ids)
    if tokens == "no_first":
        return [place > 0 and i != text.opening for place, i in enumerate(text.ids)]
    if tokens == "no_special":
        return [i not in text.added for i in text.ids]
    norms = [math.sqrt(float(row @ row)) for row in states]
    return [norm <= 10 * float(np.median(norms)) for norm in norms]


def pool(states: np.ndarray, counts: Sequence[bool], pooling: str) -> np.ndarray | None:
    """The vector of a text; None if no token counts."""
    rows = [row for row, counts_too in zip(states, counts, strict=True) if counts_too]
    if not rows:
        return None
    return {"mean": lambda: np.mean(rows, axis=0), "max": lambda: np.max(rows, axis=0),
            "first": lambda: rows[0], "last": lambda: rows[-1]}[pooling]()  # fmt: skip


def vector(text: Read, layer: int, norm: str, tokens: str, pooling: str, width: int) -> np.ndarray:
    """The vector that embed and an exported model give: zeros if no token counts."""
    if not text.ids:
        return np.zeros(width)
    states = (text.raw if norm == "raw" else text.normed)[layer]
    found = pool(states, counted(text, states, tokens), pooling)
    return np.zeros(width) if found is None else found


def mapped(transform: str, fitted_on: Sequence[np.ndarray], rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows after the map of a recipe, fitted on other rows: one matrix (N, D) for the layer, and one for what stands
    beside it. Principal directions have no sign: see `same_signs`."""
    words, _, dims = transform.partition("@")
    word, _, beside = words.partition("+")
    fitted, found = [], []
    for name, fit, each in zip([word, "whiten" if beside == "static" else word], fitted_on, rows, strict=False):
        one, other = linear_map(name, fit, fit), linear_map(name, fit, each)
        scale = math.sqrt(fit.shape[1] / 2 / (one**2).sum(axis=1).mean()) if beside else 1.0
        fitted.append(scale * one)
        found.append(scale * other)
    together = np.concatenate(found, axis=1)
    return together @ principal_directions(np.concatenate(fitted, axis=1))[: int(dims)].T if dims else together


def linear_map(transform: str, fitted_on: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """rows (N, D) after a map that is fitted on other rows."""
    mean = fitted_on.mean(axis=0)
    centred = fitted_on - mean
    name, *numbers = transform.split(":")
    if name == "none":
        return rows
    if name == "center":
        return rows - mean
    if name == "zscore":
        return (rows - mean) / np.sqrt((centred**2).mean(axis=0))
    directions = principal_directions(centred)
    if name == "remove_top":
        top = directions[: int(numbers[0])]
        return (rows - mean) - (rows - mean) @ top.T @ top
    assert name == "whiten"
    scaled = (rows - mean) @ directions.T / np.sqrt(shrunk_variances(centred, *map(float, numbers[:1])))
    return scaled[:, : int(numbers[1])] if len(numbers) == 2 else scaled @ directions


def principal_directions(centred: np.ndarray) -> np.ndarray:
    """One per row, that of the largest variance first; as many as dimensions."""
    return np.linalg.svd(centred, full_matrices=True)[2]


def shrunk_variances(centred: np.ndarray, shrinkage: float = 0.1) -> np.ndarray:
    """The variances along the principal directions, moved towards their mean."""
    width = centred.shape[1]
    variances = np.zeros(width)
    singular = np.linalg.svd(centred, compute_uv=False)
    variances[: len(singular)] = singular**2 / len(centred)
    return (1 - shrinkage) * variances + shrinkage * variances.mean()


def same_signs(expected: np.ndarray, given: np.ndarray) -> np.ndarray:
    """The expected columns, each with the sign of the given one."""
    return expected * np.where((expected * given).sum(axis=0) < 0, -1.0, 1.0)


# ---- metrics


def treated(rows: np.ndarray, treatment: str) -> np.ndarray:
    if treatment.startswith("centered"):
        lengths = np.linalg.norm(rows, axis=1)
        rows = rows - rows.mean(axis=0)
        rows[np.linalg.norm(rows, axis=1) <= TINY * lengths] = 0.0
    if treatment.endswith("unit"):
        lengths = np.linalg.norm(rows, axis=1)
        rows = np.array([row / length if length > 0 else row for row, length in zip(rows, lengths, strict=True)])
    return rows


def eigenvalue_shares(rows: np.ndarray) -> np.ndarray | None:
    """Eigenvalues of the Gram matrix divided by their sum; None if all rows are zero."""
    singular = np.linalg.svd(rows, compute_uv=False)
    return singular**2 / (singular**2).sum() if singular.any() else None


def shannon(shares: np.ndarray) -> float:
    return float(-sum(p * math.log(p) for p in shares if p > 0))


def prompt_entropy(rows: np.ndarray, treatment: str) -> float | None:
    if len(rows) < 2:
        return None
    shares = eigenvalue_shares(treated(rows, treatment))
    return None if shares is None else shannon(shares)


def normalized_prompt_entropy(rows: np.ndarray, treatment: str) -> float | None:
    plain = prompt_entropy(rows, treatment)
    most = min(len(rows) - (1 if treatment.startswith("centered") else 0), rows.shape[1])
    return None if plain is None or most < 2 else plain / math.log(most)


def curvature(states: np.ndarray, counts: Sequence[bool]) -> float | str | None:
    angles = []
    for k in range(len(states) - 2):
        if not all(counts[k : k + 3]):
            continue
        one, two = states[k + 1] - states[k], states[k + 2] - states[k + 1]
        lengths = [float(np.linalg.norm(step)) for step in (one, two)]
        if min(lengths) == 0:
            continue
        if min(lengths) <= TINY * float(np.linalg.norm(states[k])):
            return UNSURE
        one, two = one / lengths[0], two / lengths[1]
        angles.append(2 * math.atan2(float(np.linalg.norm(one - two)), float(np.linalg.norm(one + two))))
    return sum(angles) / len(angles) if angles else None


def of_prompts(metric: str, states: Sequence[tuple[np.ndarray, Sequence[bool]]], treatment: str) -> Any:
    """Value, n and skipped of a metric that is a mean over prompts; UNSURE if one of them is."""
    values: list[Any] = []
    for all_rows, counts in states:
        rows = all_rows[np.array(counts, dtype=bool)] if len(counts) else np.zeros((0, 1))
        if metric == "curvature":
            values.append(curvature(all_rows, counts))
        elif metric == "mean_norm":
            values.append(float(np.mean([np.linalg.norm(row) for row in rows])) if len(rows) else None)
        else:
            function = prompt_entropy if metric == "prompt_entropy" else normalized_prompt_entropy
            values.append(function(rows, treatment))
    if UNSURE in values:
        return UNSURE
    defined = [value for value in values if value is not None]
    return (sum(defined) / len(defined) if defined else math.nan), len(defined), len(values) - len(defined)


def of_dataset(metric: str, rows: np.ndarray, treatment: str) -> Any:
    """Value and n of a metric of all pooled vectors (N, D)."""
    if metric == "anisotropy":
        unit = treated(rows[np.linalg.norm(rows, axis=1) > 0], "unit")
        pairs = [float(unit[i] @ unit[k]) for i in range(len(unit)) for k in range(i)]
        return (sum(pairs) / len(pairs) if pairs else math.nan), len(unit)
    if metric == "intrinsic_dimension":
        return two_nn(rows)
    shares = eigenvalue_shares(treated(rows, treatment)) if len(rows) else None
    if shares is None:
        return math.nan, len(rows)
    if metric == "effective_rank":
        singular = np.sqrt(shares)
        return math.exp(shannon(singular / singular.sum())), len(rows)
    values = {
        "dataset_entropy": lambda: shannon(shares),
        "participation": lambda: 1 / float((shares**2).sum()),
        "top_share": lambda: float(shares.max()),
    }
    return values[metric](), len(rows)


def two_nn(rows: np.ndarray) -> Any:
    """Facco et al. 2017: the slope through the origin, without the largest tenth of the ratios."""
    if len(rows) < 3:
        return math.nan, 0
    ratios = []
    for i, row in enumerate(rows):
        first, second = sorted(float(np.linalg.norm(row - other)) for k, other in enumerate(rows) if k != i)[:2]
        if first <= TINY * float(np.linalg.norm(row)):
            return UNSURE  # a copy of another text: its distance is 0 or a rounding error
        ratios.append(math.log(second / first))
    n = len(ratios)
    kept = sorted(ratios)[: min(int(n * (1 - 0.1)), n - 1)]
    if len(kept) < 2:
        return math.nan, n
    heights = [-math.log(1 - (i + 1) / n) for i in range(len(kept))]
    return sum(x * y for x, y in zip(kept, heights, strict=True)) / sum(x * x for x in kept), n


# ---- metrics of perturbed texts


def sampling_order(ids: Sequence[str]) -> list[int]:
    """Samples are drawn, and blocks are made, in the order of a hash of the ids."""
    hashes = [hashlib.blake2b(i.encode("utf-8", "surrogatepass"), digest_size=8).digest() for i in ids]
    return sorted(range(len(ids)), key=lambda k: int.from_bytes(hashes[k], "little", signed=True))


def of_views(metric: str, ids: Sequence[str], views: Sequence[Sequence[np.ndarray | None]], block: int = 256) -> Any:
    """Value, n and skipped, for the pooled vectors of the perturbed copies of each text; None if no token counts."""
    if metric == "lidar":
        full = [np.array(each) for each in views if all(row is not None for row in each)]
        return (lidar(np.array(full)) if len(full) > 1 else math.nan), len(full), len(views) - len(full)
    defined, skipped = [], []  # places among the texts in their order
    for place, k in enumerate(sampling_order(ids)):
        (skipped if any(row is None for row in views[k][:2]) else defined).append((place, views[k][:2]))
    pairs = np.array([pair for _, pair in defined])
    size = min(block, len(pairs))
    starts = range(0, len(pairs) - size + 1, size) if size else ()
    n = size * len(starts)
    before = len(skipped) if n == len(pairs) else sum(place < defined[n - 1][0] for place, _ in skipped)
    if n < 2:
        return math.nan, n, before
    function = {"infonce": infonce, "dime": dime}[metric]
    values = [function(*np.swapaxes(pairs[start : start + size], 0, 1)) for start in starts]
    return sum(values) / len(values), n, before


def infonce(a: np.ndarray, b: np.ndarray) -> float:
    """Cross-entropy of cosine / 0.1 with the true pair as target, the mean of both directions."""
    logits = treated(a, "unit") @ treated(b, "unit").T / 0.1
    losses = []
    for scores in (logits, logits.T):
        losses += [math.log(sum(math.exp(s - row[i]) for s in row)) for i, row in enumerate(scores)]
    return sum(losses) / len(losses)


def dime(a: np.ndarray, b: np.ndarray) -> float:
    """How much the entropy of the joint Gram matrix grows when one view is shuffled, over ten seeded shuffles."""
    one, two = (treated(rows, "unit") @ treated(rows, "unit").T for rows in (a, b))

    def entropy(kernel: np.ndarray) -> float:
        values = np.linalg.eigvalsh(kernel).clip(min=0)
        return shannon(values / values.sum()) if values.any() else math.nan

    random = np.random.default_rng(0)
    orders = [random.permutation(len(a)) for _ in range(10)]
    return sum(entropy(one * two[np.ix_(order, order)]) for order in orders) / len(orders) - entropy(one * two)


def lidar(views: np.ndarray) -> Any:
    """views (n, q, D): exp of the entropy of the eigenvalues of S_w^(-1/2) S_b S_w^(-1/2)."""
    n, q, width = views.shape
    means = views.mean(axis=1)
    between, within = np.zeros((width, width)), 1e-4 * np.eye(width)
    for mean, copies in zip(means, views, strict=True):
        between += np.outer(mean - means.mean(axis=0), mean - means.mean(axis=0)) / n
        for copy in copies:
            within += np.outer(copy - mean, copy - mean) / (n * q)
    if between.trace() <= TINY**2 * float((means**2).sum(axis=1).max(initial=0.0)):
        return UNSURE if between.any() else math.nan
    variances, directions = np.linalg.eigh(within)
    root = directions / np.sqrt(variances) @ directions.T
    values = np.linalg.eigvalsh(root @ between @ root).clip(min=0)
    return math.exp(shannon(values / values.sum()))
