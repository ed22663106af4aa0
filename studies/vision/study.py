"""Is there a valley in the middle of image models, and only in autoregressive ones? Small models, and released results.

    python studies/vision/study.py run CIFAR MODELS OUT NAME...        # NAME: supervised-0, autoregressive-0, ...
    python studies/vision/study.py tables OUT RELEASED                 # values.csv and layers.png beside this file

CIFAR holds train.parquet and test.parquet with the columns img and label_text. MODELS holds what
examples/vision/train.py saved. RELEASED is a table of the paper's published results on images. `run` measures the
metrics that need no views on 500 test images, infonce, dime and lidar with the views of 64, and trains linear, k-NN and
attention probes of the class on every layer. All read the patches without the class token. Each step keeps its run in
OUT and is not repeated.
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
SHOWN = {"attention": "attention probe, %", "linear": "linear probe, %", "prompt_entropy": "prompt entropy"}
COLOURS = {"autoregressive": "#d55e00", "supervised": "#0072b2", "masked": "#009e73"}


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
        model, layerwise.images(test, column="img", sample=500), metrics="fast", out=out / f"{name}.metrics", **options
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
    own = own[own.rows.isin(["raw", "-"])] if "rows" in own else own
    own["metric"] = own.metric.replace(PROBES)
    values = pd.concat([own[KEPT], published(released)[KEPT]])
    values.round(4).to_csv(HERE / "values.csv", index=False)
    print_table(values)
    draw(values)


def published(path: Path) -> pd.DataFrame:
    """The attention probe of each layer of seven large models, and the prompt entropy of those that have one.

    The authors count from 1 what their probe read as hidden_states[layer - 1]; here layer is that index.
    """
    table = pd.read_parquet(path)
    probe = table[(table.name == "attention_probe") & (table.quantity == "val_acc1") & (table["size"] == "large")]
    probe = probe[(probe.layer_from == probe.layer_to)].assign(metric="attention", layer=lambda t: t.layer_from - 1)
    entropy = table[(table.name == "entropy_prompt") & (table.quantity == "maxEntropy")]
    entropy = entropy[entropy["size"].isin(["large", "huge"])].assign(metric="prompt_entropy", layer=entropy.layer_from)
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


def print_table(values: pd.DataFrame) -> None:
    """The table of README.md."""
    found = over_seeds(values)
    found["cell"] = found["mean"].map("{:.3g}".format) + found.half.map(lambda h: "" if np.isnan(h) else f" ± {h:.2g}")
    found = found[found.metric.isin([*SHOWN, "knn", "dataset_entropy", "curvature", "infonce", "lidar"])]
    wide = found.pivot(index=["objective", "layer"], columns="metric", values="cell").reset_index()
    print("| " + " | ".join(wide.columns) + " |")
    print("|" + " --- |" * len(wide.columns))
    for row in wide.itertuples(index=False):
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def draw(values: pd.DataFrame) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    shown = values[values.norm == "raw"]
    for column, metric in enumerate(("attention", "prompt_entropy")):
        above, below = axes[:, column]
        part = shown[shown.metric == metric]
        for name, curve in part[part.model.str.startswith("released")].groupby("model"):
            curve = curve.sort_values("layer")
            is_autoregressive = "aim-" in name
            above.plot(
                curve.layer / curve.layer.max(), curve.value, lw=2 if is_autoregressive else 1,
                color=COLOURS["autoregressive"] if is_autoregressive else None, label=name.removeprefix("released "),
            )  # fmt: skip
        for name, curve in part[~part.model.str.startswith("released")].groupby("model"):
            curve, objective = curve.sort_values("layer"), name.rsplit("-", 1)[0]
            below.plot(curve.layer / curve.layer.max(), curve.value, marker="o", color=COLOURS[objective], label=name)
            below.fill_between(
                curve.layer / curve.layer.max(), curve.ci_low, curve.ci_high, color=COLOURS[objective], alpha=0.2
            )
        above.set_title(f"released: {SHOWN[metric]}", fontsize=10)
        below.set_title(f"trained here, 8 blocks, CIFAR-10: {SHOWN[metric]}", fontsize=10)
        for axis in (above, below):
            axis.set_xlabel("depth")
            axis.legend(fontsize=7)
    figure.savefig(HERE / "layers.png", dpi=110)


if __name__ == "__main__":
    main()
