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
LIMIT = -3.0  # points; a task whose interval lies wholly below it counts as lost
HEAD = (
    "model", "what", "mean (95 %)", "kept", "worst task (95 %)", f"tasks below {LIMIT:g}", "Banking77", "WikiQA",
    "MRR in the old index", "recall@10 there",
)  # fmt: skip
# The pages, and the columns and ways that each leaves out.
PAGES = {
    HERE / "README.md": (),
    HERE.parents[1] / "docs" / "shrink.md": (
        "kept", "tasks below -3", "Banking77", "WikiQA", "recall@10 there", "half, trained, with requests",
        "half, linear map", "another model: paraphrase-MiniLM-L3-v2",
        "half, trained in bfloat16", "all-mpnet-base-v2",
        "static, by model2vec", "static, by tokenlearn",
    ),
}  # fmt: skip


def table_rows() -> Iterator[tuple[str, ...]]:
    """One row per small model: in the order of MODELS and WAYS."""
    losses, search = pd.read_csv(HERE / "losses.csv"), pd.read_csv(HERE / "search.csv")
    for (whole, small), of_tasks in sorted(losses.groupby(["whole", "small"]), key=lambda group: place(*group[0])):
        tasks = of_tasks.set_index("task")
        worst = tasks.difference.idxmin()
        of_small = search[(search.whole == whole) & (search.model == small)]
        in_index = of_small[of_small.case == "new old"]  # none for a model of another space, or not measured
        yield (
            whole, WAYS[way_of(whole, small)], interval(*mean_interval(tasks.difference)),
            f"{100 * tasks.score.mean() / tasks.whole_score.mean():.1f} %",
            f"{worst} {interval(tasks.difference[worst], tasks.low[worst], tasks.high[worst])}",
            f"{(tasks.high < LIMIT).sum()} of {len(tasks)}", f"{tasks.difference['Banking77Classification']:+.1f}",
            f"{tasks.difference['WikiQARetrieval']:+.1f}",
            *(interval(*in_index[[f"{name}_gap", f"{name}_low", f"{name}_high"]].iloc[0], 3) if len(in_index) else "-"
              for name in ("mrr", "recall")),
        )  # fmt: skip


MODELS = ["all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2", "bge-small-en-v1.5", "e5-small"]  # held-out ones last
WAYS = {
    "int8": "8 bits",
    "linear": "three quarters, linear map", "linear-requests": "three quarters, linear map, with requests",
    "blocks": "half, linear map", "trained": "half, trained", "trained-bfloat16": "half, trained in bfloat16",
    "trained-requests": "half, trained, with requests",
    "paraphrase-minilm-l3-v2": "another model: paraphrase-MiniLM-L3-v2",
    "static": "static", "model2vec": "static, by model2vec", "tokenlearn": "static, by tokenlearn",
}  # fmt: skip
BLOCKS = re.compile(r"(blocks)-\d+")  # of ways.py: half of them; those of three quarters are `linear` of cheaper.py
TRAINING = re.compile(r"(trained(?:-requests)?(?:-bfloat16)?)-15min-seed0")


def place(whole: str, small: str) -> tuple[int, int]:
    """By the order of the models and of the ways."""
    return MODELS.index(whole), list(WAYS).index(way_of(whole, small))


def way_of(whole: str, small: str) -> str:
    """The key of WAYS for the folder of a cheaper model."""
    name = small.removeprefix(f"{whole}-")
    made = BLOCKS.fullmatch(name) or TRAINING.fullmatch(name)
    return made[1] if made else name


def mean_interval(differences: pd.Series) -> tuple[float, float, float]:
    """The mean over tasks with its interval by Student's t."""
    error = t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / len(differences) ** 0.5
    mean = differences.mean()
    return mean, mean - error, mean + error


def interval(value: float, low: float, high: float, digits: int = 1) -> str:
    value, low, high = (round(number, digits) + 0.0 for number in (value, low, high))  # no -0.0
    return f"{value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def markdown(left_out: Collection[str] = ()) -> str:
    shown = [place for place, name in enumerate(HEAD) if name not in left_out]
    rows = [row for row in table_rows() if not {*row[:2]} & {*left_out}]
    head, *lines = (f"| {' | '.join(cells[place] for place in shown)} |" for cells in (HEAD, *rows))
    return "\n".join([head, "|---" * len(shown) + "|", *lines])


def main() -> None:
    for page, left_out in PAGES.items():
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{markdown(left_out)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
