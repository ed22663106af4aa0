"""The result of a protocol: means by task type, gains with intervals, and whether each criterion of success is met.

Tasks are averaged within their type, then the types are averaged, so that each type counts the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerwise.core.columns import GAP, WIDTH, fill_words, in_columns
from layerwise.runs.summary import counted
from layerwise.verbs.lab.audit.options import StageName
from layerwise.verbs.lab.audit.protocol import BASELINES, Criterion, Protocol
from layerwise.verbs.pick.decision import signed

DRAWS = 10_000
SEED = 0
MIN_MODELS = 3  # with fewer models, drawing them again says nothing
ALL_TYPES = "all"  # in the table of means: the mean of the types
ROUNDING = 1e-9  # so that a gain of exactly the number asked for counts as reached
SCHEMA_VERSION = 1

Interval = tuple[float | None, float | None]
NO_INTERVAL: Interval = (None, None)


@dataclass(frozen=True)
class ProtocolResult:
    """How the recipes of a protocol score on the tasks of one stage. Scores and gains are in points, 0 to 100.

    Attributes:
        name: name of the protocol.
        stage: "development" or "test".
        protocol_hash: SHA-256 of the protocol file.
        scores: one row per model, recipe and task: model, recipe, task, type, score.
        means: one row per model, recipe and type: model, recipe, type, tasks, score. Type "all" is the mean of types.
        gains: one row per model and pair of recipes: model, recipe, over, gain, low, high.
        over_models: the same, averaged over models: recipe, over, models, gain, low, high.
        success: one row per criterion, of the test stage only: model, recipe, over, at_least, gain, low, high, met.
    """

    name: str
    stage: StageName
    protocol_hash: str
    scores: pd.DataFrame
    means: pd.DataFrame
    gains: pd.DataFrame
    over_models: pd.DataFrame
    success: pd.DataFrame

    def to_json(self) -> str:
        """All but the scores of single tasks, as JSON text."""
        record: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "name": self.name, "stage": self.stage}
        record |= {"protocol_hash": self.protocol_hash, "bootstrap_draws": DRAWS, "seed": SEED}
        for table in ("means", "gains", "over_models", "success"):
            record[table] = json.loads(getattr(self, table).to_json(orient="records", double_precision=15))
        return json.dumps(record, indent=1)

    def __str__(self) -> str:
        tasks, models = self.scores.task.nunique(), self.scores.model.nunique()
        types = self.scores.type.nunique()
        facts = f"{counted(tasks, 'task')} of {counted(types, 'type')}, {counted(models, 'model')}"
        lines = [fill_words(f"{self.name}: {self.stage} stage, {facts}; scores in points from 0 to 100")]
        for model in self.scores.model.unique():
            lines += ["", *model_lines(model, self.means, self.gains)]
        if len(self.over_models):
            lines += ["", *gain_lines("mean over models", self.over_models)]
        if len(self.success):
            lines += ["", *success_lines(self.success)]
        return "\n".join(lines)


def protocol_result(protocol: Protocol, stage: StageName, scores: pd.DataFrame) -> ProtocolResult:
    """The result of these scores: a table with model, recipe, task, type and score."""
    gains = gain_table(scores)
    criteria = protocol.success if stage == "test" else ()
    return ProtocolResult(
        protocol.name, stage, protocol.sha256, scores, mean_table(scores), gains, gains_over_models(gains),
        success_table(scores, criteria),
    )  # fmt: skip


def mean_table(scores: pd.DataFrame) -> pd.DataFrame:
    """The mean score of each model and recipe on each type, and the mean of the types."""
    rows = []
    for (model, recipe), group in scores.groupby(["model", "recipe"], sort=False):
        by_type = group.groupby("type", sort=True).score
        means, counts = by_type.mean(), by_type.size()
        rows += [(model, recipe, kind, int(counts[kind]), float(means[kind])) for kind in means.index]
        rows.append((model, recipe, ALL_TYPES, len(group), float(means.mean())))
    return pd.DataFrame(rows, columns=["model", "recipe", "type", "tasks", "score"])


def gain_table(scores: pd.DataFrame) -> pd.DataFrame:
    """The gain of every recipe over `last` and over `static`, model by model, with 95 % intervals."""
    rows = []
    for model, group in scores.groupby("model", sort=False):
        labels = list(group.recipe.unique())
        for over in (label for label in BASELINES if label in labels):
            for recipe in (label for label in labels if label != over and (over, label) != ("static", "last")):
                rows.append((model, recipe, over, *gain_and_interval(task_gains(group, recipe, over))))
    return pd.DataFrame(rows, columns=["model", "recipe", "over", "gain", "low", "high"])


def task_gains(scores: pd.DataFrame, recipe: str, over: str) -> list[NDArray[np.float64]]:
    """The gain on every task of one model, one array per type."""
    one, other = (scores[scores.recipe == label].set_index("task") for label in (recipe, over))
    gains = one.score - other.score
    return [gains[one.type == kind].to_numpy() for kind in sorted(one.type.unique())]


def gain_and_interval(gains: Sequence[NDArray[np.float64]]) -> tuple[float, float | None, float | None]:
    """The mean over types, and its 95 % interval by drawing the tasks of each type again.

    A type with one task stays as it is, so the interval leaves out how much other tasks of that type would differ.
    There is no interval if every type has one task.
    """
    mean = float(np.mean([part.mean() for part in gains]))
    if max(map(len, gains)) < 2:
        return mean, *NO_INTERVAL
    rng = np.random.default_rng(SEED)
    drawn = [drawn_means(part, rng) for part in gains]
    return mean, *percentile_interval(np.mean(drawn, axis=0))


def drawn_means(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """The mean of each bootstrap draw."""
    return np.asarray(values[rng.integers(0, len(values), (DRAWS, len(values)))].mean(axis=1))


def percentile_interval(drawn: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def gains_over_models(gains: pd.DataFrame) -> pd.DataFrame:
    """The gains of each pair of recipes averaged over models, if two or more have both.

    The 95 % interval draws models again; there is none with fewer than three models.
    """
    rows = []
    for (recipe, over), group in gains.groupby(["recipe", "over"], sort=False):
        values = group.gain.to_numpy()
        if len(values) < 2:
            continue
        enough = len(values) >= MIN_MODELS
        drawn = drawn_means(values, np.random.default_rng(SEED)) if enough else None
        interval = NO_INTERVAL if drawn is None else percentile_interval(drawn)
        rows.append((recipe, over, len(values), float(values.mean()), *interval))
    return pd.DataFrame(rows, columns=["recipe", "over", "models", "gain", "low", "high"])


def success_table(scores: pd.DataFrame, criteria: Sequence[Criterion]) -> pd.DataFrame:
    """Whether each criterion is met by the mean gain; criteria of models without scores are left out."""
    rows = []
    for c in criteria:
        group = scores[scores.model == c.model]
        if len(group):
            gain, low, high = gain_and_interval(task_gains(group, c.recipe, c.over))
            rows.append((c.model, c.recipe, c.over, c.at_least, gain, low, high, gain >= c.at_least - ROUNDING))
    return pd.DataFrame(rows, columns=["model", "recipe", "over", "at_least", "gain", "low", "high", "met"])


def model_lines(model: str, means: pd.DataFrame, gains: pd.DataFrame) -> Iterator[str]:
    """One model: a line per type with the mean of each recipe, then the gains."""
    mine = means[means.model == model]
    tasks = mine.groupby("type", sort=False).tasks.first()
    first = [model, *(f"{kind} ({tasks[kind]})" for kind in tasks.index if kind != ALL_TYPES), "mean of types"]
    columns = {}
    for recipe, group in mine.groupby("recipe", sort=False):
        values = group.set_index("type").score
        columns[str(recipe)] = [str(recipe), *(f"{value:.1f}" for value in values)]
    for names in groups_within(columns, WIDTH - max(map(len, first))):
        rows = [[cell, *(columns[name][row] for name in names)] for row, cell in enumerate(first)]
        yield from in_columns(rows, label_columns=1, right=range(1, len(rows[0])))
    if len(mine_gains := gains[gains.model == model]):
        yield from gain_lines("gain", mine_gains)


def groups_within(columns: Mapping[str, Sequence[str]], room: int) -> Iterator[list[str]]:
    """The names of the columns, in groups that fit the room; a group has at least one."""
    group: list[str] = []
    used = 0
    for name, cells in columns.items():
        width = len(GAP) + max(map(len, cells))
        if group and used + width > room:
            yield group
            group, used = [], 0
        group.append(name)
        used += width
    yield group


def gain_lines(title: str, gains: pd.DataFrame) -> list[str]:
    """One line per pair of recipes: the gain in points and its interval."""
    with_models = "models" in gains
    rows = [[title, *(["models"] if with_models else []), "points", "95 % interval"]]
    for row in gains.itertuples(index=False):
        middle = [str(row.models)] if with_models else []
        rows.append([f"{row.recipe} over {row.over}", *middle, signed(row.gain), interval_words(row)])
    return in_columns(rows, label_columns=1, right=(1, 2) if with_models else (1,))


def interval_words(row: Any) -> str:
    has_interval = row.low is not None and row.low == row.low  # a column with numbers has NaN for None
    return f"{signed(row.low)} to {signed(row.high)}" if has_interval else "-"


def success_lines(success: pd.DataFrame) -> list[str]:
    """One line per criterion: met or not, the number asked for, and the gain with its interval."""
    rows = [["success", "model", "gain of", "asked", "points", "95 % interval"]]
    for row in success.itertuples(index=False):
        verdict = "met" if row.met else "not met"
        asked, gain = signed(row.at_least), signed(row.gain)
        rows.append([verdict, row.model, f"{row.recipe} over {row.over}", asked, gain, interval_words(row)])
    return in_columns(rows, label_columns=3, right=(3, 4))
