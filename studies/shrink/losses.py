"""What does a cheaper model lose on each task, with an interval? Scored by mteb and sentence-transformers alone.

    python studies/shrink/losses.py ROOT ANSWERS WHOLE SMALL [SMALL ...] [--tasks TASK ...] [--rounded]

WHOLE and SMALL are folders of models; ROOT is a data root (studies/eval/prepare.py). ANSWERS keeps what each model
answered to each test example, so that nothing is encoded twice. losses.csv gets one row per small model and task: both
scores, and the 95 % interval of their difference by bootstrap over test examples, the same ones for both models.
"""

import argparse
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pandas as pd
from kept import add_rows, model_key
from mteb.cache import ResultCache
from numpy.typing import NDArray
from opened import ROUNDED, compute, opened
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, v_measure_score

from layerwise.verbs.eval.scoring import load_task
from layerwise.verbs.eval.tasks import TaskChoice, choose_tasks

HERE = Path(__file__).parent
TABLE = HERE / "losses.csv"
SAMPLES = 1000
BEST_RANKS = {"Retrieval": 10, "Reranking": 1000}
TOLERANCE = 1e-3  # points, between our score of the answers and mteb's

Places = NDArray[np.int64]
Score = Callable[[Places], float]  # of the test examples at these places, in points


def answers_of(choice: TaskChoice, folder: Path, answers: Path) -> tuple[Any, float]:
    """What a model answers to the test examples of a task, and mteb's main score in points."""
    own = answers / model_key(folder) / f"{choice.name}-{choice.local.revision if choice.local else 'hub'}"
    score_file = own / "score.json"  # written last
    if not score_file.is_file():
        result = mteb.evaluate(  # it changes the task, so the task is loaded for this alone
            opened(folder), load_task(choice), cache=ResultCache(own / "mteb"), overwrite_strategy="always",
            prediction_folder=own, show_progress_bar=False, co2_tracker=False,
        )  # fmt: skip
        score_file.write_text(json.dumps(100 * float(result.task_results[0].get_score())), encoding="utf-8")
    found = json.loads((own / f"{choice.name}_predictions.json").read_text(encoding="utf-8"))
    (subset,) = (value for key, value in found.items() if key != "mteb_model_meta")
    return subset["test"], json.loads(score_file.read_text(encoding="utf-8"))


def score_of(kind: str, task: Any, found: Any) -> tuple[int, Score]:
    """The number of test examples, and the score of a sample of them."""
    if kind in BEST_RANKS:
        values = query_scores(kind, task, found)
        return len(values), lambda places: 100 * float(values[places].mean())
    data = task.dataset if "test" in task.dataset else task.dataset[next(iter(task.hf_subsets))]
    data = data["test"]
    if kind == "Classification":
        right = np.mean([np.asarray(one) == np.asarray(data["label"][:]) for one in found], axis=0)
        return len(right), lambda places: 100 * float(right[places].mean())
    if kind == "STS":
        ours, theirs = np.asarray(found["cosine_scores"]), np.asarray(data["score"][:])
        return len(ours), lambda places: 100 * float(spearmanr(ours[places], theirs[places]).statistic)
    if kind == "PairClassification":
        close, labels = np.asarray(found["cosine_scores"]), np.ravel(data["labels"][:])
        return len(labels), lambda places: 100 * float(average_precision_score(labels[places], close[places]))
    sets = data["labels"][:]
    labels, clusters = np.concatenate(sets), np.concatenate(found)
    of_set = np.repeat(np.arange(len(sets)), [len(one) for one in sets])

    def v_measure(places: Places) -> float:
        parts = [places[of_set[places] == one] for one in range(len(sets))]
        return 100 * float(np.mean([v_measure_score(labels[part], clusters[part]) for part in parts]))

    return len(labels), v_measure


def query_scores(kind: str, task: Any, found: Any) -> NDArray[np.float64]:
    """Per query: nDCG@10 for retrieval, average precision for reranking."""
    (subset,) = task.dataset.values()
    relevant = subset["test"]["relevant_docs"]
    return np.array([one_query(kind, found[query], relevant[query]) for query in sorted(relevant)])


def one_query(kind: str, scores: dict[str, float], relevant: dict[str, int]) -> float:
    # Equal scores are ranked by id, the later one first, as pytrec_eval does for mteb.
    ranked = sorted(scores, key=lambda document: (np.float32(scores[document]), document), reverse=True)
    hits = np.array([relevant.get(document, 0) > 0 for document in ranked[: BEST_RANKS[kind]]])
    total = sum(value > 0 for value in relevant.values())
    if kind == "Reranking":
        return float((hits.cumsum() / np.arange(1, len(hits) + 1))[hits].sum() / total)
    gains = 1 / np.log2(np.arange(2, BEST_RANKS[kind] + 2))
    return float(gains[: len(hits)][hits].sum() / gains[:total].sum())


def row_of(choice: TaskChoice, whole: Path, small: Path, answers: Path) -> dict[str, Any]:
    """Both scores on one task, and the interval of their difference."""
    task = load_task(choice)
    scores: list[Score] = []
    for folder in (whole, small):
        found, mteb_score = answers_of(choice, folder, answers)
        count, score = score_of(choice.type, task, found)
        ours = score(np.arange(count))
        # mteb's average precision is the best of four similarities; ours is that of the cosine.
        if abs(ours - mteb_score) > TOLERANCE and choice.type != "PairClassification":
            raise ValueError(f"{choice.name}, {folder.name}: {ours} from the answers, {mteb_score} by mteb")
        scores.append(score)
    generator = np.random.default_rng(zlib.crc32(choice.name.encode()))
    everything = np.arange(count)
    gaps = []
    for _ in range(SAMPLES):
        places = generator.integers(0, count, count)
        gaps.append(scores[1](places) - scores[0](places))
    before, after = (score(everything) for score in scores)
    # Examples that are drawn twice raise a V-measure, for one model more than for the other: that is no evidence.
    low, high = after - before + np.quantile(gaps, [0.025, 0.975]) - np.mean(gaps)
    return {
        "whole": whole.name, "small": small.name, "task": choice.name, "examples": count, "score": round(after, 3),
        "whole_score": round(before, 3), "difference": round(after - before, 3), "low": round(float(low), 3),
        "high": round(float(high), 3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("root", "answers", "whole"):
        parser.add_argument(name, type=Path)
    parser.add_argument("small", type=Path, nargs="+")
    parser.add_argument("--tasks", nargs="+", default=["all"])
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--rounded", action="store_true", help=ROUNDED)
    args = parser.parse_args()
    compute(rounded=args.rounded)
    answers = args.answers / "rounded" if args.rounded else args.answers
    for choice in choose_tasks(args.tasks, args.root):
        for small in args.small:
            row = row_of(choice, args.whole, small, answers)
            add_rows(args.table, pd.DataFrame([row]), ["whole", "small", "task"])
            print(f"{row['small']:40}{row['task']:40}{row['score']:8.2f}{row['difference']:+8.2f} "
                  f"({row['low']:+.2f} to {row['high']:+.2f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
