"""What the figures of the paper show, as small tables: from a folder in which `layerwise lab reproduce` has made them.

    layerwise lab reproduce all --scale released --data DATA --out OUT
    layerwise lab reproduce all --scale small --models MODELS --data DATA --out OUT
    python studies/paper/study.py OUT studies/paper

Writes curves.csv (first, middle, lowest, highest, last and mean value of each curve), correlations.csv (means over
tasks), rules.csv (what rules for choosing a layer score), tuned.csv (what the short trainings did to the loss), and
copies of the pictures with fewer colours. Finished runs of an unfinished experiment are read as well.
"""

import sys
from pathlib import Path

import pandas as pd
from PIL import Image

RUN_FOLDERS = ("metrics", "fine_tune", "mean_scores", "probes", "speech", "lengths", "repeated", "random")
COLOURS = 64  # of a picture: a third of its size, and no difference to see
SHOWN = {  # in README.md
    "released": ("fig1", "fig2", "fig4", "fig8"),
    "small": (
        "fig1", "fig2", "fig4", "fig5", "fig6", "fig7", "fig8", "fig10", "fig12", "fig13", "fig14", "fig15", "speech",
        "diversity",
    ),
}  # fmt: skip


def curve_rows(scale: str, experiment: Path) -> list[dict[str, object]]:
    rows = []
    for table in sorted(path for name in RUN_FOLDERS for path in experiment.glob(f"{name}/*/table.parquet")):
        frame = pd.read_parquet(table)
        frame = frame[frame.data.isin(("", "wikitext", "imagenet", "imagenet100")) | (frame.rows != "released")]
        by = ["metric", "rows", "tokens", "condition", "level", "point", "norm"]
        for key, part in frame.groupby(by, dropna=False):
            setting = dict(zip(by, key, strict=True))
            if len(part) < 3 or setting["norm"] == "shipped":
                continue
            part = part.dropna(subset="value").sort_values("layer").set_index("layer")
            values = part.value
            rows.append(
                {"scale": scale, "experiment": experiment.name, "run": table.parent.name, **setting, "n": part.n.max(),
                 "layers": len(values), "first": values.iloc[0], "middle": values.iloc[len(values) // 2],
                 "lowest": values.min(), "lowest_at": values.idxmin(), "highest": values.max(),
                 "highest_at": values.idxmax(), "last": values.iloc[-1], "last_layer": values.index[-1],
                 "mean": values.mean()}
            )  # fmt: skip
    return rows


def copy_picture(picture: Path, target: Path) -> None:
    colours = Image.open(picture).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    colours.save(target, optimize=True)


def main(out: Path, folder: Path) -> None:
    curves, correlations, rules, tuned = [], [], [], []
    for experiment in sorted(path for path in out.glob("*/*") if path.is_dir()):
        scale = experiment.parent.name
        curves += curve_rows(scale, experiment)
        if (picture := experiment / f"{experiment.name}.png").exists() and experiment.name in SHOWN[scale]:
            copy_picture(picture, folder / f"{experiment.name}{'_small' if scale == 'small' else ''}.png")
        if (table := experiment / "tuned.csv").exists():
            tuned.append(pd.read_csv(table).assign(experiment=experiment.name))
        for file in experiment.glob("correlations.csv"):
            frame = pd.read_csv(file).assign(scale=scale)
            grouped = frame.groupby(["scale", "model", "metric", "rows"])
            means = grouped[["spearman", "kendall", "distance"]].mean()
            positive = grouped.spearman.agg(lambda values: (values > 0).mean()).rename("positive")
            significant = grouped.spearman_bends_p.agg(lambda values: (values < 0.05).mean()).rename("bends_below_5")
            correlations.append(
                means.join([grouped.task.nunique().rename("tasks"), positive, significant]).reset_index()
            )
        for file in (experiment / f"{name}.csv" for name in ("table2", "least_entropy")):
            if file.exists():
                kept = ["rule", "family", "pairs", "chosen", "last", "best", "recovered", "low_tasks", "high_tasks"]
                found = pd.read_csv(file)[[*kept, "below_last"]]
                rules.append(found.assign(scale=scale, experiment=experiment.name))
    pd.DataFrame(curves).round(4).to_csv(folder / "curves.csv", index=False)
    pd.concat(correlations).round(4).to_csv(folder / "correlations.csv", index=False)
    pd.concat(rules).round(4).to_csv(folder / "rules.csv", index=False)
    pd.concat(tuned).round({"before": 4, "after": 4}).to_csv(folder / "tuned.csv", index=False)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
