"""Where in a Whisper encoder is the digit, and where is the speaker? Metrics and probes on spoken digits.

    python studies/speech/study.py run FSDD MODELS OUT STEP MODEL...     # STEP: metrics, views, probes or padding
    python studies/speech/study.py tables OUT                            # values.csv and the pictures beside this file

FSDD holds train.parquet (2,700 clips) and test.parquet (300 clips) of the Free Spoken Digit Dataset, with the columns
audio, label and speaker. `metrics`: metrics that need no views on the 300 test clips, on frames of real audio and on
all 1500 frames, in float32. `views`: infonce, dime and lidar with 16 views of 128 clips. `probes`: linear, k-NN,
attention and weighted sum on frames of real audio. `padding`: the linear probe on the mean over all 1500 frames. The
last three run the encoder in bfloat16. Each step keeps its run in OUT and is not repeated.
"""

import sys
from pathlib import Path

import pandas as pd

import layerwise

HERE = Path(__file__).parent
STEPS = ("metrics", "views", "probes", "padding")
KEPT = ["model", "step", "layer", "norm", "tokens", "metric", "value", "ci_low", "ci_high", "n"]


def main() -> None:
    command, *arguments = sys.argv[1:]
    if command == "tables":
        return write_tables(Path(arguments[0]))
    data, models, out, step, *names = arguments
    for name in names:
        run(Path(data), f"{models}/{name}", f"{out}/{name}-{step}", step)


def run(data: Path, model: str, out: str, step: str) -> None:
    tested, faster = data / "test.parquet", layerwise.ModelSpec(model, dtype="bfloat16")
    if step == "metrics":
        layerwise.scan(
            model, layerwise.audio(tested), metrics="fast", rows="raw,centered_unit", tokens="all,with_padding",
            max_length=1500, out=out, progress=True,
        )  # fmt: skip
    elif step == "views":
        layerwise.scan(
            faster, layerwise.audio(tested, sample=128), metrics="infonce,dime,lidar", max_length=1500, out=out,
            shard_size=16, progress=True,
        )  # fmt: skip
    else:
        options = {"tokens": "with_padding", "probes": "linear"} if step == "padding" else {}
        layerwise.probe(
            faster, data / "train.parquet", tested, label="label,speaker", max_length=1500, out=out, progress=True,
            **options,
        )  # fmt: skip


def write_tables(out: Path) -> None:
    frames = []
    for folder in sorted(out.iterdir()):
        name, _, step = folder.name.rpartition("-")
        if step in STEPS and (folder / "table.parquet").exists():
            frames.append(layerwise.LayerTable.load(folder).to_pandas().assign(model=name, step=step))
    values = pd.concat(frames)
    values["metric"] = values.metric.where(values.rows.isin(["raw", "-"]), values.metric + "_" + values.rows)
    values[KEPT].round(4).to_csv(HERE / "values.csv", index=False)
    draw(values)


def draw(values: pd.DataFrame) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    models = [name for name in ("whisper-tiny.en", "whisper-base") if name in set(values.model)]
    figure, axes = plt.subplots(len(models), 4, figsize=(15, 3.4 * len(models)), squeeze=False)
    for model, line in zip(models, axes, strict=True):
        of_model = values[(values.model == model) & (values.norm == "raw")]
        for axis, label in zip(line, ("label", "speaker"), strict=False):
            for probe in ("linear", "knn", "attention"):
                draw_line(
                    axis,
                    of_model[(of_model.metric == f"{label}_{probe}_accuracy") & (of_model.step == "probes")],
                    probe,
                )
            all_frames = of_model[(of_model.metric == f"{label}_linear_accuracy") & (of_model.step == "padding")]
            draw_line(axis, all_frames, "linear, all 1500 frames", "--")
            best = of_model[of_model.metric == f"{label}_weighted_sum_accuracy"].value
            if len(best):
                axis.axhline(best.iloc[0], color="grey", linestyle=":", label="weighted sum")
            axis.set_title(f"{model}: {'digit' if label == 'label' else 'speaker'}", fontsize=10)
            axis.set_ylabel("accuracy (%)")
        for label in ("label", "speaker"):
            weights = of_model[of_model.metric == f"{label}_weighted_sum_weight"]
            line[2].plot(weights.layer, weights.value, marker="o", label="digit" if label == "label" else "speaker")
        line[2].set_title(f"{model}: weights of the sum", fontsize=10)
        for tokens, style in (("all", "-"), ("with_padding", "--")):
            curve = of_model[(of_model.metric == "prompt_entropy") & (of_model.tokens == tokens)]
            draw_line(line[3], curve, "real frames" if tokens == "all" else "all 1500 frames", style)
        line[3].set_title(f"{model}: prompt entropy (nats)", fontsize=10)
        for axis in line:
            axis.grid(alpha=0.3)
            axis.set_xlabel("layer")
    for axis in axes[0]:
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(HERE / "layers.png", dpi=90)


def draw_line(axis, curve: pd.DataFrame, label: str, style: str = "-") -> None:  # type: ignore[no-untyped-def]
    if len(curve):
        (drawn,) = axis.plot(curve.layer, curve.value, style, marker="o", markersize=3, label=label)
        axis.fill_between(curve.layer, curve.ci_low, curve.ci_high, alpha=0.15, color=drawn.get_color())


if __name__ == "__main__":
    main()
