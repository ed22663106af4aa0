"""Pick: the answer. Which recipe, which layers cannot be told from it, or that the last layer should be kept."""

import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from layerwise.core.display import printable
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import open_folder
from layerwise.core.recipe import Recipe
from layerwise.maps.linear import LinearMap
from layerwise.models.network import Network
from layerwise.runs.folder import write_record
from layerwise.runs.records import PICK
from layerwise.selection.candidates import Scored
from layerwise.selection.probes import LABELS

NORMAL_95 = 1.96
LABELS_MOVE = 1.0  # standard errors by which something must be better with labels than the choice without


@dataclass(frozen=True)
class Difference:
    """How much better one recipe is than another by the probes, in probe points (0 to 100), with its error."""

    mean: float
    error: float

    @property
    def low(self) -> float:
        return self.mean - NORMAL_95 * self.error

    @property
    def high(self) -> float:
        return self.mean + NORMAL_95 * self.error


def difference(one: Scored, other: Scored, weights: Mapping[str, float]) -> Difference:
    """A weighted mean of the probes' paired differences. Probes that share their units are added unit by unit."""
    total = sum(weights.values())
    by_units: dict[tuple[bool, int], Any] = {}
    for name, weight in weights.items():
        gap = 100 * weight / total * (one.units[name] - other.units[name])
        units = name.startswith(LABELS), len(gap)  # labels have units of their own, however many
        by_units[units] = by_units.get(units, 0.0) + gap
    mean = sum(float(gap.mean()) for gap in by_units.values())
    variance = sum(float(gap.var(ddof=1)) / len(gap) for gap in by_units.values())
    return Difference(mean, math.sqrt(variance))


@dataclass(frozen=True)
class Fitted:
    """A map, with what it was fitted for: it must never be used for another recipe or other weights."""

    linear: LinearMap
    recipe: Recipe
    fingerprint: str


@dataclass(frozen=True)
class Pick:
    """A recipe, and what speaks for it."""

    model: str
    fingerprint: str  # of the model's weights, config and tokenizer; "" where it is not known
    recipe: Recipe
    last: Recipe
    rule: str
    why: tuple[str, ...] = ()
    layers_alike: tuple[int, ...] = ()
    gain: Difference | None = None  # over the last layer, by the probes
    expected_gain: Mapping[str, float] = field(default_factory=dict)  # in points of labelled tasks, from the audit
    saving: float = 0.0  # share of the blocks that need not run
    fitted: Fitted | None = field(default=None, compare=False)  # not saved

    def require_same_model(self, network: Network) -> None:
        """Raises where this answer was found on another model: other weights, config or tokenizer."""
        if self.fingerprint != network.fingerprint():
            raise InputError(
                f"that pick was made for {self.model} with other weights, config or tokenizer than {network.name}; "
                "pick again, or name a layer"
            )

    def map_for(self, network: Network) -> LinearMap | None:
        """The map that was fitted for this recipe on that model, if it was."""
        known = self.fitted
        if known is None or known.recipe != self.recipe or known.fingerprint != network.fingerprint():
            return None
        return known.linear

    @property
    def keep_last(self) -> bool:
        return self.recipe.at == self.last.at and self.recipe.transform == "none"

    def to_dict(self) -> dict[str, Any]:
        told = asdict(replace(self, fitted=None)) | {"keep_last": self.keep_last, "why": list(self.why)}
        del told["fitted"]
        told["saving"] = {"blocks": f"{100 * self.saving:.0f} %"} if self.saving else {}
        if self.gain is not None:
            told["gain"] = {"mean": self.gain.mean, "low": self.gain.low, "high": self.gain.high}
        return told

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    def save(self, folder: str | Path) -> Path:
        """Writes pick.json into the folder, new or not; replaces an earlier pick, and no other file."""
        write_record(folder, PICK, self.to_dict())
        return Path(folder) / PICK.file

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The answer that was saved in a folder."""
        place = open_folder(folder)
        data, where = place.read(PICK.file), f"{place}/{PICK.file}"
        make_it = f"run: layerwise pick MODEL --data texts.txt --save {folder}"
        if data is None:
            raise InputError(f"no answer of pick in {str(folder)!r}; {make_it}")
        record = PICK.parse(data, where)
        needed = ("model", "fingerprint", "recipe", "last", "rule", "why")
        if lacking := [name for name in needed if name not in record]:
            raise RunError(f"{where} is no answer of pick (it has no {', '.join(lacking)}); {make_it}")
        recipe, last = (Recipe.from_record(record[name], f"{where}: {name}") for name in ("recipe", "last"))
        return cls(record["model"], record["fingerprint"], recipe, last, record["rule"], tuple(record["why"]))

    def __repr__(self) -> str:
        usual = asdict(Recipe(self.recipe.layer))
        told = [f"{k} {v}" for k, v in asdict(self.recipe).items() if v != usual[k] and k != "max_length"]
        head = "keep the last layer" if self.keep_last else f"use layer {self.recipe.layer}"
        lines = [f"{Path(self.model).name}: {head}" + (f", {', '.join(told)}" if told and not self.keep_last else "")]
        if self.gain is not None and not self.keep_last:
            told_gain = f"{self.gain.mean:+.1f} points over the last layer"
            lines.append(f"  probes: {told_gain}, 95 % {self.gain.low:+.1f} to {self.gain.high:+.1f}")
        if self.expected_gain:
            mean, low, high = (self.expected_gain[name] for name in ("mean", "low", "high"))
            gained = f"the two models it was chosen on gained {mean:.1f} points ({low:.1f} to {high:.1f})"
            lines.append(f"  labelled tasks: {gained}; yours may differ")
        if self.layers_alike:
            lines.append(f"  layers that cannot be told from it: {', '.join(map(str, self.layers_alike))}")
        if self.saving > 0:
            lines.append(f"  {100 * self.saving:.0f} % of the blocks need not run (a portable export keeps one more)")
        return printable("\n".join([*lines, *(f"  {reason}" for reason in self.why)]))

    def _repr_html_(self) -> str:
        (model, answer), *rest = told_rows(repr(self))
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(t)}</td></tr>" for n, t in rest)
        return f"<table><caption>{html.escape(model)}: <b>{html.escape(answer)}</b></caption>{rows}</table>"


def told_rows(told: str) -> list[tuple[str, str]]:
    """Lines of an answer as (name, rest), for a table."""
    pairs = (line.strip().partition(": ") for line in told.splitlines())
    return [(name, rest) for name, _, rest in pairs]


def decide(
    scored: Sequence[Scored],
    last: Recipe,
    weights: Mapping[str, float],
    *,
    margin: float = 0.0,
    deployed: Callable[[Scored], Scored] = lambda best: best,
) -> tuple[Scored, Difference, tuple[int, ...]]:
    """The best candidate by the probes, its gain over the last layer, and the layers that cannot be told from it.

    Without labels, the last layer is kept unless the gain is larger than `margin` points; what is chosen instead is
    used in the form that `deployed` gives it. Labels are of the user's own task: they move that choice to what is
    better with them by more than LABELS_MOVE standard errors, and say in which form it is used.
    """
    (usual,) = [s for s in scored if s.recipe.at == last.at and s.recipe.transform == "none"]
    free = {name: weight for name, weight in weights.items() if not name.startswith(LABELS)}
    best = max(scored, key=lambda s: difference(s, usual, free).mean)
    if not difference(best, usual, free).mean > margin:
        best = usual
    answer = best if best is usual else deployed(best)
    if free != weights:
        rival = max(scored, key=lambda s: difference(s, answer, weights).mean)
        gap = difference(rival, answer, weights)
        if gap.mean > LABELS_MOVE * gap.error:
            best = rival
            answer = max((rival, deployed(rival)), key=lambda s: difference(s, rival, weights).mean)
    chosen = best.recipe
    rivals = [s for s in scored if (s.recipe.transform, s.recipe.tokens) == (chosen.transform, chosen.tokens)]
    alike = [s.recipe.layer for s in rivals if s is not best and difference(best, s, weights).low <= 0]
    return answer, difference(answer, usual, weights), tuple(alike)
