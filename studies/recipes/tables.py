"""The tables of README.md and docs/pick.md, and the picture of layers, from the committed CSV files alone.

    python studies/recipes/tables.py            # writes the blocks between the marks, and layers.png
    python studies/recipes/tables.py --check    # fails if a page does not contain what would be written

test.csv and gains.csv are what `layerwise lab audit --protocol` saved and printed; README.md describes the others.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = [HERE / "README.md", ROOT / "docs" / "pick.md", ROOT / "README.md"]
NAMES = {
    "smollm2-135m": "SmolLM2-135M", "gemma3-270m": "Gemma3-270M", "stories15m": "stories15M",
    "stories260k": "stories260K",
    "all-minilm-l6-v2": "all-MiniLM-L6-v2", "paraphrase-minilm-l3-v2": "paraphrase-MiniLM-L3-v2",
    "gte-small": "gte-small", "all-mpnet-base-v2": "all-mpnet-base-v2",
}  # fmt: skip
TYPES = {
    "STS": "STS", "PairClassification": "pairs", "Classification": "classes", "Clustering": "clustering",
    "Reranking": "reranking", "Retrieval": "retrieval",
}  # fmt: skip
LANGUAGE_MODELS = ("smollm2-135m", "gemma3-270m")  # of the models in test.csv
LAYER_TYPES = ("STS", "Classification", "Clustering", "Retrieval")  # of the tasks in layers.csv
RECIPES = {
    "last": "last layer, mean", "static": "token embeddings, whitened", "earlier": "recipe of the earlier rule",
    "template": "prompteol as published (last layer, last token, no map)",
    "all_dimensions": "**what `pick` recommends**", "chosen": "the same in 256 dimensions, as fixed in the protocol",
}  # fmt: skip


def main() -> None:
    blocks, check = make_blocks(), "--check" in sys.argv
    wrong = [str(page) for page in PAGES if not write_blocks(page, blocks, check=check)]
    if wrong:
        sys.exit(f"not up to date: {', '.join(wrong)}; run python studies/recipes/tables.py")
    if not check and (HERE / "layers.csv").exists():
        draw_layers()


def make_blocks() -> dict[str, str]:
    blocks = {"test": test_table(), "gains": gains_table(), "front": front_table(), "ideas": ideas_table()}
    made = {"layers": layers_table, "few_labels": few_labels_table, "own_texts": own_texts_table}
    made |= {"own_probes": own_probes_table, "fit_texts": fit_texts_table}
    return blocks | {name: make() for name, make in made.items() if (HERE / f"{name}.csv").exists()}


def write_blocks(page: Path, blocks: dict[str, str], *, check: bool) -> bool:
    """Replaces what stands between the marks; False if `check` is set and something would change."""
    text = page.read_text(encoding="utf-8")
    written = text
    for name, block in blocks.items():
        start, end = f"<!-- {name}: written by tables.py -->\n", f"<!-- end of {name} -->"
        if start in written:
            before, rest = written.split(start, 1)
            written = before + start + block + "\n" + end + rest.split(end, 1)[1]
    if not check:
        page.write_text(written, encoding="utf-8")
    return written == text or not check


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def interval(row: pd.Series) -> str:
    return f"{row.gain:+.1f} ({row.low:.1f} to {row.high:.1f})"


def type_means(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per model and recipe: the mean of each type, and the mean of the types."""
    means = scores.groupby(["model", "recipe", "type"]).score.mean().unstack()[list(TYPES)]
    return means.assign(mean=means.mean(axis=1))


def recommended(model: str) -> str:
    """The recipe of protocol.json that `pick` recommends: the chosen one, in all its dimensions where it has a map."""
    return "all_dimensions" if model in LANGUAGE_MODELS else "chosen"


def test_table() -> str:
    """Scores on the test tasks, by model, recipe and type."""
    means = type_means(pd.read_csv(HERE / "test.csv"))
    rows = []
    for model, shown in NAMES.items():
        for recipe, words in RECIPES.items():
            if (model, recipe) in means.index:
                words = RECIPES["all_dimensions"] if recipe == recommended(model) else words
                scores = means.loc[(model, recipe)]
                rows.append([shown, words, *(f"{scores[kind]:.1f}" for kind in TYPES), f"{scores['mean']:.2f}"])
                shown = ""
    return table(["model", "recipe", *TYPES.values(), "mean of types"], rows)


def gains_table() -> str:
    """Gains of what `pick` recommends, with intervals over tasks."""
    gains = pd.read_csv(HERE / "gains.csv")
    chosen = gains[gains.recipe == gains.model.map(recommended)].set_index(["model", "over"])
    rows = [
        [NAMES[model], *(interval(chosen.loc[(model, over)]) for over in ("last", "static"))]
        for model in LANGUAGE_MODELS
    ]
    kept = [name for model, name in NAMES.items() if (model, "last") in chosen.index][2:]
    rows.append([", ".join(kept), "0.0 (keeps the last layer)", ""])
    return table(["model", "gain over the last layer", "gain over whitened token embeddings"], rows)


def front_table() -> str:
    """The two language models: score and gain of the last layer, of the strongest simple baseline and of pick."""
    means = type_means(pd.read_csv(HERE / "test.csv"))["mean"]
    gains = pd.read_csv(HERE / "gains.csv").query("over == 'last'").set_index(["model", "recipe"])
    words = {
        "last": "last layer", "static": "whitened token embeddings, no transformer block",
        "template": "the template prompteol as published", "all_dimensions": "what `pick` recommends",
    }  # fmt: skip
    rows = []
    for recipe, text in words.items():
        row = [text]
        for model in LANGUAGE_MODELS:
            gain = "" if recipe == "last" else interval(gains.loc[(model, recipe)])
            row += [f"{means[(model, recipe)]:.1f}", gain]
        rows.append(row)
    head = ["", "SmolLM2-135M", "gain over its last layer", "Gemma3-270M", "gain over its last layer"]
    return table(head, rows)


def ideas_table() -> str:
    """What each idea gave on the development tasks, in the order in which they were tried."""
    rows = []
    for (number, idea), group in pd.read_csv(HERE / "ideas.csv").groupby(["number", "idea"], sort=False):
        head = [str(number), idea]
        for recipe, part in group.groupby("recipe", sort=False):
            means = part.set_index("model")["mean"]
            scores = [f"{means[m]:.2f}" if m in means else "" for m in LANGUAGE_MODELS]
            rows.append([*head, f"{recipe}", *scores])
            head = ["", ""]
    return table(["", "idea", "recipe", "SmolLM2-135M", "Gemma3-270M"], rows)


def layers_table() -> str:
    """The best layer and its gain over the last, for each input, pooling and map; and the best layer of each type."""
    layers, rows = pd.read_csv(HERE / "layers.csv"), []
    settings = ["model", "template", "pooling", "map"]
    for (model, template, pooling, map_name), curve in layers.groupby(settings, sort=False):
        curve = curve.sort_values("layer").set_index("layer")
        depth = curve.index.max() - 1  # the entry behind it is the last layer after the final norm
        shown = {layer: f"{layer}" if layer <= depth else f"{depth}, normed" for layer in curve.index}
        best, last = curve["mean"].idxmax(), curve["mean"].iloc[-1]
        by_type = [shown[curve[kind].idxmax()] for kind in LAYER_TYPES]
        rows.append([f"{NAMES[model]} ({depth})", "no template" if template == "plain" else template, pooling,
                     map_name, shown[best], f"{curve['mean'][best]:.1f}", f"{last:.1f}",
                     f"{curve['mean'][best] - last:+.1f}", *by_type])  # fmt: skip
    order = {name: i for i, name in enumerate(NAMES.values())}
    rows.sort(key=lambda row: (order[row[0].partition(" (")[0]], row[2] != "mean"))
    head = ["model (depth)", "input", "pooling", "map", "best layer", "its score", "last, normed", "gain"]
    return table([*head, *(f"best for {TYPES[kind]}" for kind in LAYER_TYPES)], rows)


WAYS = {"sentences": "bundled sentences", "pick": "`pick --labels`", "labels": "labels alone", "h_score": "H-score",
        "log_me": "LogME"}  # fmt: skip


def few_labels_scores() -> pd.DataFrame:
    """Scores per model and task; language models choose among layers and templates, the others among layers."""
    scores = pd.read_csv(HERE / "few_labels.csv")
    with_templates = set(scores[scores.pool == "all"].model)
    return scores[(scores.pool == "all") == scores.model.isin(with_templates)]


def shares(scores: pd.DataFrame) -> pd.Series:
    """How much of the gap between the last layer and the best candidate each way recovers, in percent."""
    means = scores.groupby("model")[["last", "best", *WAYS]].mean().mean()
    return 100 * (means[list(WAYS)] - means["last"]) / (means.best - means["last"])


def share_intervals(scores: pd.DataFrame) -> pd.DataFrame:
    """95 % intervals of the shares, by drawing tasks again; every model has the same tasks."""
    rng, tasks = np.random.default_rng(0), scores.task.unique()
    by_task = dict(list(scores.groupby("task")))
    drawn = [shares(pd.concat([by_task[t] for t in rng.choice(tasks, len(tasks))])) for _ in range(1000)]
    return pd.DataFrame(drawn).quantile([0.025, 0.975])


def few_labels_table() -> str:
    scores, rows = few_labels_scores(), []
    for model, shown in NAMES.items():
        part = scores[scores.model == model]
        if len(part):
            last, best = part["last"].mean(), part.best.mean()
            rows.append([shown, f"{last:.1f}", f"{best:.1f}", *(f"{value:.0f} %" for value in shares(part))])
    groups = {"all": scores, "without SmolLM2-135M": scores[scores.model != "smollm2-135m"]}
    for shown, part in groups.items():
        intervals = share_intervals(part)
        cells = [
            f"{value:.0f} % ({intervals[way].iloc[0]:.0f} to {intervals[way].iloc[1]:.0f})"
            for way, value in shares(part).items()
        ]
        rows.append([f"**{shown}** ({part.model.nunique()} models)", f"{part['last'].mean():.1f}",
                     f"{part.best.mean():.1f}", *cells])  # fmt: skip
    return table(["model", "last layer", "best candidate per task", *WAYS.values()], rows)


def own_texts_table() -> str:
    scores = pd.read_csv(HERE / "own_texts.csv")
    wide = scores.pivot_table(index=["model", "task"], columns=["recipe", "map from"], values="score", sort=False)
    columns = [(r, m) for r in ("static", "chosen") for m in ("WikiText-2", "own texts")]
    rows = []
    for model, shown in NAMES.items():
        if model in wide.index:
            for task, line in wide.loc[model].iterrows():
                rows.append([shown, str(task), *(f"{line[c]:.1f}" for c in columns)])
                shown = ""
            rows.append(["", "**mean**", *(f"**{wide.loc[model][c].mean():.1f}**" for c in columns)])
    head = [f"{'token embeddings, whitened' if r == 'static' else 'chosen'}: {m}" for r, m in columns]
    return table(["model", "task", *head], rows)


def fit_texts_table() -> str:
    scores, rows = pd.read_csv(HERE / "fit_texts.csv").query("dims == 0"), []
    words = {"WikiText-2": "1,000 of WikiText-2", "200 of WikiText-2": "200 of WikiText-2",
             "demo": "the 200 demo texts", "demo sentences": "the demo texts and their sentences (default)",
             "bundled": "the 630 sentences of the probes", "half own": "500 of the task, 500 of WikiText-2",
             "own": "those of the task"}  # fmt: skip
    for model in LANGUAGE_MODELS:
        means = scores[scores.model == model].pivot_table(index="texts", columns="type", values="score")[[*LAYER_TYPES]]
        for number, (name, shown) in enumerate(words.items()):
            cells = [f"{value:.1f}" for value in (*means.loc[name], means.loc[name].mean())]
            rows.append([NAMES[model] if not number else "", shown, *cells])
    return table(["model", "texts for the map", *(TYPES[kind] for kind in LAYER_TYPES), "mean"], rows)


def own_probes_table() -> str:
    scores, rows = pd.read_csv(HERE / "own_probes.csv"), []
    ways = {"last layer": "last layer", "sentences": "bundled sentences", "halves": "halves", "views": "views",
            "lexical": "lexical", "best": "best candidate per type"}  # fmt: skip
    for model, shown in NAMES.items():
        part = scores[scores.model == model].pivot_table(index="type", columns="way", values="score")
        if len(part):
            rows.append([shown, *(f"{part[way].mean():.1f}" if way in part else "" for way in ways)])
    return table(["model", *ways.values()], rows)


def draw_layers() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    layers = pd.read_csv(HERE / "layers.csv")
    models = [m for m in NAMES if m in set(layers.model)]
    figure, axes = plt.subplots(2, len(models), figsize=(3.4 * len(models), 6.2), sharey="col", squeeze=False)
    colours = dict(zip(dict.fromkeys(layers.template), ["black", "C0", "C1", "C2", "C3", "C4", "C5"], strict=False))
    for column, model in enumerate(models):
        for row, map_name in enumerate(("none", "remove_top:8")):
            axis = axes[row, column]
            part = layers[(layers.model == model) & (layers["map"] == map_name)]
            for (template, pooling), curve in part.groupby(["template", "pooling"], sort=False):
                curve = curve.sort_values("layer")
                depth = curve.layer.max() - 1
                axis.plot(
                    curve.layer / depth, curve["mean"], "-" if pooling == "mean" else "--", color=colours[template],
                    linewidth=2, label=f"{'no template' if template == 'plain' else template}, {pooling}",
                )  # fmt: skip
            axis.set_title(f"{NAMES[model]}, {'no map' if map_name == 'none' else map_name}", fontsize=10)
            axis.grid(alpha=0.3)
            if row:
                axis.set_xlabel("depth (rightmost: after the norm)")
            if not column:
                axis.set_ylabel("mean of four types")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(HERE / "layers.png", dpi=100)


if __name__ == "__main__":
    main()
