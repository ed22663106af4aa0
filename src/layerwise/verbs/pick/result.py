"""Pick: the answer. Which recipe to use or that the last layer should be kept, with the evidence for it."""

import html
import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from layerwise.core.columns import WIDTH
from layerwise.core.display import printable
from layerwise.core.errors import RunError
from layerwise.core.files import open_folder
from layerwise.core.preprocessors import InputKind
from layerwise.core.recipe import Recipe
from layerwise.inputs.timed_texts import TIMED_LENGTHS
from layerwise.maps.fitted import RECIPE_FILE, require_recipe_folder
from layerwise.runs.folder import require_record_folder, write_record
from layerwise.runs.records import PICK
from layerwise.verbs.export.chosen import ChosenRecipe
from layerwise.verbs.pick.decision import Decision, points, signed
from layerwise.verbs.pick.decision import Gain as Gain
from layerwise.verbs.pick.options import Prefer
from layerwise.verbs.pick.picked_layers import PickedLayer as PickedLayer
from layerwise.verbs.pick.picked_layers import as_lines, cells, gain_from_record, gain_record, rows_to_show
from layerwise.verbs.pick.probes import MEANINGS, OF_MEDIA, PARTNER


@dataclass(frozen=True)
class Pick(ChosenRecipe):
    """Which layer or recipe to use, and the evidence for it. `print` shows it; a notebook shows a table of all layers.

    Attributes:
        model: the model it was chosen for; without a fingerprint where that is not known.
        recipe: what to use: layer, tokens, pooling and linear map. `export` takes the whole Pick.
        last: the model's last layer, which everything was compared with.
        rule: the name of the rule that chose.
        why: sentences about the choice and its evidence.
        fitted: the recipe with the weights of its map; None where it has no map.
        layers_alike: other layers that score the same within noise as the best; a lower one is faster.
        gain: how much better the recipe scores than the last layer on the probes; None where no probe was run.
        prefer: `quality` or `fast`, as it was called with.
        judged_on: what the probes were scored on, such as `126 bundled test sentences`.
        layers: the table of all layers, with the same linear map; empty where no probe was run.
        options: how pick was called, as JSON values.
        static_model: how a static model scores, and the layer and map that it was made from; None where not compared.
        input_kind: what the model takes: `text`, `audio` or `image`.
        decision: the scores of each unit that it rests on; not saved, so None where it was read from a file.

    Example:
        >>> found = layerwise.pick(model, max_length=32)
        >>> [row.layer for row in found.layers][:3]
        [0, 1, 2]
        >>> layerwise.verbs.pick.result.Pick.load(found.save(folder / "picked").parent).recipe == found.recipe
        True
    """

    layers_alike: tuple[int, ...] = ()
    gain: Gain | None = None
    prefer: Prefer = "quality"
    judged_on: str = ""
    layers: tuple[PickedLayer, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    static_model: PickedLayer | None = None
    input_kind: InputKind = "text"
    decision: Decision | None = field(default=None, compare=False, repr=False)

    @property
    def saving(self) -> float:
        """Share of the blocks that need not run."""
        return 1 - self.recipe.layer / self.last.layer if self.last.layer else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, as in pick.json; `fitted` is a hash of the weights of its map."""
        return (
            {
                "model": self.model.to_record(),
                "recipe": asdict(self.recipe),
                "last": asdict(self.last),
                "rule": self.rule,
                "keep_last": self.keep_last,
                "prefer": self.prefer,
                "why": list(self.why),
                "judged_on": self.judged_on,
                "gain": None if self.gain is None else gain_record(self.gain),
                "layers_alike": list(self.layers_alike),
                "saving": {name: f"{100 * share:.0f} %" for name, share in self._savings().items()},
                "layers": [row.to_record() for row in self.layers],
                "fitted": self.fitted.identity if self.fitted else None,
                "options": dict(self.options),
            }
            | ({} if self.input_kind == "text" else {"input_kind": self.input_kind})
            | ({} if self.static_model is None else {"static_model": self.static_model.to_record()})
        )

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def save(self, folder: str | Path) -> Path:
        """Writes pick.json, and recipe.safetensors where there is a map. Replaces an earlier pick, but no other file.

        Args:
            folder: where to write; it may be new, or the folder of a run.

        Returns:
            The path of pick.json.

        Raises:
            RunError: if a file of one of these names is there that layerwise did not write.
        """
        require_pick_folder(folder)
        if self.fitted is not None:
            self.fitted.save(folder)
        write_record(folder, PICK, self.to_dict())
        if self.fitted is None:
            open_folder(folder).delete([RECIPE_FILE])  # from an earlier pick
        return Path(folder) / PICK.file

    @classmethod
    def _fields_of_record(cls, record: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The fields, all but the map, from the record of a pick."""
        prefer, gain, static = record["prefer"], record["gain"], record.get("static_model")
        if prefer not in get_args(Prefer):
            raise RunError(f"{where} is damaged (prefer {prefer!r}); run pick again")
        if record.get("input_kind", "text") not in get_args(InputKind):
            raise RunError(f"{where} is damaged (input_kind {record['input_kind']!r}); run pick again")
        rows = enumerate(record["layers"])
        return super()._fields_of_record(record, where) | {
            "layers_alike": tuple(record["layers_alike"]),
            "gain": None if gain is None else gain_from_record(gain, f"{where}: gain"),
            "prefer": prefer,
            "judged_on": record["judged_on"],
            "layers": tuple(PickedLayer.from_record(row, f"{where}: layers[{i}]") for i, row in rows),
            "options": record.get("options", {}),
            "input_kind": record.get("input_kind", "text"),
            "static_model": None if static is None else PickedLayer.from_record(static, f"{where}: static_model"),
        }

    def __repr__(self) -> str:
        return self.describe(self.next_step())

    def describe(self, next_step: str = "") -> str:
        """The answer as text within 80 columns: what to do, the evidence, the table of layers, and what to do next.

        Args:
            next_step: what the text ends with; nothing by default. It is never wrapped, so that it can be copied.

        Returns:
            Several lines.
        """
        lines = textwrap.wrap(self._headline(), WIDTH)
        for fact in self._facts():
            lines += textwrap.wrap(fact, WIDTH, initial_indent="  ", subsequent_indent="    ")
        if self.layers:
            shown = rows_to_show(self.layers, self.recipe.layer)
            lines += ["", *as_lines(cells(shown, self.recipe.layer, self.static_model))]
            if len(shown) < len(self.layers):
                lines.append(f"{len(shown)} of {len(self.layers)} rows are shown; --json (to_dict()) has all of them")
            for note in self._notes():
                lines += textwrap.wrap(note, WIDTH, subsequent_indent="  ")
        return printable("\n".join([*lines, *([next_step] if next_step else [])]))

    def _repr_html_(self) -> str:
        def escaped(text: str) -> str:
            return html.escape(printable(text))

        facts = "".join(f"<tr><td>{escaped(fact)}</td></tr>" for fact in self._facts())
        page = f"<table><caption><b>{escaped(self._headline())}</b></caption>{facts}</table>"
        if self.layers:
            head, *rows = cells(self.layers, self.recipe.layer, self.static_model)
            top = "".join(f"<th>{escaped(cell)}</th>" for cell in head)
            body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
            page += f"<table><tr>{top}</tr>{body}</table><p>{'<br>'.join(map(escaped, self._notes()))}</p>"
        return page + f"<p>{escaped(self.next_step())}</p>"

    def next_step(self) -> str:
        """What to do next, as one line of Python."""
        if self.keep_last and self.input_kind != "text":
            return f"next: keep using {self.model.name} as it is"
        if self.input_kind == "audio":
            words = [f'"{self.model.name}"', "clips", f"layers={self.recipe.layer}"]
            words += [f'pooling="{self.recipe.pooling}"'] if self.recipe.pooling != "mean" else []
            mapped = "" if self.recipe.transform == "none" else ", then picked.fitted.combined_map"
            return f"next: layerwise.embed({', '.join(words)}){mapped}; speech models cannot be exported"
        if self.keep_last:
            fast = "" if self.prefer == "fast" else 'pick(..., prefer="fast") or '
            shrink = f'layerwise.shrink("{self.model.name}", texts, "small")'
            return f"next: keep using {self.model.name} as it is; if speed matters more: {fast}{shrink}"
        fit = ", fit=texts" if self.recipe.transform != "none" and self.fitted is None else ""
        return f'next: layerwise.export("{self.model.name}", picked, "embedder"{fit})'

    def _headline(self) -> str:
        name, depth = Path(self.model.name).name, self.last.layer
        if self.keep_last:
            return f"{name}: keep the last layer ({depth})"
        usual = asdict(Recipe(self.recipe.layer))
        unusual = [f"{k} {v}" for k, v in asdict(self.recipe).items() if v != usual[k] and k != "max_length"]
        return ", ".join([f"{name}: use layer {self.recipe.layer} of {depth}", *unusual])

    def _facts(self) -> list[str]:
        """The evidence, a sentence each."""
        facts = []
        if self.gain is not None and not self.keep_last:
            on = self.judged_on or "the probes"
            interval = f"95 %: {points(self.gain.low)} to {points(self.gain.high)}"
            facts.append(f"on {on}: {signed(self.gain.mean)} points over the last layer ({interval})")
        if self.layers_alike:
            faster = " (--prefer fast takes the lowest)" if self._has_faster() else ""
            facts.append(f"layers that score the same within noise: {', '.join(map(str, self.layers_alike))}{faster}")
        if self.saving > 0:
            blocks, free = self.last.layer, self.last.layer - self.recipe.layer
            removed = f"; the default export removes {free - 1 or 'none'} of them, --mode compact {free}"
            facts.append(f"{free} of {blocks} blocks are not needed{'' if self.input_kind == 'audio' else removed}")
        return [*facts, *self.why]

    def _has_faster(self) -> bool:
        return self.prefer == "quality" and min(self.layers_alike) < self.recipe.layer

    def _savings(self) -> dict[str, float]:
        """Shares of the blocks; a portable export keeps one block more than it needs."""
        if self.saving <= 0:
            return {}
        portable = max(0.0, self.saving - 1 / self.last.layer)
        return {"blocks": self.saving, "blocks removed by a portable export": portable}

    def _notes(self) -> list[str]:
        """What the columns of the table mean."""
        transform = self.layers[0].transform
        meanings = MEANINGS if self.input_kind == "text" else {**MEANINGS, PARTNER: OF_MEDIA}
        notes = [f"{name}: {meanings[name]}" for name in self.layers[0].scores if name in meanings]
        *probes, final = self.layers[0].scores
        names = f"{', '.join(probes)} and {final}" if probes else final
        notes.append(f"difference: mean of {names}, minus that of `last`")
        others = [] if transform == "none" else [f"the map {transform}"]
        others += ["the template"] if self.recipe.template != self.last.template else []
        if others:
            notes.append(f"last: the last layer unchanged; all other rows use {' and '.join(others)}")
        if self.layers_alike:
            notes.append("same: scores the same as the best within noise")
        if self.layers[0].relative_time is not None:
            seconds = "CPU time" if self.model.device == "cpu" else "time"
            export = {
                "text": f"{seconds} of the layer's default export on texts of {TIMED_LENGTHS[1]} tokens",
                "audio": f"{seconds} until the layer is computed",
                "image": f"{seconds} of the layer's default export",
            }[self.input_kind]
            doubt = "; ?: its repeats disagreed" if any(row.unsteady_time for row in self.layers) else ""
            notes.append(f"time: {export}, as a share of the whole model's{doubt}")
        return notes


def require_pick_folder(folder: str | Path) -> None:
    """Raises before anything is computed if a pick cannot be saved in the folder."""
    require_record_folder(folder, PICK)
    require_recipe_folder(folder)
