"""The table of layers behind a pick: what each scores, how it differs from the last layer, and how long it takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any, Self

from layerwise.core.columns import in_columns
from layerwise.core.errors import RunError
from layerwise.core.recipe import Recipe
from layerwise.passes.timing import RelativeTime
from layerwise.verbs.pick.candidates import ScoredRecipe
from layerwise.verbs.pick.decision import Decision, Gain, difference, same_form

MOST_ROWS = 16  # of the table as text
MOST_ALIKE = 8  # layers of the table as text that are shown because they score the same within noise


@dataclass(frozen=True)
class PickedLayer:
    """One layer that `pick` compared.

    Attributes:
        layer: its number; 0 is what enters the first block.
        transform: the linear map that it was scored with, such as `none` or `remove_top:3`.
        scores: its score by each probe, 0 to 100, by the name of the probe.
        gain: how much better it scores than the last layer as it is, with its error.
        relative_time: time of the layer's default export on texts of about 20 tokens, with the template; 1.0 is the
            whole model without it. None where not measured.
        unsteady_time: True if its repeats disagreed.
        same_within_noise: True if it scores the same within noise as the best candidate, or is that candidate.
    """

    layer: int
    transform: str
    scores: Mapping[str, float]
    gain: Gain
    relative_time: float | None = None
    unsteady_time: bool = False
    same_within_noise: bool = False

    def to_record(self) -> dict[str, Any]:
        """The row as a JSON object."""
        return asdict(self) | {"scores": dict(self.scores), "gain": gain_record(self.gain)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str) -> Self:
        """Reads a JSON object whose types were checked; raises RunError if a field is missing.

        Args:
            record: the object.
            where: its file, for error messages.
        """
        needed = ("layer", "transform", "scores", "gain")
        if lacking := [name for name in needed if name not in record]:
            raise RunError(f"{where} is damaged (no {', '.join(lacking)}); pick again")
        if not all(isinstance(score, int | float) for score in record["scores"].values()):
            raise RunError(f"{where} is damaged (a score is no number); pick again")
        gain = gain_from_record(record["gain"], f"{where}: gain")
        words = {
            name: record[name] for name in ("relative_time", "unsteady_time", "same_within_noise") if name in record
        }
        return cls(record["layer"], record["transform"], record["scores"], gain, **words)


def gain_record(gain: Gain) -> dict[str, float]:
    return {"mean": gain.mean, "error": gain.error, "low": gain.low, "high": gain.high}


def gain_from_record(record: Mapping[str, float], where: str) -> Gain:
    """From a JSON object whose types were checked."""
    if lacking := [name for name in ("mean", "error") if name not in record]:
        raise RunError(f"{where} is damaged (no {', '.join(lacking)}); pick again")
    return Gain(record["mean"], record["error"])


def picked_layers(
    decision: Decision, scored: Sequence[ScoredRecipe], time_of: Callable[[Recipe], RelativeTime]
) -> tuple[PickedLayer, ...]:
    """A row for each layer with the map and template that were chosen; then one for the last layer as it is."""
    best = {id(s) for s in (decision.quality, *decision.alike)}
    rows, compared = [], same_form(scored, decision.chosen)
    has_last = any(candidate is decision.last for candidate in compared)
    for candidate in compared if has_last else [*compared, decision.last]:
        # What was chosen may be used with token embeddings beside it, which labels judge.
        used = decision.answer if candidate is decision.chosen else candidate
        time = RelativeTime(1.0, 1.0, 1.0) if candidate is decision.last else time_of(candidate.recipe)
        rows.append(
            replace(
                picked_row(used, decision), transform=candidate.recipe.transform, relative_time=time.ratio,
                unsteady_time=time.unsteady, same_within_noise=id(candidate) in best,
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: row.layer))  # stable: the last layer as it is comes last


def picked_row(scored: ScoredRecipe, decision: Decision) -> PickedLayer:
    """The row of a candidate, without its time."""
    scores = {name: 100 * scored.mean(name) for name in decision.weights}
    gain = difference(scored, decision.last, decision.weights)
    return PickedLayer(scored.recipe.layer, scored.recipe.transform, scores, gain)


def rows_to_show(rows: Sequence[PickedLayer], layer: int) -> list[PickedLayer]:
    """All rows if they are few; else the chosen one, some that score the same, every k-th and the last."""
    if len(rows) <= MOST_ROWS:
        return [*rows]
    alike = [row for row in rows if row.same_within_noise]
    chosen = [row for row in rows if row.layer == layer]
    fixed = {id(row) for row in (*alike[:: 1 + len(alike) // MOST_ALIKE], *chosen, rows[-1])}
    for step in count(2):
        shown = [row for place, row in enumerate(rows) if id(row) in fixed or place % step == 0]
        if len(shown) <= MOST_ROWS or step > len(rows):
            return shown
    raise AssertionError("a step larger than the number of rows always returns")


def cells(rows: Sequence[PickedLayer], layer: int, static_model: PickedLayer | None = None) -> list[list[str]]:
    """The table as text, cell by cell, headings first; `layer` is the chosen one. A static model is the last row."""
    probes = list(rows[0].scores)
    separate_last = len(rows) > 1 and rows[-2].layer == rows[-1].layer  # a row of its own for the layer as it is
    found = [["layer", *probes, "difference (95 %)", "time", ""]]
    for row in rows:
        is_last = row is rows[-1]
        chosen = row.layer == layer and not (is_last and separate_last)
        note = "chosen" if chosen else "same" if row.same_within_noise else ""
        time = "" if row.relative_time is None else f"{row.relative_time:.2f}{'?' if row.unsteady_time else ''}"
        gain = "0.0" if is_last else str(row.gain)
        found.append(["last" if is_last else str(row.layer), *rounded(row), gain, time, note])
    if static_model is not None:
        found.append(["static", *rounded(static_model), str(static_model.gain), "", ""])
    return found


def rounded(row: PickedLayer) -> list[str]:
    return [f"{score:.1f}" for score in row.scores.values()]


def as_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """The cells in columns; numbers to the right, the note at the end to the left."""
    return in_columns(table, right=range(len(table[0]) - 1))
