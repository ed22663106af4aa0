"""How much of an embedding model is left with fewer blocks: cut, with a linear map, and trained.

    python studies/eval/prepare.py SHARED_DATA ROOT --cap 300 --cap-all
    python studies/shrink/timing.py MODELS SHARED_DATA KEPT
    python studies/shrink/study.py MODELS SHARED_DATA ROOT KEPT [--stage STAGE] [--only MODEL] [--texts N] \
        [--match PATTERN] [--tasks TASK ...]

SHARED_DATA holds a folder per data set, wikitext2/train.parquet among them. Stages: `linear` (raw cuts and linear maps
of all sizes), `short` (five minutes of training at each size), `choice` (five minutes at half of the blocks: measured,
first, evenly spaced and random blocks), `own` (five minutes at half of the blocks, on the pooled training texts of the
tasks that have some), `rate` (some sizes at a lower learning rate, for as many steps as at the default), `recipe` (a
language model with the recipe that `pick` chooses as the original) and `long` (30 minutes at half of the blocks). A
minute is one of an idle machine: a training gets the number of steps that take so long there, by the times that
timing.py has measured.

Shrunk models, their scores, the originals' vectors and checkpoints are kept in KEPT; a cell that is there is not
computed again, and a training that was stopped continues. After each cell, scores.csv (one row per task), history.csv
(the agreement with the original while a model trained) and models.csv (one row per model) are written next to this
file.
"""

import argparse
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from kept import add_rows
from originals import original

import layerwise
from layerwise.verbs.shrink.texts import MOST_HELD_OUT
from layerwise.verbs.shrink.training import evaluation_count

HERE = Path(__file__).parent
SIZES = {"all-minilm-l6-v2": (5, 4, 3, 2), "gte-small": (9, 6, 4, 3), "all-mpnet-base-v2": (9, 6, 4, 3)}
DEPTH = {"all-minilm-l6-v2": 6, "gte-small": 12, "all-mpnet-base-v2": 12}
SMALLER = {"all-minilm-l6-v2": ("paraphrase-minilm-l3-v2",)}  # models of that size that others have trained
CHOICE_MODELS = ("all-minilm-l6-v2", "gte-small")
RECIPE_MODEL, RECIPE_SIZES, RECIPE_TEXTS = "smollm2-135m", (14,), 4000
WITH_TRAINING_TEXTS = {  # of the 22 tasks: data set, and its columns with texts
    "amazon_counterfactual_en": ("text",), "banking77": ("text",), "emotion": ("text",), "massive_intent_en": ("text",),
    "mrpc": ("sentence1", "sentence2"), "stsbenchmark": ("sentence1", "sentence2"),
    "tweet_sentiment_extraction": ("text",),
}  # fmt: skip
BATCH_SIZE, LEARNING_RATE = 32, 3e-4  # the defaults of `shrink`
LOWER_RATE = 1e-4
RATE_SIZES = {"all-minilm-l6-v2": (3,), "gte-small": (9, 6), "all-mpnet-base-v2": (9, 6)}
FEWEST_WORDS, MOST_WORDS = 5, 60  # of a sentence
SENTENCE_END = re.compile(r'(?<=[.!?]) (?=[A-Z"])')
SEEDS = (0, 1, 2)
STAGES = ["linear", "short", "choice", "own", "rate", "recipe", "long"]


@dataclass(frozen=True)
class Cell:
    """One model to score."""

    model: str
    method: str  # whole, raw, linear, distill
    blocks: int
    minutes: float = 0
    choose: str = "measured"
    texts: int = 0
    source: str = "wikitext2"  # where the texts are from: this, or `tasks`
    rate: float = LEARNING_RATE

    @property
    def name(self) -> str:
        minutes = f"-{self.minutes:g}min" if self.minutes else ""
        source = "-tasks" if self.source == "tasks" else ""
        rate = "" if self.rate == LEARNING_RATE else f"-rate-{self.rate:.0e}".replace("e-0", "e-")
        choose = self.choose.replace(",", "_")
        return f"{self.model}-{self.method}-{self.blocks}{minutes}-{choose}-{self.texts}{source}{rate}"

    @property
    def identity(self) -> dict[str, object]:
        """The first columns of its rows."""
        return {"cell": self.name, **{name: value for name, value in vars(self).items() if name != "rate"}}


def cells(stage: str, texts: int) -> Iterator[Cell]:
    """The cells of a stage, the cheapest models first."""
    for model, sizes in SIZES.items():
        depth = DEPTH[model]
        half = depth // 2
        if stage == "linear":
            yield Cell(model, "whole", depth, choose="-")
            yield from (Cell(model, "raw", size, choose="prefix") for size in sizes)
            yield from (Cell(other, "whole", 0, choose="-") for other in SMALLER.get(model, ()))
            yield from (Cell(model, "linear", size, texts=texts) for size in sizes)
            yield Cell(model, "linear", half, choose="prefix", texts=texts)
        elif stage == "short":
            yield from (Cell(model, "distill", size, 5, texts=texts) for size in sizes if size != half)
        elif stage == "long":
            yield Cell(model, "distill", half, 30, texts=texts)
        elif stage == "own":
            yield Cell(model, "distill", half, 5, texts=texts, source="tasks")
            if model not in CHOICE_MODELS:  # to compare with; part of `choice` for the others
                yield Cell(model, "distill", half, 5, texts=texts)
        elif stage == "rate":
            yield from (Cell(model, "distill", size, 5, texts=texts, rate=LOWER_RATE) for size in RATE_SIZES[model])
        elif stage == "recipe":
            continue
        elif model in CHOICE_MODELS:
            sets = [",".join(map(str, sorted(random.Random(seed).sample(range(1, depth + 1), half)))) for seed in SEEDS]
            yield from (
                Cell(model, "distill", half, 5, choose, texts) for choose in ("measured", "prefix", "even", *sets)
            )


def recipe_cells() -> Iterator[Cell]:
    """The language model with its recipe, whole, at an earlier layer, and with fewer blocks."""
    yield Cell(RECIPE_MODEL, "whole", 0, choose="-")
    for size in RECIPE_SIZES:
        yield Cell(RECIPE_MODEL, "raw", size, choose="prefix", texts=RECIPE_TEXTS)
        yield Cell(RECIPE_MODEL, "linear", size, texts=RECIPE_TEXTS)
        yield Cell(RECIPE_MODEL, "distill", size, 5, texts=RECIPE_TEXTS)


def task_texts(data: Path, count: int) -> list[str]:
    """Different training texts of the tasks that have some, the same number of each data set as far as they go."""
    pools = []
    for name, columns in WITH_TRAINING_TEXTS.items():
        table = pd.read_parquet(data / name / "train.parquet", columns=list(columns))
        pools.append(sorted({str(text).strip() for column in columns for text in table[column]} - {""}))
    chosen = [text for pool in pools for text in random.Random(0).sample(pool, min(len(pool), count // len(pools)))]
    return sorted(set(chosen))


def sentences(wikitext: Path, count: int) -> list[str]:
    """Different sentences of WikiText-2, in an order that does not depend on their place."""
    lines = (str(line).strip() for line in pd.read_parquet(wikitext).text)
    found = [part.strip() for line in lines if line and not line.startswith("=") for part in SENTENCE_END.split(line)]
    kept = sorted({part for part in found if FEWEST_WORDS <= len(part.split()) <= MOST_WORDS})
    return random.Random(0).sample(kept, count)


def source_of(name: str, models: Path, kept: Path) -> Path:
    """The model to shrink; the language model with its recipe is made in KEPT."""
    folder = kept / "originals" / name
    if name == RECIPE_MODEL and not folder.exists():
        layerwise.export(str(models / name), layerwise.pick(str(models / name), progress=True), folder, progress=True)
    return folder if name == RECIPE_MODEL else original(name, models, kept)


def steps_for(cell: Cell, kept: Path) -> int:
    """The steps that take the minutes of the cell on an idle machine, with their evaluations.

    At another learning rate they are those of the training that it is compared with.
    """
    if cell.rate != LEARNING_RATE:
        same = replace(cell, rate=LEARNING_RATE)
        return int(pd.read_csv(HERE / "models.csv").set_index("cell").steps[same.name])
    took = json.loads((kept / "timing.json").read_text(encoding="utf-8"))[f"{cell.model}-{cell.blocks}"]
    seconds, step = 60 * cell.minutes, took["seconds_per_step"]
    evaluations = evaluation_count(int(seconds / step), BATCH_SIZE, MOST_HELD_OUT)
    return max(evaluations, int((seconds - evaluations * took["seconds_per_evaluation"]) / step))


def make(cell: Cell, models: Path, texts: list[str], kept: Path) -> Path:
    """The folder of the cell's model, shrunk now if it is not there."""
    source = source_of(cell.model, models, kept)
    folder = kept / "models" / cell.name
    if cell.method == "raw" and cell.model == RECIPE_MODEL:  # the recipe at another layer needs its own map
        if not folder.exists():
            recipe = json.loads((source / "layerwise.json").read_text(encoding="utf-8"))["recipe"]
            earlier = layerwise.Recipe(**recipe | {"layer": cell.blocks})
            layerwise.export(str(models / cell.model), earlier, folder, fit=texts, progress=True)
    elif cell.method in ("whole", "raw"):
        return source
    elif not folder.exists():
        layerwise.shrink(
            str(source), texts, folder, method="distill" if cell.method == "distill" else "linear",
            blocks=None if "," in cell.choose else cell.blocks, choose=cell.choose,
            steps=steps_for(cell, kept) if cell.minutes else None, learning_rate=cell.rate,
            work=kept / "work" / f"{cell.model}-{cell.texts}-{cell.source}", progress=True,
        )  # fmt: skip
    return folder


def scores(cell: Cell, folder: Path, root: Path, tasks: list[str], kept: Path) -> pd.DataFrame:
    """One row per task. The whole model and its raw cuts are scored in one pass."""
    sizes = SIZES.get(cell.model, ()) if cell.method in ("whole", "raw") else ()
    out = kept / "scores" / (f"{cell.model}-raw" if sizes else cell.name)
    layers = [*sizes, DEPTH[cell.model]] if sizes else "last"
    table = layerwise.eval(str(folder), tasks, data_root=root, layers=layers, out=out, workers=0, vectors="evict")
    rows = [
        {**cell.identity, "task": row.metric, "score": round(row.value, 3)}
        for row in table
        if not sizes or row.layer == cell.blocks
    ]
    return pd.DataFrame(rows)


def figures(cell: Cell, folder: Path) -> dict[str, object]:
    """What the certificate says about a shrunk model."""
    row = cell.identity
    if cell.method in ("whole", "raw"):
        return row
    record = json.loads((folder / "layerwise.json").read_text(encoding="utf-8"))
    shrunk = record["shrunk"]
    index, training = shrunk["compatibility"]["cases"], shrunk["training"] or {}
    return row | {
        "kept": shrunk["blocks"], "unexplained": round(shrunk["unexplained"], 4),
        "mean_cosine": round(shrunk["agreement"]["groups"][0]["mean_cosine"], 4),
        "whole_mrr": round(index["old_old"]["mrr"]["mean"], 4), "query_mrr": round(index["new_old"]["mrr"]["mean"], 4),
        "query_loss": round(index["new_old"]["loss"]["mean"], 4),
        "document_mrr": round(index["old_new"]["mrr"]["mean"], 4), "latency": record["encoding_times"][1]["ratio"],
        "parameters": record["parameters"]["after"], "steps": training.get("steps"),
        "kept_step": training.get("result", {}).get("kept_step"),
        "seconds": round(training["result"]["seconds"]) if training else None,
        "learning_rate": training.get("learning_rate"),
    }  # fmt: skip


def history(cell: Cell, folder: Path) -> pd.DataFrame:
    """The mean cosine with the original on held-out texts by step; no rows for a model that was not trained."""
    shrunk = json.loads((folder / "layerwise.json").read_text(encoding="utf-8"))["shrunk"] if cell.minutes else {}
    steps = shrunk["training"]["result"]["history"] if shrunk else []
    return pd.DataFrame(
        [(cell.name, step, round(value, 6)) for step, value in steps], columns=["cell", "step", "agreement"]
    )


def is_done(cell: Cell, tasks: list[str]) -> bool:
    """True if the cell has a score of every task and its row of figures, which is written last."""
    if not (HERE / "models.csv").is_file():
        return False
    table = pd.read_csv(HERE / "scores.csv")
    known = set(table[table.cell == cell.name].task)
    return known >= set(tasks) and cell.name in set(pd.read_csv(HERE / "models.csv").cell)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data", "root", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--stage", choices=STAGES, action="append")
    parser.add_argument("--only", help="one model")
    parser.add_argument("--texts", type=int, default=24000)
    parser.add_argument("--match", default="", help="cells whose name contains this regular expression")
    parser.add_argument("--tasks", nargs="+", help="some of the tasks")
    args = parser.parse_args()
    tasks = args.tasks or sorted(path.name for path in args.root.iterdir() if path.is_dir())
    general = sentences(args.data / "wikitext2" / "train.parquet", args.texts)
    for stage in args.stage or STAGES:
        for cell in recipe_cells() if stage == "recipe" else cells(stage, args.texts):
            if args.only and cell.model not in (args.only, *SMALLER.get(args.only, ())):
                continue
            if is_done(cell, tasks) or not re.search(args.match, cell.name):
                continue
            print(cell.name, flush=True)
            texts = task_texts(args.data, cell.texts) if cell.source == "tasks" else general[: cell.texts or None]
            folder = make(cell, args.models, texts, args.kept)
            add_rows(HERE / "scores.csv", scores(cell, folder, args.root, tasks, args.kept), ["cell", "task"])
            add_rows(HERE / "history.csv", history(cell, folder), ["cell", "step"])
            add_rows(HERE / "models.csv", pd.DataFrame([figures(cell, folder)]), ["cell"])


if __name__ == "__main__":
    main()
