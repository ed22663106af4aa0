"""The heads of the linear probe: how they are kept in a run folder, and which of them export takes."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import open_folder, write_atomically
from layerwise.core.recipe import Recipe
from layerwise.core.tensors import dump_tensors, parse_tensors
from layerwise.maps.linear import LinearMap
from layerwise.runs.folder import Run
from layerwise.runs.identity import ModelRef

KEY = "layerwise.probe"
HEAD_FILE = re.compile(r"[0-9a-f]{24}\.safetensors")
FITS = "fits"  # the subfolder of a run folder
Prefer = Literal["quality", "fast"]


def write_head(folder: Path, name: str, head: LinearMap) -> str:
    """Writes the weights; returns the name of the file."""
    data = dump_tensors(KEY, json.dumps({"name": name}), {"weight": head.weight, "bias": head.bias})
    write_atomically(folder / f"{name}.safetensors", data)
    return f"{name}.safetensors"


def read_head(folder: Path, name: str) -> LinearMap:
    """The weights of a file; raises RunError unless it is there and intact."""
    data = open_folder(folder).read(name) if HEAD_FILE.fullmatch(name) else None
    if data is None:
        raise RunError(f"{folder}/{name} is missing; run the probe again in the same folder")
    try:
        metadata, tensors = parse_tensors(KEY, data)
        if json.loads(metadata) != {"name": name.partition(".")[0]}:
            raise ValueError("it was renamed")
        return LinearMap(tensors["weight"], tensors["bias"])
    except (ValueError, KeyError) as error:
        raise RunError(f"{folder}/{name} is damaged ({error}); run the probe again in the same folder") from None


@dataclass(frozen=True)
class Classifier:
    """A layer and the head that the linear probe found on it, ready to be exported.

    Attributes:
        label: the column that it predicts.
        classes: their names, in the order of the logits.
        recipe: how the layer is read.
        model: the model that it was trained on.
        linear: from the vectors of the recipe to logits.
        facts: how it was chosen and trained, and what it scores, with all layers.
    """

    label: str
    classes: tuple[str, ...]
    recipe: Recipe
    model: ModelRef
    linear: LinearMap
    facts: Mapping[str, Any]

    @classmethod
    def load(cls, folder: str | Path, label: str | None = None, prefer: Prefer = "quality") -> "Classifier":
        """The best layer of a probe run by its held-out training examples, never by the test.

        Args:
            folder: the run folder.
            label: which column, if the run has several.
            prefer: fast takes the lowest layer that is at most one standard error behind the best.

        Returns:
            The classifier.

        Raises:
            InputError: if the run has no linear probe of that label.
            RunError: if the folder is no probe run, or damaged.
        """
        run = Run.open(folder)
        if run.kind != "probe":
            raise InputError(f"{folder} is a {run.kind}, not a probe run; make one: layerwise probe --out FOLDER")
        record = run.table.run
        if "words" in record:
            raise InputError(
                f"{folder} has probes of the labels of words; export writes only classifiers of whole texts"
            )
        linear = [one for one in record["probes"] if one.get("head") and one.get("validation")]
        labels = list(dict.fromkeys(one["label"] for one in linear))
        if not labels:
            raise InputError(f"{folder} has no linear probe with held-out examples; run probe with --probes linear")
        if label is None and len(labels) > 1:
            raise InputError(f"{folder} has probes of {', '.join(labels)}; say which: --label {labels[0]}")
        if label is not None and label not in labels:
            raise InputError(f"{folder} has no linear probe of {label!r}, only of {', '.join(labels)}")
        label = label or labels[0]
        layers = sorted((one for one in linear if one["label"] == label), key=lambda one: (one["layer"], one["norm"]))
        chosen = chosen_layer(layers, prefer)
        plan, scores = (
            record["plan"],
            {(row.layer, row.norm): row for row in run.table if row.metric == chosen["metric"]},
        )
        recipe = Recipe(chosen["layer"], chosen["norm"], plan["tokens"], plan["pooling"], max_length=plan["max_length"])
        return cls(
            label, tuple(record["labels"][label]["names"]), recipe, run.table.require_model(),
            read_head(Path(folder) / FITS, chosen["head"]),
            {
                "prefer": prefer, "chosen": dict(chosen["chosen"]), "calibration": dict(chosen["calibration"]),
                "train": record["labels"][label]["train"], "data": record["data"]["name"],
                "data_fingerprint": record["data"]["fingerprint"], "test": record["test"]["name"],
                "test_fingerprint": record["test"]["fingerprint"],
                "most_frequent": record["labels"][label]["most_frequent"],
                "layers": [layer_record(one, scores[one["layer"], one["norm"]]) for one in layers],
            },
        )  # fmt: skip


def chosen_layer(layers: list[dict[str, Any]], prefer: Prefer) -> dict[str, Any]:
    """The layer with the highest accuracy on held-out examples.

    With `fast`, the lowest that is at most one standard error behind it. What a test cannot tell apart would be too
    much: with few examples that is every layer.
    """
    if prefer == "fast":
        found = (one["validation"] for one in layers)
        close = [one["behind"] <= one["standard_error"] for one in found]
        return layers[close.index(True)]
    return max(layers, key=lambda one: (one["validation"]["points"], -one["layer"]))


def layer_record(one: Mapping[str, Any], score: Any) -> dict[str, Any]:
    return {
        "layer": one["layer"], "norm": one["norm"], "validation": one["validation"]["points"],
        "test": score.value, "ci_low": score.ci_low, "ci_high": score.ci_high, "n": score.n,
    }  # fmt: skip
