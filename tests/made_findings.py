"""Made-up tables of scores and metrics, whose verdicts are known by construction."""

import pandas as pd

DEPTH = 10
TASKS = {f"task{i}": "AB"[i // 4] for i in range(8)}
MAPS = ("none", "remove_top:8")
FORMS = {"plain": "mean", "prompteol": "last", "echo": "mean"}
# The best layer of each input and its points above the last: what claims 1, 2 and 3 say of a model.
AGREES = {"plain": (4, 3.0), "prompteol": (9, 2.0), "echo": (9, 0.5)}
CONTRADICTS = {"plain": (10, 0.0), "prompteol": (5, 3.0), "echo": (3, 2.0)}


def form_rows(model, name, peak, gain, map_name="none", dtype="bfloat16", normed=True):
    """Every layer has 40 points, the last 50, and the peak `gain` more than the last."""
    layers = [str(layer) for layer in range(name == "prompteol", DEPTH + 1)] + ["normed"] * normed
    by_layer = {layer: 40.0 for layer in layers} | {layers[-1]: 50.0}
    by_layer |= {str(peak): 50.0 + gain} if gain > 0 else {}
    return [
        {"model": model, "dtype": dtype, "input": name, "pooling": FORMS[name], "map": map_name, "layer": layer,
         "task": task, "half": half, "score": score}
        for layer, score in by_layer.items() for task, half in TASKS.items()
    ]  # fmt: skip


def single(model, name, pooling, map_name, layer, score, dtype="bfloat16"):
    return [
        {"model": model, "dtype": dtype, "input": name, "pooling": pooling, "map": map_name, "layer": layer,
         "task": task, "half": half, "score": score}
        for task, half in TASKS.items()
    ]  # fmt: skip


def model_rows(model, shape, picked=60.0, **options):
    """All forms of a model, what `pick` recommends, and whitened token embeddings of 45 points."""
    rows = [r for name, at in shape.items() for one in MAPS for r in form_rows(model, name, *at, one, **options)]
    rows += single(model, "plain", "mean", "whiten", "0", 45.0)
    return rows + single(model, "pick", "last", "remove_top:8+mean", "9", picked)


def metric_rows(model, curves, dtype="bfloat16"):
    return [
        {"model": model, "dtype": dtype, "metric": metric, "tokens": tokens, "layer": layer, "value": value}
        for (metric, tokens), curve in curves.items() for layer, value in enumerate(curve)
    ]  # fmt: skip


def sink_curves(without):
    """A first token that is long in layers 3 to 8, where prompt entropy falls from 3 to 1; `without` it, there."""
    ratio = [1.0 if layer < 3 or layer > 8 else 30.0 for layer in range(DEPTH + 1)]
    entropy = [3.0 if one < 10 else 1.0 for one in ratio]
    rest = [3.0 if one < 10 else without for one in ratio]
    keys = (("first_norm_ratio", "all"), ("prompt_entropy", "all"), ("prompt_entropy", "no_first"))
    return dict(zip(keys, (ratio, entropy, rest), strict=True))


def tables(shapes, metrics=()):
    rows = [row for model, shape in shapes.items() for row in model_rows(model, shape)]
    columns = ["model", "dtype", "metric", "tokens", "layer", "value"]
    return pd.DataFrame(rows), pd.DataFrame(list(metrics), columns=columns)
