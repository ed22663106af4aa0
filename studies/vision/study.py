"""Is there a valley in the middle of image models, and only in autoregressive ones? Small models, and released results.

    python studies/vision/study.py run CIFAR MODELS OUT NAME...        # NAME: supervised-0, autoregressive-0, ...
    python studies/vision/study.py tables OUT RELEASED                 # values.csv and layers.png beside this file

CIFAR holds train.parquet and test.parquet with the columns img and label_text. MODELS holds what
examples/vision/train.py saved. RELEASED is a table of the paper's published results on images. `run` measures the
metrics that need no views on 500 test images, infonce, dime and lidar with the views of 64, and trains linear, k-NN and
attention probes of the class on every layer. The prompt entropy is that of `centered_unit` rows, which the paper plots.
All read the patches without the class token. Each step keeps its run in OUT and is not repeated.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import layerwise

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "examples" / "vision"))
KEPT = ["model", "layer", "norm", "metric", "value", "ci_low", "ci_high", "n"]
LABEL = "label_text"
PROBES = {f"{LABEL}_{probe}_accuracy": probe for probe in ("linear", "knn", "attention")}
COLUMNS = {
    "attention": "attention probe, %",
    "linear": "linear probe, %",
    "knn": "k-NN, %",
    "prompt_entropy_normalized_centered_unit": "prompt entropy / maximum",
    "dataset_entropy": "dataset entropy",
    "curvature": "curvature",
    "infonce": "infonce",
    "dime": "dime",
    "lidar": "lidar",
}
COLOURS = {"autoregressive": "#d55e00", "supervised": "#0072b2", "masked": "#009e73"}
COLOURS |= {"aim": "#d55e00", "aimv2": "#e69f00", "beit": "#56b4e9", "clip": "#cc79a7", "dinov2": "#000000"}
COLOURS |= {"mae": "#009e73", "vit": "#0072b2"}


def main() -> None:
    command, *arguments = sys.argv[1:]
    if command == "tables":
        return write_tables(Path(arguments[0]), Path(arguments[1]))
    data, models, out, *names = arguments
    for name in names:
        run(Path(data), Path(models) / name, Path(out), name)


def run(data: Path, folder: Path, out: Path, name: str) -> None:
    from reading import open_model

    model, test = open_model(folder), data / "test.parquet"
    options = {"tokens": "no_special", "progress": True}
    layerwise.scan(
        model,
        layerwise.images(test, column="img", sample=500),
        metrics="fast",
        rows="raw,centered_unit",
        out=out / f"{name}.metrics",
        **options,
    )
    layerwise.scan(
        model, layerwise.images(test, column="img", sample=64), metrics="infonce,dime,lidar", shard_size=16,
        out=out / f"{name}.views", **options,
    )  # fmt: skip
    train, tested = (
        layerwise.labelled(path, LABEL, kind="image", column="img") for path in (data / "train.parquet", test)
    )
    layerwise.probe(
        model, train, tested, label=LABEL, probes="linear,knn,attention", epochs=10, out=out / f"{name}.probes",
        **options,
    )  # fmt: skip


def write_tables(out: Path, released: Path) -> None:
    frames = [
        layerwise.LayerTable.load(folder).to_pandas().assign(model=folder.stem)
        for folder in sorted(out.iterdir())
        if (folder / "table.parquet").exists()
    ]
    own = pd.concat(frames)
    own["metric"] = own.metric.replace(PROBES)
    own["metric"] = own.metric.where(own.rows.isin(["raw", "-"]), own.metric + "_" + own.rows)
    values = pd.concat([own[KEPT], published(released)[KEPT]])
    values = values.sort_values(["model", "metric", "layer", "norm"])
    values.round(4).to_csv(HERE / "values.csv", index=False)
    values = pd.read_csv(HERE / "values.csv")  # what is shown is what is in the file
    write_blocks(values)
    draw(values)


def published(path: Path) -> pd.DataFrame:
    """The attention probe of each layer of seven large models, and the prompt entropy of those that have one.

    The authors count from 1 what their probe read as hidden_states[layer - 1]; here layer is that index.
    """
    table = pd.read_parquet(path).astype({"family": str, "size": str, "name": str, "quantity": str})
    probe = table[(table.name == "attention_probe") & (table.quantity == "val_acc1") & (table["size"] == "large")]
    probe = probe[(probe.layer_from == probe.layer_to)].assign(metric="attention", layer=lambda t: t.layer_from - 1)
    entropy = table[(table.name == "entropy_prompt") & (table.quantity == "maxEntropy")]
    entropy = entropy[entropy["size"].isin(["large", "huge"])].assign(
        metric="prompt_entropy_normalized_centered_unit", layer=entropy.layer_from
    )
    both = pd.concat([probe, entropy])
    both = both.assign(model="released " + both.family + "-" + both["size"], norm="raw", ci_low=np.nan, ci_high=np.nan)
    return both.assign(n=0).drop_duplicates(["model", "layer", "metric"])


def over_seeds(values: pd.DataFrame) -> pd.DataFrame:
    """Mean over the seeds of each objective, and its 95 % interval (Student's t); none for a single seed."""
    own = values[~values.model.str.startswith("released") & (values.norm == "raw")]
    own = own.assign(objective=own.model.str.rsplit("-", n=1).str[0])
    found = own.groupby(["objective", "metric", "layer"]).value.agg(["mean", "std", "count"]).reset_index()
    half = stats.t.ppf(0.975, found["count"].clip(lower=2) - 1) * found["std"] / np.sqrt(found["count"])
    return found.assign(half=half)


def write_blocks(values: pd.DataFrame) -> None:
    """The tables of README.md."""
    page = HERE / "README.md"
    text = page.read_text(encoding="utf-8")
    for name, block in (("own", own_table(values)), ("released", released_table(values))):
        start, end = f"<!-- {name}: written by study.py -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(start, 1)
        text = before + start + block + "\n" + end + rest.split(end, 1)[1]
    page.write_text(text, encoding="utf-8")


def own_table(values: pd.DataFrame) -> str:
    """One line per objective and layer: the mean over seeds, with its interval where there are several."""
    found = over_seeds(values)
    found["cell"] = found["mean"].map("{:.3g}".format) + found.half.map(lambda h: "" if np.isnan(h) else f" ± {h:.2g}")
    wide = found.pivot(index=["objective", "layer"], columns="metric", values="cell").reset_index()
    return as_markdown(wide[["objective", "layer", *COLUMNS]].rename(columns=COLUMNS))


def released_table(values: pd.DataFrame) -> str:
    """First layer, best layer and last layer of each released curve."""
    rows = []
    for (model, metric), curve in values[values.model.str.startswith("released")].groupby(["model", "metric"]):
        curve = curve.set_index("layer").value.sort_index()
        ends = [f"{curve.iloc[place]:.3g}" for place in (0, -1)]
        least, most = (f"{curve[layer]:.3g} (layer {layer})" for layer in (curve.idxmin(), curve.idxmax()))
        rows.append([model.removeprefix("released "), COLUMNS[metric], ends[0], least, most, ends[1]])
    rows.sort(key=lambda row: (row[1], row[0]))
    return as_markdown(pd.DataFrame(rows, columns=["model", "number", "first layer", "least", "most", "last layer"]))


def as_markdown(table: pd.DataFrame) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def draw(values: pd.DataFrame) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    shown, means = values[values.norm == "raw"], over_seeds(values)
    for column, metric in enumerate(("attention", "prompt_entropy_normalized_centered_unit")):
        above, below = axes[:, column]
        for name, curve in shown[shown.metric == metric].groupby("model"):
            curve = curve.sort_values("layer")
            depth, kind = curve.layer / curve.layer.max(), name.removeprefix("released ").rsplit("-", 1)[0]
            if name.startswith("released"):
                width = 2.5 if kind == "aim" else 1.2
                above.plot(depth, curve.value, lw=width, color=COLOURS[kind], label=name.removeprefix("released "))
            else:
                below.plot(depth, curve.value, lw=0.7, color=COLOURS[kind])
        for objective, curve in means[means.metric == metric].groupby("objective"):
            depth, colour = curve.layer / curve.layer.max(), COLOURS[objective]
            count = int(curve["count"].min())
            below.plot(depth, curve["mean"], marker="o", color=colour, label=f"{objective}, mean of {count} seeds")
            below.fill_between(depth, curve["mean"] - curve.half, curve["mean"] + curve.half, color=colour, alpha=0.2)
        above.set_title(f"released: {COLUMNS[metric]}", fontsize=10)
        below.set_title(f"trained here: {COLUMNS[metric]}", fontsize=10)
        below.set_ylim(*((0, 100) if metric == "attention" else (0, 1)))
        for axis in (above, below):
            axis.set_xlabel("depth")
            axis.legend(fontsize=7, ncol=2 if axis is above else 1)
    figure.savefig(HERE / "layers.png", dpi=110)


if __name__ == "__main__":
    main()
