"""Where inside a block does compression happen? Every point of every block, with and without the first token.

    python studies/inside/study.py MODELS ZOO WIKITEXT_TEST OUT [MODEL...]

Scans SmolLM2-135M, Gemma3-270M (folders in MODELS) and a small GPT-NeoX trained on WikiText-2 (in ZOO) on 200
paragraphs of WikiText-2 test, at most 256 tokens each. Writes values.csv beside this file, one row per model, layer,
point and choice of tokens, and draws one picture per model. OUT keeps the runs; a finished one is not repeated.
"""

import sys
from pathlib import Path

import matplotlib
import pandas as pd

import layerwise

HERE = Path(__file__).parent
METRICS = "prompt_entropy,dataset_entropy,mean_norm"
TOKENS = ("all", "no_first")
NAMES = {"smollm2-135m": "SmolLM2-135M", "gemma3-270m": "Gemma3-270M", "gptneox": "GPT-NeoX 12 x 256"}


def main() -> None:
    models, zoo, wikitext, out, *only = sys.argv[1:]
    folders = {name: Path(models) / name for name in NAMES} | {"gptneox": Path(zoo) / "gptneox" / "step629"}
    for name in only or NAMES:
        layerwise.scan(
            str(folders[name]), layerwise.texts(wikitext, only="wikitext", sample=200), out=f"{out}/{name}",
            metrics=METRICS, inside=True, rows="raw,centered_unit", tokens=",".join(TOKENS), max_length=256,
            progress=True,
        )  # fmt: skip
    done = [name for name in NAMES if (Path(out) / name / "run.json").exists()]
    pd.concat([values(name, f"{out}/{name}") for name in done]).to_csv(HERE / "values.csv", index=False)
    for name in done:
        draw(name, pd.read_csv(HERE / "values.csv", keep_default_na=False).query("model == @name"))


def values(name: str, run: str) -> pd.DataFrame:
    """One row per layer, point and choice of tokens; a column per metric and row treatment."""
    frame = layerwise.LayerTable.load(run).to_pandas().query("norm == 'raw'")
    frame["column"] = frame.metric.where(frame.rows == "raw", frame.metric + "_" + frame.rows)
    wide = frame.pivot_table(index=["layer", "point", "tokens"], columns="column", values="value", sort=False)
    order = list(dict.fromkeys(frame.point))
    wide = wide.reset_index().sort_values(
        ["tokens", "layer", "point"], key=lambda c: c.map(order.index) if c.name == "point" else c
    )
    return wide.assign(model=name)[["model", "tokens", "layer", "point", *sorted(set(frame.column))]].round(4)


def draw(name: str, frame: pd.DataFrame) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = ["prompt_entropy", "prompt_entropy_centered_unit", "mean_norm"]
    figure, axes = plt.subplots(len(TOKENS), len(columns), figsize=(12, 6.4), squeeze=False, sharex=True)
    for tokens, line in zip(TOKENS, axes, strict=True):
        for column, axis in zip(columns, line, strict=True):
            for number, (point, curve) in enumerate(frame[frame.tokens == tokens].groupby("point", sort=False)):
                stream = not point or point.startswith("after")
                axis.plot(
                    curve.layer, curve[column], "-" if stream else "--", linewidth=2 if stream else 1.2,
                    color=f"C{number}", label=(point or "block output").replace("_", " "),
                )  # fmt: skip
            axis.set_yscale("log" if column == "mean_norm" else "linear")
            axis.set_title(f"{column.replace('_', ' ')}, {tokens.replace('_', ' ')}", fontsize=10)
            axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("layer")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize=8, frameon=False)
    figure.suptitle(NAMES[name])
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(HERE / f"{name}.png", dpi=90)


if __name__ == "__main__":
    main()
