"""The tables of losses.csv and search.csv on the pages of this study and of shrink, written between their marks.

python studies/shrink/losses_table.py
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent
BEGIN, END = "<!-- losses: written by studies/shrink/losses_table.py -->", "<!-- end of losses -->"
CELL = re.compile(r"(?P<method>linear|trained)(?P<requests>-requests)?(-(?P<minutes>\d+)min-seed(?P<seed>\d+))?")
LIMIT = -3.0  # points; a task whose interval lies wholly below it counts as lost
HEAD = (
    "model", "what", "mean (95 %)", "kept", "worst task (95 %)", f"tasks below {LIMIT:g}", "Banking77", "WikiQA",
    "MRR in the old index", "recall@10 there",
)  # fmt: skip
# The pages, and the columns that each leaves out.
PAGES = {
    HERE / "README.md": (),
    HERE.parents[1] / "docs" / "shrink.md": ("kept", "WikiQA", "recall@10 there"),
}  # fmt: skip


def table_rows() -> Iterator[tuple[str, ...]]:
    """One row per small model: linear maps, then trained ones, first without texts of a task."""
    losses, search = pd.read_csv(HERE / "losses.csv"), pd.read_csv(HERE / "search.csv")
    for (whole, small), of_tasks in sorted(losses.groupby(["whole", "small"]), key=lambda group: place(*group[0])):
        tasks = of_tasks.set_index("task")
        worst = tasks.difference.idxmin()
        (found,) = search[(search.model == small) & (search.case == "new old")].itertuples()
        yield (
            whole, way_words(small.removeprefix(f"{whole}-")), mean_words(tasks.difference),
            f"{100 * tasks.score.mean() / tasks.whole_score.mean():.1f} %",
            f"{worst} {interval(tasks.difference[worst], tasks.low[worst], tasks.high[worst])}",
            f"{(tasks.high < LIMIT).sum()} of {len(tasks)}", f"{tasks.difference['Banking77Classification']:+.1f}",
            f"{tasks.difference['WikiQARetrieval']:+.1f}",
            *(interval(*(getattr(found, f"{name}_{part}") for part in ("gap", "low", "high")), 3)
              for name in ("mrr", "recall")),
        )  # fmt: skip


MODELS = ["all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2", "bge-small-en-v1.5", "e5-small"]


def place(whole: str, small: str) -> tuple[int, str, bool]:
    """By the order of the models; the held-out ones are last."""
    name = small.removeprefix(f"{whole}-")
    return MODELS.index(whole), name.partition("-")[0], "requests" in name


def way_words(name: str) -> str:
    """`half, trained, texts of the domain` for the name of a cell of cheaper.py."""
    cell = CELL.fullmatch(name)
    assert cell is not None, name
    made = "half, trained" if cell["method"] == "trained" else "three quarters, linear map"
    return made + (", with requests" if cell["requests"] else "")


def mean_words(differences: pd.Series) -> str:
    """The mean over tasks with its interval by Student's t."""
    error = t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / len(differences) ** 0.5
    mean = differences.mean()
    return interval(mean, mean - error, mean + error)


def interval(value: float, low: float, high: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def markdown(left_out: Collection[str] = ()) -> str:
    shown = [place for place, name in enumerate(HEAD) if name not in left_out]
    head, *rows = (f"| {' | '.join(cells[place] for place in shown)} |" for cells in (HEAD, *table_rows()))
    return "\n".join([head, "|---" * len(shown) + "|", *rows])


def main() -> None:
    for page, left_out in PAGES.items():
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{markdown(left_out)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
