"""Findings beyond the paper: eight claims about layers, judged from the scores and metrics of several models.

What confirms or refutes each claim was written before the first score (studies/protocol/README.md, "Evidence: the
test"). A model agrees with a claim ("yes"), contradicts it ("no") or does neither. Models without the rows that a claim
needs are "missing", so that tables of some of the models can be judged as well.

scores has one row per model, dtype, form (input, pooling, map), layer and task; metrics one per model, dtype, metric,
choice of tokens and layer. studies/evidence writes both.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from layerwise.core.errors import InputError
from layerwise.verbs.report.correlations import correlation

Answer = Literal["yes", "no", "neither", "missing"]
LANGUAGE = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "tinyllama-1.1b-chat")
ENCODERS = ("opus-mt-en-fr", "opus-mt-fr-en")
HELD_OUT = LANGUAGE + ENCODERS
DEVELOPMENT = ("smollm2-135m", "gemma3-270m")  # recipes were chosen with them: shown, never counted
ROUNDED = {"smollm2-135m-4bit": "smollm2-135m", "smollm2-135m-2bit": "smollm2-135m"}
DTYPES = ("float32", "bfloat16")  # where a model was scored in both, the first counts

FORM = ["model", "dtype", "input", "pooling", "map"]
SCORE_COLUMNS = (*FORM, "layer", "task", "half", "score")
METRIC_COLUMNS = ("model", "dtype", "metric", "tokens", "layer", "value")
PLAIN, TEMPLATE, ECHO = ("plain", "mean"), ("prompteol", "last"), ("echo", "mean")
MAPS = ("none", "remove_top:8")
PICKED = "pick"  # the input of rows that score what `pick` recommends
TASKS = 8
NORMED = "normed"  # the layer after the last: the last one after the final norm
POINT = 1.0  # a smaller advantage counts as none
LATE = 2  # blocks before the last that are still late
SINK_RATIO, HALF = 10.0, 0.5
STRONG = 0.5  # a correlation
OWN_METRIC = "first_norm_ratio"
PANEL_HEIGHT = 3.4  # inches, with the legend

CLAIMS = {
    1: "with the last token in a template, the last layers are best",
    2: "with mean pooling of plain text, a middle layer is better",
    3: "the reason is what a token has read: with echo, late layers are best again",
    4: "the rule of `pick` is better than each baseline",
    5: "no single metric can choose the layer",
    6: "the valley of prompt entropy is one token",
    7: "an encoder that reads both ways needs no middle layer",
    8: "rounding does not change the picture",
}
# Who is asked. Claims 1 to 3 are about language models, which read from left to right; what the development models say
# is shown, and counts only in claim 5, whose text says so.
ASKED = {
    1: LANGUAGE + DEVELOPMENT, 2: LANGUAGE + DEVELOPMENT, 3: LANGUAGE + DEVELOPMENT, 4: HELD_OUT + DEVELOPMENT,
    5: HELD_OUT + DEVELOPMENT, 6: HELD_OUT + DEVELOPMENT, 7: ENCODERS, 8: tuple(ROUNDED),
}  # fmt: skip
REFUTED_BY = {1: 2, 2: 2, 3: 2, 4: 2, 6: 1, 7: 2}  # models that contradict


def read_tables(scores: str | Path, metrics: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of scores and of metrics; raises if one lacks a column."""
    found = pd.read_csv(scores, dtype={"layer": str}), pd.read_csv(metrics)
    for path, table, columns in zip((scores, metrics), found, (SCORE_COLUMNS, METRIC_COLUMNS), strict=True):
        if lacking := [name for name in columns if name not in table]:
            raise InputError(f"{path} has no column {lacking[0]!r}; studies/evidence/score.py writes such tables")
    return found


# ---- the advantage of a layer


def advantages(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per form: its best layers, and the advantage in points of the layer that one half of the tasks chooses.

    `best` is best by the mean of all tasks. `chosen_a` and `chosen_b` are chosen by one half and judged on the tasks of
    the other; `gain` is their mean advantage over the last layer after the final norm, with a 95 % interval over tasks.
    Forms without all tasks are left out.
    """
    rows = []
    for form, part in scores[scores.input != PICKED].groupby(FORM, sort=False):
        curves, half = layer_curves(part), part.drop_duplicates("task").set_index("task").half
        if len(curves.columns) < TASKS or len(curves) < 2:  # the baseline of whitened token embeddings has one layer
            continue
        chosen = {name: curves[half.index[half == name]].mean(axis=1).idxmax() for name in ("A", "B")}
        judges = {"A": "B", "B": "A"}
        layer_of = {task: chosen[judges[half[task]]] for task in curves}
        gains = np.array([curves.at[layer_of[task], task] - curves[task].iloc[-1] for task in curves])
        low, high = over_tasks(gains)
        rows.append(
            [*form, last_block(curves), curves.mean(axis=1).idxmax(), chosen["A"], chosen["B"], gains.mean(), low, high]
        )
    return pd.DataFrame(rows, columns=[*FORM, "depth", "best", "chosen_a", "chosen_b", "gain", "low", "high"])


def layer_curves(part: pd.DataFrame) -> pd.DataFrame:
    """The scores of one form: a row per layer, in order, and a column per task."""
    layers = sorted(part.layer.unique(), key=lambda layer: (layer == NORMED, 0 if layer == NORMED else int(layer)))
    return part.pivot(index="layer", columns="task", values="score").loc[layers]


def last_block(curves: pd.DataFrame) -> int:
    return max(int(layer) for layer in curves.index if layer != NORMED)


def block(layer: str, depth: int) -> int:
    """The block whose output a layer is; the final norm comes after the last."""
    return depth if layer == NORMED else int(layer)


def over_tasks(gains: Any, draws: int = 10_000) -> tuple[float, float]:
    """The 95 % interval of a mean, by drawing tasks again."""
    random = np.random.default_rng(0)
    means = gains[random.integers(0, len(gains), (draws, len(gains)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def over_models(gains: Iterable[float]) -> tuple[float, float, float]:
    """The mean over models, and its 95 % interval by Student's t: wide where they are few."""
    from scipy.stats import t

    values = np.array(list(gains))
    if len(values) < 2:
        return float(values.mean()) if len(values) else math.nan, math.nan, math.nan
    reach = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return float(values.mean()), float(values.mean()) - reach, float(values.mean()) + reach


def forms_of(found: pd.DataFrame, model: str, dtype: str, form: tuple[str, str]) -> pd.DataFrame | None:
    """The rows of one input and pooling, one per map in order; None if one is missing. `found` is indexed by form."""
    keys = [(model, dtype, *form, name) for name in MAPS]
    return found.loc[keys] if all(key in found.index for key in keys) else None


# ---- what one model says about a claim


def template_answer(found: pd.DataFrame, model: str, dtype: str) -> Answer:
    """Claim 1: late with both maps; contradicted by a lower layer with an advantage, with one of them."""
    rows = forms_of(found, model, dtype, TEMPLATE)
    if rows is None:
        return "missing"
    late = [block(row.best, row.depth) >= row.depth - LATE for row in rows.itertuples()]
    if all(late):
        return "yes"
    return "no" if any(rows.gain[[not one for one in late]] > POINT) else "neither"


def middle_answer(found: pd.DataFrame, model: str, dtype: str) -> Answer:
    """Claim 2: an advantage of layers below the last three blocks, with one of the maps; none with either."""
    rows = forms_of(found, model, dtype, PLAIN)
    if rows is None:
        return "missing"
    if any(
        row.gain > POINT and max(block(row.chosen_a, row.depth), block(row.chosen_b, row.depth)) < row.depth - LATE
        for row in rows.itertuples()
    ):
        return "yes"
    return "no" if (rows.gain <= 0).all() else "neither"


def echo_answer(found: pd.DataFrame, model: str, dtype: str) -> Answer:
    """Claim 3: a later best layer and a smaller advantage than without echo, with both maps; or with neither."""
    plain, echo = (forms_of(found, model, dtype, form) for form in (PLAIN, ECHO))
    if plain is None or echo is None:
        return "missing"
    held = [
        block(after.best, after.depth) > block(before.best, before.depth) and after.gain < before.gain
        for before, after in zip(plain.itertuples(), echo.itertuples(), strict=True)
    ]
    return "yes" if all(held) else "neither" if any(held) else "no"


def encoder_answer(found: pd.DataFrame, model: str, dtype: str) -> Answer:
    """Claim 7: no advantage above a point with either map; or one with both."""
    rows = forms_of(found, model, dtype, PLAIN)
    if rows is None:
        return "missing"
    above = rows.gain > POINT
    return "no" if above.all() else "neither" if above.any() else "yes"


def rounding_answer(found: pd.DataFrame, model: str, dtype: str) -> Answer:
    """Claim 8: the rounded model gives the answers to claims 1 to 3 that it gives unrounded, in the same dtype."""
    pairs = [
        (answer(found, name, dtype) for name in (model, ROUNDED[model]))
        for answer in (template_answer, middle_answer, echo_answer)
    ]
    answers = [tuple(pair) for pair in pairs]
    if any("missing" in pair for pair in answers):
        return "missing"
    return "yes" if all(rounded == whole for rounded, whole in answers) else "no"


def recommended(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per model and baseline: what `pick` recommends against it, with a 95 % interval over tasks."""
    rows = []
    for (model, dtype), part in scores.groupby(["model", "dtype"], sort=False):
        picked = part[part.input == PICKED].set_index("task").score
        for name, baseline in baselines(part).items():
            if len(picked) == len(baseline) == TASKS:
                gains = (picked - baseline[picked.index]).to_numpy()
                rows.append([model, dtype, name, picked.mean(), baseline.mean(), gains.mean(), *over_tasks(gains)])
    return pd.DataFrame(rows, columns=["model", "dtype", "baseline", "picked", "score", "gain", "low", "high"])


def baselines(part: pd.DataFrame) -> dict[str, pd.Series]:
    """The scores by task of what `pick` is compared with."""

    def last(form: tuple[str, str]) -> pd.Series:
        rows = part[(part.input == form[0]) & (part.pooling == form[1]) & (part["map"] == "none")]
        return layer_curves(rows).iloc[-1] if len(rows) else pd.Series(dtype=float)

    whitened = part[(part.input == "plain") & (part["map"] == "whiten") & (part.layer == "0")].set_index("task").score
    return {"last layer, mean": last(PLAIN), "prompteol as published": last(TEMPLATE), "token embeddings": whitened}


def picked_answer(found: pd.DataFrame, model: str, dtype: str) -> Answer:
    """Claim 4: better by the mean over tasks than all three baselines, or worse than one."""
    gains = found[(found.model == model) & (found.dtype == dtype)].gain
    if len(gains) < 3:
        return "missing"
    return "yes" if (gains > 0).all() else "no" if (gains < 0).any() else "neither"


# ---- metrics


def correlations(scores: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Spearman's correlation of each metric with the mean score, over the layers before the final norm.

    The score is that of plain text with mean pooling and no map, which is how metrics read a text.
    """
    plain = scores[(scores.input == "plain") & (scores.pooling == "mean") & (scores["map"] == "none")]
    rows = []
    for (model, dtype), part in plain[plain.layer != NORMED].groupby(["model", "dtype"], sort=False):
        curves = layer_curves(part)
        own = metrics[(metrics.model == model) & (metrics.dtype == dtype) & (metrics.metric != OWN_METRIC)]
        for (metric, tokens), values in own.groupby(["metric", "tokens"], sort=False):
            curve = values.set_index("layer").value.reindex([int(layer) for layer in curves.index])
            if len(curves.columns) == TASKS and curve.notna().all():
                value = correlation("spearman", curve.to_numpy(float), curves.mean(axis=1).to_numpy(float))
                rows.append([model, dtype, metric, tokens, value])
    return pd.DataFrame(rows, columns=["model", "dtype", "metric", "tokens", "spearman"])


def metric_verdict(found: pd.DataFrame) -> tuple[str, dict[str, Answer]]:
    """Claim 5: refuted by one metric with a strong correlation of the same sign in all models."""
    models = [(model, dtype_of(found, model)) for model in (*HELD_OUT, *DEVELOPMENT)]
    there: dict[str, Answer] = {model: "neither" if dtype else "missing" for model, dtype in models}
    if "missing" in there.values():
        return "not run yet", there
    counted = pd.Series([*zip(found.model, found.dtype, strict=True)], index=found.index).isin(models)
    read = found[(found.tokens == "all") & counted]
    by_metric = read.pivot(index="metric", columns="model", values="spearman")
    consistent = (by_metric > STRONG).all(axis=1) | (by_metric < -STRONG).all(axis=1)
    return "refuted" if consistent.any() else "confirmed", there


def valleys(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per model: where prompt entropy is least among layers with a sink, and what the first token does there.

    A layer has a sink if the norm of the first token is ten times that of the others. The depth of the valley is
    counted from the lower of its two sides: the highest entropy before it, and the highest after it.
    """
    rows = []
    for (model, dtype), part in metrics.groupby(["model", "dtype"], sort=False):
        curves = {key: values.set_index("layer").value for key, values in part.groupby(["metric", "tokens"])}
        ratio, entropy, without = (
            curves.get(key) for key in ((OWN_METRIC, "all"), ("prompt_entropy", "all"), ("prompt_entropy", "no_first"))
        )
        if ratio is None or entropy is None or without is None:
            continue
        sinks = ratio.index[ratio >= SINK_RATIO]
        if len(sinks) == 0:
            rows.append([model, dtype, 0, ratio.max(), *[math.nan] * 5])
            continue
        at = entropy[sinks].idxmin()
        depth = min(entropy.loc[:at].max(), entropy.loc[at:].max()) - entropy[at]
        rows.append(
            [model, dtype, len(sinks), ratio.max(), at, entropy[at], without[at], depth, without[at] - entropy[at]]
        )
    columns = ["model", "dtype", "sink_layers", "largest_ratio", "layer", "entropy", "without_first", "depth", "rise"]
    return pd.DataFrame(rows, columns=columns).astype({"layer": "Int64"})


def valley_answer(found: pd.DataFrame, model: str, dtype: str) -> Answer:
    """Claim 6: without the first token, prompt entropy rises by more than half of the valley's depth."""
    rows = found[(found.model == model) & (found.dtype == dtype)]
    if rows.empty:
        return "missing"
    (row,) = rows.itertuples()
    if not row.sink_layers or row.depth <= 0:
        return "neither"
    return "yes" if row.rise > HALF * row.depth else "no"


# ---- verdicts


def dtype_of(found: pd.DataFrame, model: str) -> str:
    """The dtype whose numbers count; "" where there are none."""
    known = set(found.dtype[found.model == model])
    return next((dtype for dtype in DTYPES if dtype in known), "")


def first_answer(answer: Callable[[pd.DataFrame, str, str], Answer], found: pd.DataFrame, model: str) -> Answer:
    """The answer of a model in the first dtype in which it was measured for this claim."""
    answers = (answer(found, model, dtype) for dtype in DTYPES)
    return next((one for one in answers if one != "missing"), "missing")


# The table that a claim is read from, and how.
ANSWERS: Mapping[int, tuple[str, Callable[[pd.DataFrame, str, str], Answer]]] = {
    1: ("advantages", template_answer), 2: ("advantages", middle_answer), 3: ("advantages", echo_answer),
    4: ("recommended", picked_answer), 6: ("valleys", valley_answer), 7: ("advantages", encoder_answer),
    8: ("advantages", rounding_answer),
}  # fmt: skip


def judge(scores: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """All tables: the claims with their verdicts, what each model says about each, and the numbers behind both."""
    found = {
        "advantages": advantages(scores), "recommended": recommended(scores),
        "correlations": correlations(scores, metrics), "valleys": valleys(metrics),
    }  # fmt: skip
    read = found | {"advantages": found["advantages"].set_index(FORM)}
    claims, answers = [], []
    for number, text in CLAIMS.items():
        if number == 5:
            verdict, by_model = metric_verdict(read["correlations"])
            counted = by_model
        else:
            table, answer = ANSWERS[number]
            by_model = {model: first_answer(answer, read[table], model) for model in ASKED[number]}
            counted = {model: one for model, one in by_model.items() if model not in DEVELOPMENT}
            verdict = verdict_of(number, counted)
        behind = ["; ".join(models_with(counted, word)) for word in ("yes", "no", "neither", "missing")]
        claims.append([number, text, verdict, *behind])
        answers += [[number, model, model in counted, one] for model, one in by_model.items()]
    return {
        "claims": pd.DataFrame(
            claims, columns=["claim", "text", "verdict", "agree", "contradict", "neither", "missing"]
        ),
        "answers": pd.DataFrame(answers, columns=["claim", "model", "counted", "answer"]),
        **found,
    }


def verdict_of(number: int, answers: Mapping[str, Answer]) -> str:
    """confirmed, refuted or undecided; not run yet while a missing model could change it."""
    given = list(answers.values())
    if number == 8:
        at_4_bits, at_2_bits = answers["smollm2-135m-4bit"], answers["smollm2-135m-2bit"]
        if at_4_bits == "no":
            return "refuted"
        if "missing" in given:
            return "not run yet"
        return "confirmed" if at_2_bits == "yes" else "undecided"
    if given.count("no") >= REFUTED_BY[number]:
        return "refuted"
    if "missing" in given:
        return "not run yet"
    if number == 6:  # models without a sink have nothing to say
        return "confirmed" if "yes" in given else "undecided"
    return "confirmed" if set(given) == {"yes"} else "undecided"


def models_with(answers: Mapping[str, Answer], word: str) -> list[str]:
    return [model for model, answer in answers.items() if answer == word]


# ---- the figure


def draw(scores: pd.DataFrame) -> Any:
    """The advantage of every layer by relative depth, without a map: a panel per input, a line per model."""
    from layerwise.verbs.report.drawing import finish_lines, line_colours
    from layerwise.verbs.report.figures import panel_axes

    shown = {model: dtype_of(scores, model) for model in (*HELD_OUT, *DEVELOPMENT) if dtype_of(scores, model)}
    colours = dict(zip(shown, line_colours([*shown]), strict=True))
    panels: dict[str, list[tuple[str, pd.DataFrame]]] = {}
    for title, form in {"plain text, mean": PLAIN, "prompteol, last token": TEMPLATE, "echo, mean": ECHO}.items():
        for model, dtype in shown.items():
            part = scores[(scores[FORM] == [model, dtype, *form, "none"]).all(axis=1)]
            if len(part):
                panels.setdefault(title, []).append((model, layer_curves(part)))
    if not panels:
        raise InputError("the table of scores has no layers of the models of the findings")
    axes = panel_axes(len(panels), [PANEL_HEIGHT])
    for ax, (title, lines) in zip(axes, panels.items(), strict=True):
        for model, curves in lines:
            gains = curves.sub(curves.iloc[-1]).mean(axis=1).drop(NORMED, errors="ignore")
            depth = [100 * int(layer) / last_block(curves) for layer in gains.index]
            ax.plot(depth, gains, color=colours[model], linestyle="--" if model in DEVELOPMENT else "-", label=model)
        ax.axhline(0, color="0.5", linewidth=0.6)
        finish_lines(ax, "advantage over the last layer (points)", "depth (%)", title)
    return axes[0]
