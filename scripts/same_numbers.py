"""Do two versions of layerwise give the same numbers? Records what each verb computes for real models, bit by bit.

    PYTHONPATH=OLD/src python scripts/same_numbers.py record old.json MODEL_FOLDER ...
    PYTHONPATH=NEW/src python scripts/same_numbers.py record new.json MODEL_FOLDER ...
    python scripts/same_numbers.py compare old.json new.json

Numbers are written as hexadecimal floats, so that equal means equal bits. Only public names are used, since both
versions must run it.
"""

import csv
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import safe_open

import layerwise

TEXTS = 96
SCANNED = 32  # with all metrics, views and settings, a scan of more takes long
LENGTH = 64  # tokens
NAMES = ("layer", "tokens", "pooling", "rows", "metric", "transform", "condition")
NUMBERS = ("value", "ci_low", "ci_high")


def record(model: Path, root: Path, work: Path) -> dict[str, object]:
    """Every number of one model, by a name that says what it is."""
    found: dict[str, object] = {}
    texts, few = (layerwise.texts("demo", limit=count) for count in (TEXTS, SCANNED))
    scanned = layerwise.scan(
        str(model), few, out=work / "scan", metrics="all", rows=["raw", "centered_unit"], tokens=["all", "no_first"],
        pooling=["mean", "last"], max_length=LENGTH, threads=1, shard_size=14,
    )  # fmt: skip
    found |= rows(scanned, "scan")
    found["state"] = tensors_of(*sorted((work / "scan").glob("state-*.safetensors")))
    stressed = layerwise.lab.stress(str(model), few, kind="repeat_one", levels=[0.0, 0.5], max_length=LENGTH, threads=1)
    found |= rows(stressed, "stress")
    mapped = layerwise.Recipe(2, transform="whiten", max_length=LENGTH)
    scored = layerwise.eval(str(model), "all", out=work / "eval", data_root=root, max_length=LENGTH, threads=1)
    found |= rows(scored, "eval")
    scored = layerwise.eval(
        str(model), "all", out=work / "maps", data_root=root, recipes=[mapped], fit="demo", max_length=LENGTH, threads=1
    )
    found |= rows(scored, "eval of a map")
    picked = layerwise.pick(str(model), texts, max_length=LENGTH)
    found["pick"] = picked.recipe.to_json()
    found["pick gain"] = [float(x).hex() for x in (picked.gain.mean, picked.gain.error)] if picked.gain else None
    if not picked.keep_last:
        exported = layerwise.export(str(model), picked, work / "picked")
        found["export of the pick"] = hashed(exported.encode(LINES))
    exported = layerwise.export(str(model), 1, work / "layer", max_length=LENGTH)
    found["export of layer 1"] = hashed(exported.encode(LINES))
    frame = layerwise.embed(str(model), LINES, layers="all", max_length=LENGTH)
    for name in (column for column in frame if column.startswith(("layer_", "last"))):
        found[f"embed {name}"] = hashed(np.stack(frame[name].tolist()))
    probed = layerwise.probe(
        str(model),
        work.parent / "Classes-train.csv",
        label="label",
        precision="float32",  # hidden states of Gemma do not fit into float16
        out=work / "probe",
        max_length=LENGTH,
        epochs=3,
        threads=1,
    )
    found |= rows(probed, "probe")
    shorter = layerwise.scan(str(model), few, out=work / "shorter", max_length=LENGTH // 2, threads=1)
    compared = layerwise.compare([scanned, shorter])
    found["compare"] = frame_hash(compared.pairs[0].changes)
    found["correlate"] = frame_hash(layerwise.lab.correlate(work / "scan", work / "eval"))
    # Shrunk and static models are made of an embedding model, which a language model becomes by an export.
    layerwise.export(str(model), 4, work / "embedder", max_length=LENGTH)
    small = layerwise.shrink(
        work / "embedder", texts, work / "small", blocks=2, choose="prefix", method="distill", steps=3
    )
    found["shrink"] = hashed(small.encode(LINES))
    static = layerwise.shrink(work / "embedder", texts, work / "static", method="static")
    found["static"] = hashed(static.encode(LINES))
    return found


LINES = ["A short line.", "A second line, a good deal longer than the first one.", "Rain falls on the old harbour."]


def rows(table: layerwise.LayerTable, verb: str) -> dict[str, object]:
    """The table's numbers by what they are of."""
    found: dict[str, object] = {}
    for row in table:
        words = "|".join([verb, row.norm, *(str(getattr(row, name)) for name in NAMES), f"{row.level:g}"])
        assert words not in found, f"two rows are {words}"
        found[words] = [float(getattr(row, name)).hex() for name in NUMBERS] + [row.n, row.skipped]
    return found


def words_of(example: object) -> str:
    return str(getattr(example, "payload", None) or example.text)


def tensors_of(path: Path) -> str:
    """A hash of all tensors of a file, whatever they are called and whatever its header says."""
    with safe_open(path, framework="np") as file:
        names = list(file.keys())
        each = sorted(hashed(file.get_tensor(name)) for name in names)
    return hashlib.sha256("".join(each).encode()).hexdigest()


def frame_hash(frame: pd.DataFrame) -> str:
    """A hash of a data frame's numbers, bit by bit, whatever its columns are called."""
    return hashed(frame.select_dtypes("number").to_numpy(dtype=np.float64))


def hashed(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def prepare_tasks(root: Path, work: Path) -> None:
    """Two small tasks made of the bundled texts: pairs with grades, and classes."""
    lines = [words_of(example) for example in layerwise.texts("demo")]
    pairs = [(lines[i], lines[(i * 7 + 1) % len(lines)], (i * 13) % 6) for i in range(60)]
    classes = [(line, f"class {i % 3}") for i, line in enumerate(lines)]
    tables = {
        "Pairs": ("STS", ("sentence1", "sentence2", "score"), {"test": pairs}),
        "Classes": ("Classification", ("text", "label"), {"test": classes[:80], "train": classes[80:]}),
    }
    for name, (kind, columns, splits) in tables.items():
        command = [sys.executable, "-m", "layerwise", "lab", "data", str(root), name, "--type", kind]
        for split, cells in splits.items():
            path = work / f"{name}-{split}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([columns, *cells])
            command += [f"--{split}", str(path)]
        subprocess.run(command, check=True)


def main(words: list[str]) -> int:
    verb, first, *others = words
    if verb == "record":
        with tempfile.TemporaryDirectory() as scratch:
            work = Path(scratch)
            prepare_tasks(work / "root", work)
            found = {}
            for model in map(Path, others):
                (work / model.name).mkdir()
                found[model.name] = record(model, work / "root", work / model.name)
                print(f"{model.name}: {len(found[model.name])} numbers")
        Path(first).write_text(json.dumps(found, indent=1, sort_keys=True))
        return 0
    old, new = (json.loads(Path(path).read_text()) for path in (first, *others))
    wrong = 0
    for model in sorted(old.keys() | new.keys()):
        before, after = old.get(model, {}), new.get(model, {})
        differing = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
        print(f"{model}: {len(before)} numbers, {len(differing)} differ", *differing[:5], sep="\n  ")
        wrong += len(differing)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
