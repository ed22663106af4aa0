"""The picture and the table of the front page: what each way of making an embedding model cheaper costs and keeps.

    python studies/shrink/front.py    # from losses.csv, search.csv and ways.csv

Times are those that `layerwise shrink` measured, relative to the whole model. That of trained blocks is that of as many
blocks with a linear map, and those of static models made by others are that of ours.
"""

import re
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from losses_table import interval, mean_interval

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PICTURE, PAGE = ROOT / "docs" / "images" / "cheaper.svg", ROOT / "README.md"
BEGIN, END = "<!-- cheaper: written by studies/shrink/front.py -->", "<!-- end of cheaper -->"
MODELS = {  # name, blocks
    "all-minilm-l6-v2": ("all-MiniLM-L6-v2", 6), "gte-small": ("gte-small", 12),
}  # fmt: skip
WAYS = {  # marker, and what the table of the front page calls it; the others are in the picture only
    "three quarters": ("^", "{quarters} of {blocks} blocks, linear map"), "half": ("v", ""),
    "half, trained": ("s", "{half} of {blocks} blocks, trained for 15 minutes"),
    "half, trained, with requests": ("P", ""), "8 bits": ("o", "8 bits, ONNX Runtime"),
    "static": ("D", "no blocks (static)"), "model2vec": ("+", ""), "tokenlearn": ("x", ""),
}  # fmt: skip
FASTEST, SLOWEST = "1 short", "32 long"


def way_of(small: str, blocks: int) -> tuple[str, str] | None:
    """The way, and the way of ways.csv that has its time; None for what is not shown."""
    quarters, half = f"blocks-{3 * blocks // 4}", f"blocks-{blocks // 2}"
    known = {
        "int8": ("8 bits", "int8"), "static": ("static", "static"), "model2vec": ("model2vec", "static"),
        "tokenlearn": ("tokenlearn", "static"), half: ("half", half),
    }  # fmt: skip
    if re.fullmatch(r".*-linear", small):
        return "three quarters", quarters
    if match := re.fullmatch(r".*-trained(-requests)?-15min-seed0", small):
        return "half, trained" + (", with requests" if match[1] else ""), half
    return known.get(small)


def points() -> pd.DataFrame:
    """One row per model and way. Differences from the whole model, in points; intervals over tasks."""
    losses, search, ways = (pd.read_csv(HERE / f"{name}.csv") for name in ("losses", "search", "ways"))
    of_way, rows = ways.set_index(["model", "way"]), []
    for (model, small), group in losses.groupby(["whole", "small"]):
        if model not in MODELS or (found := way_of(small, MODELS[model][1])) is None:
            continue
        tasks, times = group.set_index("task").difference, of_way.loc[(model, found[1])]
        of_small = search[(search.whole == model) & (search.model == small) & (search.case == "new old")]
        in_index = of_small[["mrr_gap", "mrr_low", "mrr_high"]].to_numpy()  # no row: another space, or not measured
        middle, low, high = mean_interval(tasks)
        rows.append({
            "model": model, "way": found[0], "short": times[f"{FASTEST} ratio"], "long": times[f"{SLOWEST} ratio"],
            "mean": middle, "low": low, "high": high, "worst_task": tasks.idxmin(), "worst": tasks.min(),
            "search": tasks["WikiQARetrieval"], "in_index": interval(*in_index[0], 3) if len(in_index) else "-",
        })  # fmt: skip
    table = pd.DataFrame(rows)
    order = {name: place for place, name in enumerate([*MODELS, *WAYS])}
    return table.sort_values(["model", "way"], key=lambda names: names.map(order), ignore_index=True)


def front(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that no other row of the same model beats in both time and mean."""
    whole = pd.DataFrame([{"way": "whole", "short": 1.0, "mean": 0.0}])
    rows = pd.concat([whole, table]).sort_values(["short", "mean"], ascending=[True, False])
    return rows[rows["mean"] > rows["mean"].cummax().shift(fill_value=-100)]


def draw(table: pd.DataFrame, path: Path) -> None:
    """Per model, points lost against time: the mean of 22 tasks, and below it the worst task."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # The same file from the same table, with text that search engines and screen readers find.
    matplotlib.rcParams.update({"svg.hashsalt": "layerwise", "svg.fonttype": "none", "font.size": 11})
    figure, several = plt.subplots(1, len(MODELS), figsize=(9.4, 4.4), layout="constrained", sharey=True)
    colours = dict(zip(WAYS, plt.get_cmap("tab10").colors, strict=False))
    for axes, (model, (name, _)) in zip(several, MODELS.items(), strict=True):
        rows = table[table.model == model]
        best = front(rows)
        axes.plot(best.short, best["mean"], color="#999999", linewidth=1, zorder=0)
        axes.plot(1, 0, marker="*", markersize=11, color="black", linestyle="none")
        for row in rows.itertuples():
            place = row.short * (1.07 if "requests" in row.way else 1)  # beside the model that took as long
            style: dict[str, Any] = {"color": colours[row.way], "marker": WAYS[row.way][0], "linestyle": "none"}
            axes.plot([place] * 2, [row.mean, row.worst], color=style["color"], linewidth=0.7, linestyle=":")
            axes.errorbar(place, row.mean, [[row.mean - row.low], [row.high - row.mean]], elinewidth=0.9, **style)
            axes.plot(place, row.worst, fillstyle="none", markersize=5, **style)
        axes.axhline(0, color="#cccccc", linewidth=0.8, zorder=0)
        axes.set(xscale="log", title=name, xlabel="time of one short text (whole model: 1)", xlim=(0.012, 1.35))
        axes.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5, 1], ["1/50", "1/20", "1/10", "1/5", "1/2", "1"])
        axes.minorticks_off()
        axes.grid(alpha=0.2)
    several[0].set_ylabel("points gained or lost, 22 tasks")
    shown = set(table.way)
    for way, (marker, _) in WAYS.items():
        if way in shown:
            several[0].plot([], [], color=colours[way], marker=marker, linestyle="none", label=way)
    several[0].plot([], [], color="black", marker="*", linestyle="none", label="whole model")
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def markdown(table: pd.DataFrame) -> str:
    head = ["model", "what is kept", "time (one short; 32 long texts)", "mean (95 %)", "worst task", "search (WikiQA)",
            "MRR in your old index"]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for row in table.itertuples():
        name, blocks = MODELS[row.model]
        if words := WAYS[row.way][1].format(quarters=3 * blocks // 4, half=blocks // 2, blocks=blocks):
            times = [f"{time:.2f}" if time > 0.05 else f"1/{1 / time:.0f}" for time in (row.short, row.long)]
            lines.append([
                name, words, "; ".join(times), interval(row.mean, row.low, row.high),
                f"{row.worst:+.1f} ({re.sub('Classification|Retrieval|Clustering|Reranking', '', row.worst_task)})",
                f"{row.search:+.1f}", row.in_index,
            ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    table = points()
    draw(table, PICTURE)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{markdown(table)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
