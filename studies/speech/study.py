"""Where in a Whisper encoder is the digit, and where is the speaker? Metrics and probes on spoken digits.

    python studies/speech/study.py run FSDD MODELS OUT STEP MODEL...     # STEP: metrics, views, probes, padding or few
    python studies/speech/study.py tables OUT                            # values.csv and the pictures beside this file

FSDD holds train.parquet (2,700 clips) and test.parquet (300 clips) of the Free Spoken Digit Dataset, with the columns
audio, label and speaker. `metrics`: metrics that need no views on the 300 test clips, on frames of real audio and on
all 1500 frames, in float32. `views`: infonce, dime and lidar with 16 views of 128 clips. `probes`: linear, k-NN,
attention and weighted sum on frames of real audio. `padding`: the linear probe on the mean over all 1500 frames. These
three run the encoder in bfloat16. `few` needs what `probes` kept: linear probes of the digit and of the speaker that
are trained on 60 clips only (one per digit and speaker, ten draws), and of the digit on five speakers, tested on the
sixth. Each step keeps its run in OUT and is not repeated.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import layerwise
from layerwise.models.opening import open_network
from layerwise.verbs.probe.api import probe_readouts
from layerwise.verbs.probe.features import FeatureKind, FeatureStore
from layerwise.verbs.probe.labelled import read_labelled
from layerwise.verbs.probe.options import ProbeOptions
from layerwise.verbs.probe.run import ProbePlan, read_all

HERE = Path(__file__).parent
STEPS = ("metrics", "views", "probes", "padding")
KEPT = ["model", "step", "layer", "norm", "tokens", "metric", "value", "ci_low", "ci_high", "n"]


def main() -> None:
    command, *arguments = sys.argv[1:]
    if command == "tables":
        return write_tables(Path(arguments[0]))
    data, models, out, step, *names = arguments
    for name in names:
        if step == "few":
            few(Path(data), f"{models}/{name}", Path(out), name)
            continue
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


def few(data: Path, model: str, out: Path, name: str) -> None:
    """Linear probes on part of the training clips, from the vectors that the step `probes` kept."""
    network = open_network(layerwise.ModelSpec(model, dtype="bfloat16"))
    columns = ("label", "speaker")
    train, test = (layerwise.labelled(data / f"{s}.parquet", columns, kind="audio") for s in ("train", "test"))
    labelled = read_labelled(train, test, columns, test_share=0.2, seed=0)
    options = ProbeOptions(network, train, test, label=columns, max_length=1500)
    readouts = probe_readouts(network, options)
    kind = FeatureKind(network.identity().fingerprint, 1500, readouts, positions=True, precision="float16")
    plan = ProbePlan(readouts, ("linear",), columns, 1500, 40, 0, 4096, "float16")
    store = FeatureStore(out / f"{name}-probes" / "features", kind)
    read_all(store, network, plan, labelled, lambda examples, tokens=0: None)
    assert not store.forwarded, "run the step `probes` first"
    labels = {c: np.array([e.labels[i] for e in labelled.examples]) for i, c in enumerate(columns)}
    train_at, test_at = labelled.indices("train"), labelled.indices("test")
    rows = []
    for readout in readouts:
        vectors = store.rows(readout, "pooled")
        for way, column, fitted, tested in splits(labels, train_at, test_at):
            model_ = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
            model_.fit(vectors[fitted], labels[column][fitted])
            value = 100 * (model_.predict(vectors[tested]) == labels[column][tested]).mean()
            rows.append({"layer": readout.layer, "norm": readout.norm, "metric": f"{column}_{way}", "value": value})
    found = pd.DataFrame(rows).groupby(["layer", "norm", "metric"]).value.agg(["mean", "std", "count"]).reset_index()
    half = stats.t.ppf(0.975, found["count"] - 1) * found["std"] / np.sqrt(found["count"])
    found = found.rename(columns={"mean": "value", "count": "n"}).drop(columns="std")
    found = found.assign(ci_low=found.value - half, ci_high=found.value + half, model=name, step="few", tokens="all")
    found[KEPT].to_csv(out / f"{name}-few.csv", index=False)


def splits(labels, train, test):  # type: ignore[no-untyped-def]
    """(way, column, places to fit on, places to test on) of every probe of the step `few`."""
    pairs = [f"{digit} {speaker}" for digit, speaker in zip(labels["label"], labels["speaker"], strict=True)]
    for draw in range(10):
        order = np.random.default_rng(draw).permutation(train)
        one_each = list({pairs[place]: place for place in order}.values())
        for column in labels:
            yield "60_clips", column, one_each, test
    for speaker in sorted(set(labels["speaker"])):
        seen = labels["speaker"] != speaker
        yield "new_speaker", "label", train[seen[train]], test[~seen[test]]


def write_tables(out: Path) -> None:
    frames = []
    for folder in sorted(out.iterdir()):
        name, _, step = folder.name.rpartition("-")
        if step in STEPS and (folder / "table.parquet").exists():
            frames.append(layerwise.LayerTable.load(folder).to_pandas().assign(model=name, step=step))
    values = pd.concat([*frames, *(pd.read_csv(path).assign(rows="-") for path in sorted(out.glob("*-few.csv")))])
    values["metric"] = values.metric.where(values.rows.isin(["raw", "-"]), values.metric + "_" + values.rows)
    values[KEPT].round(4).to_csv(HERE / "values.csv", index=False)
    write_blocks()
    draw(values)


def write_blocks() -> None:
    """The tables of README.md, from values.csv."""
    values = pd.read_csv(HERE / "values.csv")
    page = HERE / "README.md"
    text = page.read_text(encoding="utf-8")
    for name, block in (
        ("probes", probes_table(values)),
        ("few", few_table(values)),
        ("padding", padding_table(values)),
        ("views", views_table(values)),
    ):
        start, end = f"<!-- {name}: written by study.py -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(start, 1)
        text = before + start + block + "\n" + end + rest.split(end, 1)[1]
    page.write_text(text, encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def layers_of(values: pd.DataFrame) -> list[tuple[str, int, str, str]]:
    """(model, layer, norm, what to show as the layer)."""
    found = values[values.step == "probes"][["model", "layer", "norm"]].drop_duplicates()
    found = found.sort_values(["model", "layer", "norm"], ascending=[False, True, False])
    return [(m, k, n, f"{k}, normed" if n == "normed" else str(k)) for m, k, n in found.itertuples(index=False)]


def cell(values: pd.DataFrame, metric: str, *, interval: bool = False, digits: int = 1) -> str:
    found = values[values.metric == metric]
    if not len(found):
        return ""
    row = found.iloc[0]
    low, high = row.ci_low, min(row.ci_high, 100.0)
    return f"{row.value:.{digits}f}" + (f" ({low:.1f} to {high:.1f})" if interval else "")


def probes_table(values: pd.DataFrame) -> str:
    rows = []
    for model, layer, norm, shown in layers_of(values):
        part = values[
            (values.model == model) & (values.layer == layer) & (values.norm == norm) & (values.step == "probes")
        ]
        probes = [cell(part, f"{c}_{p}_accuracy") for c in ("label", "speaker") for p in ("linear", "attention", "knn")]
        weights = [cell(part, f"{c}_weighted_sum_weight", digits=2) for c in ("label", "speaker")]
        rows.append([model, shown, *probes[:3], weights[0], *probes[3:], weights[1]])
    names = ("linear", "attention", "k-NN", "weight in the sum")
    return table(["model", "layer", *(f"{c}: {n}" for c in ("digit", "speaker") for n in names)], rows)


def few_table(values: pd.DataFrame) -> str:
    rows = []
    for model, layer, norm, shown in layers_of(values):
        part = values[
            (values.model == model) & (values.layer == layer) & (values.norm == norm) & (values.step == "few")
        ]
        names = ("label_60_clips", "speaker_60_clips", "label_new_speaker")
        rows.append([model, shown, *(cell(part, name, interval=True) for name in names)])
    return table(["model", "layer", "digit, 60 clips", "speaker, 60 clips", "digit, new speaker"], rows)


def padding_table(values: pd.DataFrame) -> str:
    rows = []
    for model, layer, norm, shown in layers_of(values):
        part = values[(values.model == model) & (values.layer == layer) & (values.norm == norm)]
        metrics, cells = part[part.step == "metrics"], []
        for metric, digits in (("prompt_entropy", 2), ("dataset_entropy", 2), ("curvature", 2)):
            cells += [cell(metrics[metrics.tokens == t], metric, digits=digits) for t in ("all", "with_padding")]
        linear = [cell(part[part.step == "padding"], f"{c}_linear_accuracy") for c in ("label", "speaker")]
        rows.append([model, shown, *cells, *linear])
    head = [f"{m}: {t}" for m in ("prompt entropy", "dataset entropy", "curvature") for t in ("real frames", "all")]
    columns = ["model", "layer", *head, "digit, linear: all", "speaker, linear: all"]
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return table([columns[i] for i in used], [[row[i] for i in used] for row in rows])


def views_table(values: pd.DataFrame) -> str:
    rows = []
    for model, layer, norm, shown in layers_of(values):
        part = values[
            (values.model == model) & (values.layer == layer) & (values.norm == norm) & (values.step == "views")
        ]
        rows.append([model, shown, *(cell(part, name, digits=2) for name in ("infonce", "dime", "lidar"))])
    return table(["model", "layer", "infonce", "dime", "lidar"], rows)


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
