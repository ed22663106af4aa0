"""The verdicts on the protocol's claims, and the tables and the figure of README.md, from scores.csv and metrics.csv.

    python studies/evidence/judge.py [FOLDER]

FOLDER has the tables of score.py; by default this one, whose README is then written too. claims.csv, answers.csv and
advantage.png are written beside the tables. Any of the models may be missing.
"""

import sys
from pathlib import Path

import pandas as pd

from layerwise.core.recipe import Recipe
from layerwise.verbs.lab.reproduce.findings import (
    DEVELOPMENT,
    ENCODERS,
    FORM,
    LANGUAGE,
    METRIC_COLUMNS,
    PICKED,
    ROUNDED,
    SCORE_COLUMNS,
    block,
    draw,
    dtype_of,
    judge,
    over_models,
    read_tables,
)
from layerwise.verbs.report.figures import save

HERE = Path(__file__).parent
NAMES = {
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder-0.5B", "qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B",
    "tinyllama-1.1b-chat": "TinyLlama-1.1B", "opus-mt-en-fr": "OPUS-MT en-fr encoder",
    "opus-mt-fr-en": "OPUS-MT fr-en encoder", "opus-mt-fr-en-decoder": "OPUS-MT fr-en decoder",
    "smollm2-135m": "SmolLM2-135M", "smollm2-135m-4bit": "SmolLM2-135M in 4 bits",
    "smollm2-135m-2bit": "SmolLM2-135M in 2 bits", "gemma3-270m": "Gemma3-270M",
}  # fmt: skip
TEMPLATE = "prompteol"
Lines = list[list[str]]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    scores, metrics = tables(folder)
    found = judge(scores, metrics)
    for name in ("claims", "answers"):
        found[name].to_csv(folder / f"{name}.csv", index=False)
    if len(scores):
        save(draw(scores), folder / "advantage.png")
    print(found["claims"][["claim", "verdict", "missing"]].to_string(index=False))
    if folder.resolve() == HERE.resolve():
        write_page(HERE / "README.md", blocks(scores, metrics, recipes(folder)))


def tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    if not (folder / "scores.csv").exists():  # before the first score
        return pd.DataFrame(columns=[*SCORE_COLUMNS]), pd.DataFrame(columns=[*METRIC_COLUMNS])
    return read_tables(folder / "scores.csv", folder / "metrics.csv")


def recipes(folder: Path) -> dict[tuple[str, str], Recipe]:
    """What `pick` recommends, by model and dtype."""
    path = folder / "recipes.csv"
    rows = pd.read_csv(path).itertuples() if path.exists() else ()
    return {(row.model, row.dtype): Recipe.from_json(row.recipe) for row in rows}


def blocks(scores: pd.DataFrame, metrics: pd.DataFrame, picked: dict[tuple[str, str], Recipe]) -> dict[str, str]:
    """What stands between the marks of the page."""
    found = judge(scores, metrics)
    return {
        "summary": summary(found["claims"]), "answers": answers_table(found["claims"], found["answers"]),
        "figure": "![advantage over the last layer by depth](advantage.png)" if len(scores) else "Not drawn yet.",
        "advantages": advantages_table(found["advantages"]), "picks": picks_table(found["recommended"], picked),
        "correlations": correlations_table(found["correlations"]), "valleys": valleys_table(found["valleys"]),
        "rounding": rounding_table(scores, found["advantages"]),
    }  # fmt: skip


def write_page(page: Path, made: dict[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    for name, lines in made.items():
        start, end = f"<!-- {name}: written by judge.py -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(start, 1)
        text = before + start + lines + "\n" + end + rest.split(end, 1)[1]
    page.write_text(text, encoding="utf-8")


def markdown(head: list[str], rows: Lines) -> str:
    if not rows:
        return "No rows yet."
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def name_of(model: str, dtype: str = "") -> str:
    return NAMES.get(model, model) + (f" ({dtype})" if dtype == "bfloat16" else "")


def span(gain: float, low: float, high: float) -> str:
    return f"{gain:+.1f} ({low:+.1f} to {high:+.1f})"


def summary(claims: pd.DataFrame) -> str:
    """How many claims were confirmed, refuted and undecided, and which they are."""
    lines = []
    for verdict in ("confirmed", "refuted", "undecided", "not run yet"):
        some = claims[claims.verdict == verdict]
        listed = "; ".join(f"{text} ({number})" for number, text in zip(some.claim, some.text, strict=True))
        lines.append(f"- **{verdict[0].upper()}{verdict[1:]}: {len(some)}.**" + (f" {listed}." if listed else ""))
    missing = dict.fromkeys(model for cell in claims.missing for model in cell.split("; ") if model)
    if missing:
        lines.append(f"- Models that are missing for some claim: {', '.join(map(name_of, missing))}.")
    return "\n".join(lines)


def answers_table(claims: pd.DataFrame, answers: pd.DataFrame) -> str:
    """One row per claim, and one column per model."""
    shown = {"yes": "yes", "no": "**no**", "neither": "neither", "missing": "not run"}
    models = [*LANGUAGE, *ENCODERS, *DEVELOPMENT, *ROUNDED]
    by_model = {(row.claim, row.model): shown[row.answer] for row in answers.itertuples()}
    rows = [
        [
            str(row.claim),
            row.text,
            f"**{row.verdict}**",
            *("" if row.claim == 5 else by_model.get((row.claim, m), "") for m in models),
        ]
        for row in claims.itertuples()
    ]
    return markdown(["", "claim", "verdict", *map(name_of, models)], rows)


def advantages_table(found: pd.DataFrame) -> str:
    order = {model: place for place, model in enumerate(NAMES)}
    rows = [
        [
            name_of(row.model, row.dtype), f"{row.input}, {row.pooling}", row.map, f"{row.best} of {row.depth}",
            f"{row.chosen_a}, {row.chosen_b}", span(row.gain, row.low, row.high),
        ]
        for row in found.sort_values("model", key=lambda names: names.map(order), kind="stable").itertuples()
    ]  # fmt: skip
    for form, part in found[found.model.isin(LANGUAGE)].groupby(FORM[2:], sort=False):
        counted = part[[dtype == dtype_of(found, model) for model, dtype in zip(part.model, part.dtype, strict=True)]]
        if len(counted) > 1:
            gain = span(*over_models(counted.gain))
            rows.append([f"mean of {len(counted)} language models", f"{form[0]}, {form[1]}", form[2], "", "", gain])
    return markdown(["model", "input", "map", "best layer", "chosen by half A, B", "advantage (95 %)"], rows)


def picks_table(found: pd.DataFrame, picked: dict[tuple[str, str], Recipe]) -> str:
    rows = []
    for (model, dtype), part in found.groupby(["model", "dtype"], sort=False):
        recipe = picked[model, dtype]
        form = f"layer {recipe.layer}, {TEMPLATE + ', ' if recipe.template else ''}{recipe.pooling}, {recipe.transform}"
        gains = [f"{row.score:.1f}: {span(row.gain, row.low, row.high)}" for row in part.itertuples()]
        rows.append([name_of(model, dtype), form, f"{part.picked.iloc[0]:.1f}", *gains])
    head = ["model", "what `pick` recommends", "score", "against last layer, mean", "prompteol as published"]
    return markdown([*head, "whitened token embeddings"], rows)


def correlations_table(found: pd.DataFrame) -> str:
    wide = found.assign(model=[*map(name_of, found.model, found.dtype)])
    models, rows = list(dict.fromkeys(wide.model)), []
    for (metric, tokens), part in wide.groupby(["metric", "tokens"], sort=False):
        by_model = dict(zip(part.model, part.spearman, strict=True))
        cells = [f"{by_model[model]:+.2f}" if model in by_model else "" for model in models]
        rows.append([metric + (f", {tokens}" if tokens != "all" else ""), *cells])
    return markdown(["metric", *models], rows)


def valleys_table(found: pd.DataFrame) -> str:
    rows = []
    for row in found.itertuples():
        first = [name_of(row.model, row.dtype), str(row.sink_layers), f"{row.largest_ratio:.1f}"]
        if row.sink_layers:
            values = (row.entropy, row.without_first, row.depth, row.rise)
            rows.append([*first, str(row.layer), *(f"{value:.2f}" for value in values)])
        else:
            rows.append([*first, *[""] * 5])
    head = ["model", "layers with a sink", "largest ratio of norms", "layer of least entropy", "its entropy"]
    return markdown([*head, "without the first token", "depth of the valley", "rise"], rows)


def rounding_table(scores: pd.DataFrame, found: pd.DataFrame) -> str:
    """Other ways to read SmolLM2 beside itself: how far its scores are apart, and what the forms that decide say."""
    model, rows = "smollm2-135m", []
    others = [("float32", model), *((dtype, name) for name in ROUNDED for dtype in ("bfloat16", "float32"))]
    keys, base = ["input", "pooling", "map", "layer", "task"], ("bfloat16", model)
    indexed = {
        key: part.set_index(keys).score for key, part in scores[scores.input != PICKED].groupby(["dtype", "model"])
    }
    for other in others:
        both = [indexed.get(key) for key in (base, other)]
        if any(part is None for part in both):
            continue
        gap = (both[1] - both[0]).dropna()
        of = found.set_index(["dtype", "model"], drop=False)
        forms = [of.loc[[key]].set_index(FORM[2:]) for key in (base, other)]
        same = forms[0].index.intersection(forms[1].index)
        moved = [
            abs(block(a.best, a.depth) - block(b.best, b.depth))
            for a, b in zip(*(form.loc[same].itertuples() for form in forms), strict=True)
        ]
        rows.append(
            [
                name_of(other[1], other[0]),
                str(len(gap)),
                f"{gap.mean():+.2f}",
                f"{gap.abs().mean():.2f}",
                str(max(moved, default=0)),
                f"{abs(forms[1].loc[same].gain - forms[0].loc[same].gain).max():.1f}",
            ]
        )
    head = ["read as", "scores compared", "mean difference", "mean size of a difference", "best layer moves by at most"]
    return markdown([*head, "advantage changes by at most"], rows)


if __name__ == "__main__":
    main()
