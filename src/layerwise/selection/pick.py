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
from layerwise.core.files import Folder, open_folder
from layerwise.core.recipe import Recipe
from layerwise.maps.fitted import RECIPE_FILE, AnyRecipe, FittedRecipe, require_recipe_place
from layerwise.models.network import Network
from layerwise.models.opening import same_model
from layerwise.runs.folder import require_place_for, write_record
from layerwise.runs.identity import ModelRef
from layerwise.runs.records import PICK
from layerwise.selection.candidates import Scored
from layerwise.selection.probes import LABELS

NORMAL_95 = 1.96
LABELS_MOVE = 1.0  # standard errors by which something must be better with labels than the choice without


@dataclass(frozen=True)
class Gain:
    """How much better one recipe is than another by the probes, in probe points (0 to 100), with its error."""

    mean: float
    error: float

    @property
    def low(self) -> float:
        return self.mean - NORMAL_95 * self.error

    @property
    def high(self) -> float:
        return self.mean + NORMAL_95 * self.error


def difference(one: Scored, other: Scored, weights: Mapping[str, float]) -> Gain:
    """A weighted mean of the probes' paired differences. Probes that share their units are added unit by unit."""
    total = sum(weights.values())
    by_units: dict[tuple[bool, int], Any] = {}
    for name, weight in weights.items():
        gap = 100 * weight / total * (one.units[name] - other.units[name])
        units = name.startswith(LABELS), len(gap)  # labels have units of their own, however many
        by_units[units] = by_units.get(units, 0.0) + gap
    mean = sum(float(gap.mean()) for gap in by_units.values())
    variance = sum(float(gap.var(ddof=1)) / len(gap) for gap in by_units.values())
    return Gain(mean, math.sqrt(variance))


@dataclass(frozen=True)
class Pick:
    """A recipe, and what speaks for it."""

    model: ModelRef  # without a fingerprint where it is not known
    recipe: Recipe
    last: Recipe
    rule: str
    why: tuple[str, ...] = ()
    layers_alike: tuple[int, ...] = ()
    gain: Gain | None = None  # over the last layer, by the probes
    expected_gain: Mapping[str, float] = field(default_factory=dict)  # in points of labelled tasks, from the audit
    saving: float = 0.0  # share of the blocks that need not run
    fitted: FittedRecipe | None = field(default=None, compare=False)  # with the weights of its map, if it has one

    def deployed(self, network: Network) -> AnyRecipe:
        """The recipe for that model, with its map if it has one; raises where this answer was found on another model.

        A map belongs to the recipe that it was fitted for: one that was changed since must be fitted again.
        """
        if not same_model(network, self.model):
            raise InputError(
                f"that pick was made for {self.model.name} with other weights, config or tokenizer than "
                f"{network.name}; pick again, or name a layer"
            )
        return self.fitted if self.fitted is not None and self.fitted.recipe == self.recipe else self.recipe

    @property
    def keep_last(self) -> bool:
        return self.recipe.readout == self.last.readout and self.recipe.transform == "none"

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data; `fitted` names the weights of its map, which are in a file of their own."""
        record = asdict(replace(self, fitted=None)) | {"keep_last": self.keep_last, "why": list(self.why)}
        record["model"] = self.model.to_record()
        record["fitted"] = self.fitted.identity if self.fitted else None
        record["saving"] = {"blocks": f"{100 * self.saving:.0f} %"} if self.saving else {}
        if self.gain is not None:
            record["gain"] = {"mean": self.gain.mean, "low": self.gain.low, "high": self.gain.high}
        return record

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    def save(self, folder: str | Path) -> Path:
        """Writes pick.json into the folder, new or not, and recipe.safetensors where there is a map.

        Replaces an earlier pick, and no other file.
        """
        require_place(folder)
        if self.fitted is not None:
            self.fitted.save(folder)
        write_record(folder, PICK, self.to_dict())
        if self.fitted is None:
            open_folder(folder).delete([RECIPE_FILE])  # of an earlier pick
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
        needed = ("model", "recipe", "last", "rule", "why")
        if lacking := [name for name in needed if name not in record]:
            raise RunError(f"{where} is no answer of pick (it has no {', '.join(lacking)}); {make_it}")
        recipe, last = (Recipe.from_record(record[name], f"{where}: {name}") for name in ("recipe", "last"))
        fitted = load_fitted(place, record.get("fitted"))
        model = ModelRef.from_record(record["model"], f"{where}: model")
        return cls(model, recipe, last, record["rule"], tuple(record["why"]), fitted=fitted)

    def __repr__(self) -> str:
        (model, answer), *rest = self.rows()
        lines = [f"{model}: {answer}", *(f"  {name}: {text}" if name else f"  {text}" for name, text in rest)]
        return printable("\n".join(lines))

    def _repr_html_(self) -> str:
        escaped = [[html.escape(printable(cell)) for cell in row] for row in self.rows()]
        (model, answer), *rest = escaped
        rows = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in rest)
        return f"<table><caption>{model}: <b>{answer}</b></caption>{rows}</table>"

    def rows(self) -> list[tuple[str, str]]:
        """The answer as rows (name, text): the model and what to do first, then what speaks for it, some unnamed."""
        usual = asdict(Recipe(self.recipe.layer))
        unusual = [f"{k} {v}" for k, v in asdict(self.recipe).items() if v != usual[k] and k != "max_length"]
        answer = "keep the last layer" if self.keep_last else ", ".join([f"use layer {self.recipe.layer}", *unusual])
        rows = [(Path(self.model.name).name, answer)]
        if self.gain is not None and not self.keep_last:
            interval = f"95 % {self.gain.low:+.1f} to {self.gain.high:+.1f}"
            rows.append(("probes", f"{self.gain.mean:+.1f} points over the last layer, {interval}"))
        if self.expected_gain:
            mean, low, high = (self.expected_gain[name] for name in ("mean", "low", "high"))
            gained = f"the two models it was chosen on gained {mean:.1f} points ({low:.1f} to {high:.1f})"
            rows.append(("labelled tasks", f"{gained}; yours may differ"))
        if self.layers_alike:
            rows.append(("layers that cannot be told from it", ", ".join(map(str, self.layers_alike))))
        if self.saving > 0:
            share = f"{100 * self.saving:.0f} % of the blocks need not run"
            rows.append(("", f"{share} (a portable export keeps one more)"))
        return [*rows, *(("", reason) for reason in self.why)]


def require_place(folder: str | Path) -> None:
    """Raises where an answer cannot be saved in the folder, before anything is computed."""
    require_place_for(folder, PICK)
    require_recipe_place(folder)


def load_fitted(place: Folder, identity: str | None) -> FittedRecipe | None:
    """The weights that a saved answer names; None where it names none, or they were not copied with it."""
    if identity is None or (data := place.read(RECIPE_FILE)) is None:
        return None
    found = FittedRecipe.from_bytes(data, f"{place}/{RECIPE_FILE}")
    if found.identity != identity:
        raise RunError(f"{place}/{RECIPE_FILE} does not belong to the {PICK.file} beside it; pick again")
    return found


def decide(
    scored: Sequence[Scored],
    last: Recipe,
    weights: Mapping[str, float],
    *,
    margin: float = 0.0,
    deployed: Callable[[Scored], Scored] = lambda best: best,
) -> tuple[Scored, Gain, tuple[int, ...]]:
    """The best candidate by the probes, its gain over the last layer, and the layers that cannot be told from it.

    Without labels, the last layer is kept unless the gain is larger than `margin` points; what is chosen instead is
    used in the form that `deployed` gives it. Labels are of the user's own task: they move that choice to what is
    better with them by more than LABELS_MOVE standard errors, and say in which form it is used.
    """
    (usual,) = [s for s in scored if s.recipe.readout == last.readout and s.recipe.transform == "none"]
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
