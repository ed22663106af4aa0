"""The tables of README.md, from scores.csv, models.csv and history.csv: means by size and method, learning rates, then
one row per model, means by type of task, choices of blocks.

python studies/shrink/table.py
"""

import math
from pathlib import Path

import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent
MODELS = ["all-minilm-l6-v2", "paraphrase-minilm-l3-v2", "gte-small", "all-mpnet-base-v2", "smollm2-135m"]
LEARNING_RATE = 3e-4  # the default
CHOICE_MINUTES = 5  # of training, for every set of blocks
OVERVIEW = {"cut": ("raw", 0), "linear map": ("linear", 0), "5 minutes": ("distill", 5), "30 minutes": ("distill", 30)}
METHODS = ["whole", "raw", "linear", "distill"]
TYPES = ["STS", "PairClassification", "Classification", "Clustering", "Reranking", "Retrieval"]


def main() -> None:
    scores, models = pd.read_csv(HERE / "scores.csv"), pd.read_csv(HERE / "models.csv")
    by_task = scores.pivot(index="task", columns="cell", values="score")
    overview(by_task, models)
    print()
    learning_rates(by_task, models, pd.read_csv(HERE / "history.csv"))
    print()
    rows_by_model(by_task, models)


def overview(by_task: pd.DataFrame, models: pd.DataFrame) -> None:
    """The mean of every size and method, for blocks that were chosen by measurement."""
    means, most = by_task.mean(), models.groupby("model").texts.transform("max")
    measured = (
        (models.choose == "measured") & (models.source == "wikitext2") & (models.texts == most) & at_default(models)
    )
    rows = []
    for model, group in models[measured | (models.method == "raw")].groupby("model"):
        whole = means[models.cell[(models.model == model) & (models.method == "whole")].iloc[0]]
        for blocks, size in group.groupby("blocks"):
            found = {(row.method, row.minutes): f"{means[row.cell]:.1f}" for row in size.itertuples()}
            last = max(size.itertuples(), key=lambda row: (METHODS.index(row.method), row.minutes))
            kept = f"{100 * means[last.cell] / whole:.0f} %"
            rows.append([
                model, blocks, *(found.get(column, "-") for column in OVERVIEW.values()), f"{whole:.1f}", kept,
                number(last, "query_loss", 3), number(last, "latency", 2),
            ])  # fmt: skip
    rows.sort(key=lambda row: (MODELS.index(row[0]), -row[1]))
    print_table(["model", "blocks", *OVERVIEW, "whole model", "kept of it", "queries lose", "time"], rows)


def learning_rates(by_task: pd.DataFrame, models: pd.DataFrame, history: pd.DataFrame) -> None:
    """Trainings of as many steps at two learning rates: the agreement on the way and at the end, and the scores."""
    agreement = history.pivot(index="step", columns="cell", values="agreement")
    rows = []
    for row in models[~at_default(models)].itertuples():
        cells = [row.cell.partition("-rate-")[0], row.cell]
        steps = agreement[cells].dropna().index
        third = min(steps, key=lambda step: abs(step - row.steps / 3))
        shown = [f"{agreement[cell][step]:.4f}" for step in (third, steps.max()) for cell in cells]
        means = [f"{by_task[cell].mean():.1f}" for cell in cells]
        gaps = difference(by_task[cells[1]] - by_task[cells[0]])
        rows.append([row.model, row.blocks, f"{third} of {row.steps:.0f}", *shown, *means, gaps])
    rows.sort(key=lambda row: (MODELS.index(row[0]), -row[1]))
    print_table(
        ["model", "blocks", "steps", *(f"{when}, {rate}" for when in ("cosine on the way", "at the end", "score")
                                       for rate in ("3e-4", "1e-4")), "difference (95 %)"], rows
    )  # fmt: skip


def rows_by_model(by_task: pd.DataFrame, models: pd.DataFrame) -> None:
    """One row per model, means by type of task, and choices of blocks."""
    models["model_rank"], models["method_rank"] = models.model.map(MODELS.index), models.method.map(METHODS.index)
    models["choice_rank"] = models.choose != "measured"
    models = models.sort_values(
        ["model_rank", "method_rank", "blocks", "minutes", "source", "choice_rank"],
        ascending=[True, True, False, True, False, True], kind="stable",
    )  # fmt: skip
    identity = ["model", "method", "blocks", "kept", "texts"]
    rows = [
        [*cells_of(row), mean_score(by_task[row.cell]), against_whole(row, models, by_task),
         number(row, "mean_cosine", 2), queries(row), number(row, "latency", 2)]
        for row in models.itertuples()
    ]  # fmt: skip
    print_table([*identity, "mean", "against the whole (95 %)", "cosine", "MRR of queries", "time"], rows)
    kinds = pd.read_csv(HERE.parent / "eval" / "scores.csv").groupby("task").type.first()
    by_type = by_task.groupby(kinds).mean().loc[TYPES]
    print()
    print_table(
        [*identity, *(f"{kind} ({(kinds[by_task.index] == kind).sum()})" for kind in TYPES)],
        [[*cells_of(row), *(f"{value:.1f}" for value in by_type[row.cell])] for row in models.itertuples()],
    )

    print()
    print_table(
        ["model", "kept", "mean", "measured minus this (95 %)", "cosine", "MRR of queries"], choices(models, by_task)
    )


def cells_of(row: object) -> list[object]:
    """What a model is: the first cells of its lines."""
    method = f"{row.method} {row.minutes:g} min" if row.minutes else row.method
    if row.minutes and row.learning_rate != LEARNING_RATE:
        method += f", rate {row.learning_rate:.0e}".replace("e-0", "e-")
    texts = "-" if not row.texts else "of the tasks" if row.source == "tasks" else f"{row.texts:,}"
    return [row.model, method, row.blocks or "-", kept_blocks(row), texts]


def at_default(models: pd.DataFrame) -> pd.Series:
    """True for rows at the default learning rate, and for those without training."""
    return models.learning_rate.isna() | (models.learning_rate == LEARNING_RATE)


def kept_blocks(row: object) -> str:
    """The blocks of a shrunk model, and how they were chosen."""
    if row.method not in ("linear", "distill"):
        return "-"
    return f"{row.kept} ({'random' if ',' in row.choose else row.choose})"


def mean_score(scores: pd.Series) -> str:
    """The mean over tasks, and their number if some were left out."""
    return f"{scores.mean():.1f}" + (f" ({scores.count()} tasks)" if scores.hasnans else "")


def against_whole(row: object, models: pd.DataFrame, by_task: pd.DataFrame) -> str:
    """The mean difference from the whole model, with its interval over tasks."""
    whole = models[(models.model == row.model) & (models.method == "whole")]
    if not len(whole) or row.method == "whole":
        return "-"
    return difference(by_task[row.cell] - by_task[whole.cell.iloc[0]])


def difference(gaps: pd.Series) -> str:
    """The mean over tasks, with its 95 % interval."""
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*interval(gaps))


def interval(gaps: pd.Series) -> tuple[float, float, float]:
    """The mean over tasks, and the ends of its 95 % interval."""
    gaps = gaps.dropna()
    error = t.ppf(0.975, len(gaps) - 1) * gaps.std() / math.sqrt(len(gaps))
    return gaps.mean(), gaps.mean() - error, gaps.mean() + error


def choices(models: pd.DataFrame, by_task: pd.DataFrame) -> list[list[object]]:
    """The sets of blocks that were trained for equally long, each against the measured one."""
    rows: list[list[object]] = []
    trained = (models.method == "distill") & (models.minutes == CHOICE_MINUTES) & (models.source != "tasks")
    equal = models[trained & at_default(models)]
    for (model, _), group in equal.groupby(["model", "blocks"], sort=False):
        measured = group[group.choose == "measured"]
        for row in group.itertuples() if len(group) > 1 and len(measured) else ():
            gaps = by_task[measured.cell.iloc[0]] - by_task[row.cell]
            shown = "-" if row.choose == "measured" else difference(gaps)
            mean = f"{by_task[row.cell].mean():.1f}"
            rows.append([model, kept_blocks(row), mean, shown, number(row, "mean_cosine", 2), queries(row)])
    return rows


def number(row: object, name: str, digits: int) -> str:
    value = getattr(row, name)
    return "-" if value != value else f"{value:.{digits}f}"


def queries(row: object) -> str:
    found = number(row, "query_mrr", 3)
    return found if found == "-" else f"{found} of {number(row, 'whole_mrr', 3)}"


def print_table(head: list[str], rows: list[list[object]]) -> None:
    lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in (head, *rows)]
    print(lines[0], "|" + "---|" * len(head), *lines[1:], sep="\n")


if __name__ == "__main__":
    main()
