"""The picture and the table of the front page: what each way of making an embedding model cheaper costs and keeps.

    python studies/shrink/front.py MODELS    # times the whole models, a minute on one core; writes front.csv
    python studies/shrink/front.py           # draws docs/images/cheaper.svg and prints the table, from front.csv

Scores are those of the studies of shrink and static, on the same 22 tasks. The time of a whole model is measured here,
by the CPU time of one thread, in turns; that of what was made of it is its share of that time in those studies.
"""

import sys
import time
from pathlib import Path

import matplotlib
import pandas as pd
from table import at_default, interval, print_table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE, PICTURE = HERE / "front.csv", ROOT / "docs" / "images" / "cheaper.svg"
BEGIN, END = "<!-- cheaper: written by studies/shrink/front.py -->", "<!-- end of cheaper -->"  # in README.md
SEARCH = "WikiQARetrieval"
WAYS = {
    "whole": "whole model", "cut": "first blocks only", "map": "fewer blocks + linear map",
    "trained": "... trained for 30 minutes", "static": "no blocks (static)", "model2vec": "model2vec",
}  # fmt: skip
SIZES = {"all-minilm-l6-v2": (5, 3), "gte-small": (9, 6), "all-mpnet-base-v2": (9, 6)}  # with a map, and trained
NAMES = {
    "all-minilm-l6-v2": "all-MiniLM-L6-v2", "gte-small": "gte-small", "all-mpnet-base-v2": "all-mpnet-base-v2",
    "paraphrase-minilm-l3-v2": "paraphrase-MiniLM-L3-v2",
}  # fmt: skip
COLOURS = dict(zip(NAMES, ("#1b7837", "#2166ac", "#b2182b", "#555555"), strict=True))
LABELS = dict(zip(NAMES, [((-4, 16), "right"), ((8, 6), "left"), ((8, 6), "left"), ((-10, -22), "right")], strict=True))
MARKERS = dict(zip(WAYS, ("o", "x", "^", "s", "D", "+"), strict=True))
TEXTS, ROUNDS = 128, 5


def measured_times(models: Path) -> dict[str, float]:
    """CPU milliseconds per text of each whole model: the median of several rounds in turns."""
    import torch
    from sentence_transformers import SentenceTransformer

    from layerwise.inputs.text import texts

    torch.set_num_threads(1)
    lines = [one.text for one in texts("demo", limit=TEXTS).examples()]
    loaded = {name: SentenceTransformer(str(models / name), device="cpu") for name in NAMES}
    seconds: dict[str, list[float]] = {name: [] for name in loaded}
    for _ in range(ROUNDS + 1):  # the first warms up
        for name, model in loaded.items():
            began = time.process_time()
            model.encode(lines, batch_size=32)
            seconds[name].append(time.process_time() - began)
    return {name: 1000 * sorted(found[1:])[ROUNDS // 2] / len(lines) for name, found in seconds.items()}


def cells() -> pd.DataFrame:
    """What is shown: model, way, blocks, its scores by task, and its share of the whole model's time."""
    scores, models = pd.read_csv(HERE / "scores.csv"), pd.read_csv(HERE / "models.csv")
    by_cell = {cell: group.set_index("task").score for cell, group in scores.groupby("cell")}
    shown = models[at_default(models) & (models.source == "wikitext2") & models.model.isin(NAMES)]
    rows = []
    for row in shown.itertuples():
        blocks, most = int(row.blocks), shown.texts[shown.model == row.model].max()
        is_main = row.choose in ("measured", "prefix", "-") and row.texts in (0, most)
        way = {"whole": "whole", "raw": "cut", "linear": "map", "distill": "trained"}[row.method]
        sizes = SIZES.get(row.model, ())
        if not is_main or (way == "trained" and row.minutes != 30) or (way in ("map", "cut") and blocks not in sizes):
            continue
        # A cut has the blocks of the mapped model, without the map, whose time is small beside a block's.
        share = 1.0 if way == "whole" else row.latency
        rows.append((row.model, way, blocks, by_cell[row.cell], share))
    static, costs = (pd.read_csv(HERE.parent / "static" / name) for name in ("scores.csv", "costs.csv"))
    fast = costs.set_index(["model", "method"]).times_as_fast
    for (model, way), group in static[static.method.isin(("static", "model2vec"))].groupby(["model", "method"]):
        rows.append((model, way, 0, group.set_index("task").score, 1 / fast[model, way]))
    found = pd.DataFrame(rows, columns=["model", "way", "blocks", "scores", "share"])
    mapped = found[found.way == "map"].set_index(["model", "blocks"]).share
    of_cut = [mapped.get((row.model, row.blocks)) for row in found.itertuples()]
    return found.assign(share=found.share.where(found.way != "cut", of_cut))


def front_table(times: dict[str, float]) -> pd.DataFrame:
    """One row per point of the picture. Intervals: 95 %, of the difference from the whole model, over tasks."""
    found = cells()
    whole = found[found.way == "whole"].set_index("model").scores
    rows = []
    for row in found.itertuples():
        gap = row.scores - whole[row.model]
        middle, low, high = interval(gap)
        mean = row.scores.mean()
        rows.append({
            "model": row.model, "way": row.way, "blocks": row.blocks, "mean": mean, "low": mean - middle + low,
            "high": mean - middle + high, "difference": middle, "worst_task": gap.idxmin(), "worst": gap.min(),
            "gap_low": low, "gap_high": high, "search": gap[SEARCH], "milliseconds": row.share * times[row.model],
            "time": row.share,
        })  # fmt: skip
    ranks = {name: place for place, name in enumerate([*NAMES, *WAYS])}
    table = pd.DataFrame(rows).sort_values("blocks", ascending=False, kind="stable")
    return table.sort_values(["model", "way"], key=lambda names: names.map(ranks), kind="stable")


def draw(table: pd.DataFrame, path: Path) -> None:
    """Quality against time: one colour per model, one marker per way of making it cheaper."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # The same file from the same table, with text that search engines and screen readers find.
    matplotlib.rcParams.update({"svg.hashsalt": "layerwise", "svg.fonttype": "none", "font.size": 11})
    figure, axes = plt.subplots(figsize=(8.6, 4.6), layout="constrained")
    for model, colour in COLOURS.items():
        rows = table[table.model == model]
        best = rows.way.isin(("whole", "trained", "static")) | (
            rows.way.eq("map") & rows.blocks.eq(rows.blocks[rows.way == "map"].max())
        )
        line = rows[best].sort_values("milliseconds")
        axes.plot(line.milliseconds, line["mean"], color=colour, linewidth=1, alpha=0.35)
        for row in rows.itertuples():
            axes.errorbar(
                row.milliseconds, row.mean, yerr=[[row.mean - row.low], [row.high - row.mean]], color=colour,
                marker=MARKERS[row.way], markersize=7, linestyle="none", elinewidth=0.8, alpha=0.9,
            )  # fmt: skip
        whole = rows[rows.way == "whole"].iloc[0]
        place, side = LABELS[model]
        axes.annotate(NAMES[model], (whole.milliseconds, whole["mean"]), textcoords="offset points", xytext=place,
                      ha=side, color=colour, fontsize=10)  # fmt: skip
    for way, text in WAYS.items():
        axes.plot([], [], color="#333333", marker=MARKERS[way], linestyle="none", label=text)
    axes.set(xscale="log", xlabel="CPU milliseconds per text (log scale)", ylabel="mean of 22 tasks")
    axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_xlim(right=table.milliseconds.max() * 5)
    axes.grid(alpha=0.2)
    axes.legend(loc="lower left", bbox_to_anchor=(0.12, 0.02), fontsize=9, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def print_front(table: pd.DataFrame) -> None:
    """The table of the README: what each way costs and keeps, of each model."""
    rows, whole = [], table[table.way == "whole"].set_index("model")["mean"]
    for row in table.itertuples():
        most, half = SIZES.get(row.model, (0, 0))
        kept = {
            ("map", most): f"{most} of {2 * half} blocks, linear map",
            ("trained", half): f"{half} of {2 * half}, trained",
            ("static", 0): "no blocks (static)",
        }.get((row.way, row.blocks))
        if kept is not None:
            task = row.worst_task.replace("Classification", "").replace("Retrieval", "")
            share = f"{row.time:.2f}" if row.time > 0.05 else f"1/{1 / row.time:.0f}"
            mean = f"{row.difference:+.1f} ({row.gap_low:+.1f} to {row.gap_high:+.1f})"
            rows.append(
                [
                    f"{NAMES[row.model]} ({whole[row.model]:.1f})",
                    kept,
                    share,
                    mean,
                    f"{row.worst:+.1f} ({task})",
                    f"{row.search:+.1f}",
                ]
            )
    print_table(["model (its mean)", "what is kept", "time", "mean (95 %)", "worst task", "search (WikiQA)"], rows)


def main() -> None:
    if sys.argv[1:]:
        front_table(measured_times(Path(sys.argv[1]))).round(6).to_csv(TABLE, index=False)
    table = pd.read_csv(TABLE)
    draw(table, PICTURE)
    print_front(table)


if __name__ == "__main__":
    main()
