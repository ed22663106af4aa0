"""Does evidence without a task's test set put models in the right order? Eight English tasks.

    python studies/choosing/ranking.py MODELS SHARED_DATA KEPT NAME [NAME ...] [--tasks TASK ...]
    python studies/choosing/ranking.py MODELS SHARED_DATA KEPT --regret

ranking.csv gets one row per task, evidence and model: the score of the evidence, the score of the model as shipped on
the test examples, and the seconds of the whole ranking. With pairs, models are ranked with and without the early stop.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import layerwise

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("recipes", "shrink")]
from development import SCORES  # noqa: E402
from kept import add_rows  # noqa: E402
from opened import opened  # noqa: E402
from originals import original  # noqa: E402
from prepare import CAP, DEVELOPMENT, LABELS, TEST, by_hash, tables  # noqa: E402

TABLE = Path(__file__).parent / "ranking.csv"
TASKS = (
    "SICK-R", "TwitterURLCorpus", "MRPC", "Banking77Classification", "EmotionClassification", "TREC6Classification",
    "StackOverflowTitlesClustering", "GSM8KRetrieval",
)  # fmt: skip
PAIRS, SAMPLES = 256, 10_000
ALL_TASKS = DEVELOPMENT | TEST


def pairs_of(data: Path, name: str) -> list[tuple[str, str]]:
    """Pairs that belong together, none of which is a test example or one of the labels of the task."""
    folder, kind = ALL_TASKS[name]
    test, few, labels = tables(data, name, folder, kind)
    if kind == "Retrieval":
        rows = by_hash(pd.read_parquet(data / folder / "train.parquet"), ["question"])
        return list(zip(rows.question, rows.answer, strict=True))[:PAIRS]
    if kind in ("STS", "PairClassification"):
        columns = ["sentence1", "sentence2"]
        rows = by_hash(pd.read_parquet(data / folder / "test.parquet").drop_duplicates(columns), columns)[
            LABELS + CAP :
        ]
        if (data / folder / "train.parquet").is_file():
            rows = by_hash(pd.read_parquet(data / folder / "train.parquet").drop_duplicates(columns), columns)
        if kind == "STS":
            rows = rows[rows.score >= rows.score.min() + 0.8 * (rows.score.max() - rows.score.min())]
        else:
            rows = rows[rows.labels == 1]
        return list(zip(rows.sentence1, rows.sentence2, strict=True))[:PAIRS]
    split = "titles" if kind == "Clustering" else "train"
    rows = by_hash(pd.read_parquet(data / folder / f"{split}.parquet").drop_duplicates("text"), ["text"])
    used = {text for table in (test, few, labels) if table is not None and "text" in table for text in table.text}
    if kind == "Clustering":
        used |= {text for texts in test.sentences for text in texts}
    rows = rows[~rows.text.isin(used)]
    found = []
    for _, group in rows.groupby("label", sort=True):  # the same number of each class, as far as they go
        texts = list(group.text)
        found += [(place, pair) for place, pair in enumerate(zip(texts[::2], texts[1::2], strict=False))]
    return [pair for _, pair in sorted(found, key=lambda one: one[0])][:PAIRS]


def true_score(data: Path, name: str, folder: Path) -> float:
    """The score of a model as its authors ship it on the test examples, 0 to 100."""
    test, few, _ = tables(data, name, *ALL_TASKS[name])
    model = opened(folder)
    return 100 * SCORES[ALL_TASKS[name][1]](name, test, few, lambda texts: model.encode(list(texts)))


def ranked(models: list[str], **evidence: Any) -> tuple[layerwise.RankedModels, float]:
    began = time.process_time()
    return layerwise.pick(models, max_length=256, **evidence), time.process_time() - began


def evidence_of(data: Path, name: str) -> dict[str, dict[str, Any]]:
    pairs, labels = pairs_of(data, name), tables(data, name, *ALL_TASKS[name])[2]
    found: dict[str, dict[str, Any]] = {"probes": {}}
    if labels is not None:
        renamed = {"sentence1": "text1", "sentence2": "text2"}
        found["labels"] = {"labels": labels.rename(columns=renamed)}
    return found | {"pairs": {"pairs": pairs}, "all pairs": {"pairs": pairs, "early_stop": False}}


def run(data: Path, folders: dict[str, Path], tasks: list[str]) -> None:
    of_folder = {str(folder): name for name, folder in folders.items()}
    for task in tasks:
        true = {name: true_score(data, task, folder) for name, folder in folders.items()}
        rows = []
        for evidence, options in evidence_of(data, task).items():
            found, seconds = ranked(list(of_folder), **options)
            for place, row in enumerate(found.rows, start=1):
                rows.append({
                    "task": task, "models": len(folders), "evidence": evidence, "model": of_folder[row.name],
                    "place": place, "evidence_score": round(row.score.mean, 3), "error": round(row.score.error, 3),
                    "score": round(true[of_folder[row.name]], 3), "recipe": row.recipe,
                    "dropped_after": row.dropped_after, "seconds": round(seconds, 1),
                })  # fmt: skip
                print(*rows[-1].values(), flush=True)
        add_rows(TABLE, pd.DataFrame(rows), ["task", "models", "evidence", "model"])


def regret(table: pd.DataFrame) -> None:
    """Per evidence, the mean regret with its interval over tasks, and the time that the early stop saves."""
    for count, of_count in table.groupby("models"):
        best = of_count.groupby("task").score.max()
        chosen = of_count[of_count.place == 1].pivot(index="task", columns="evidence", values="score")
        lost = chosen.rsub(best, axis=0)
        draws = np.random.default_rng(0).integers(0, len(lost), (SAMPLES, len(lost)))
        for evidence in lost:
            known = lost[evidence].dropna()
            places = draws[:, : len(known)] % len(known)
            low, high = np.quantile(known.to_numpy()[places].mean(axis=1), [0.025, 0.975])
            print(f"{count} models, {evidence}: {known.mean():.2f} ({low:.2f} to {high:.2f}), {len(known)} tasks")
        for one, other in (("pairs", "probes"), ("labels", "pairs")):
            gap = (lost[one] - lost[other]).dropna().to_numpy()
            places = draws[:, : len(gap)] % len(gap)
            low, high = np.quantile(gap[places].mean(axis=1), [0.025, 0.975])
            print(f"{count} models, {one} minus {other}: {gap.mean():+.2f} ({low:+.2f} to {high:+.2f})")
        taken = of_count.groupby(["evidence", "task"]).seconds.first().groupby("evidence").sum()
        print(f"{count} models, time saved by the early stop: {1 - taken['pairs'] / taken['all pairs']:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--regret", action="store_true")
    args = parser.parse_args()
    if args.regret:
        return regret(pd.read_csv(TABLE))
    return run(args.data, {name: original(name, args.models, args.kept) for name in args.names}, args.tasks)


if __name__ == "__main__":
    main()
