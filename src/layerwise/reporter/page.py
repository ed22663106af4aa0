"""One HTML file that shows a set of runs: works offline, asks nothing of the network, and treats all names as text.

Words and tables are written here; the scripts in assets/ draw the pictures from data in the page.
"""

import base64
import hashlib
import html
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from layerwise.core.checks import SHIPPED
from layerwise.reporter.content import content, run_labels
from layerwise.reporter.provenance import command, facts, first_run
from layerwise.runs.folder import Run
from layerwise.runs.summary import SUMMARY_COLUMNS, summary_lines
from layerwise.runs.table import LayerTable

HEADINGS = {
    "summary": ("Summary", ""),
    "told": ("What changed", ""),
    "pick": ("The pick, and why", ""),
    "curves": (
        "Metrics against depth",
        "Bands are 95 % intervals; a ring is the last layer after the final norm. What a metric says of a layer is not "
        "what the layer is worth: that needs labels.",
    ),
    "training": ("Over training", "Each metric by layer and training step, on one scale."),
    "changes": ("Differences, layer by layer", "Second model minus first, at the same depth, with 95 % intervals."),
    "cka": (
        "Which layers are alike",
        "Linear CKA of pooled vectors of the same texts: 1 is the same shape, whatever its rotation.",
    ),
    "heat": ("All metrics at a glance", ""),
    "scores": ("Scores of tasks", ""),
    "correlation": (
        "Which metrics go with which scores",
        "Over the layers of one model: a description, not a test. Signs differ between model families, so this is no "
        "rule for another model.",
    ),
    "tradeoff": ("What a layer costs", ""),
    "stress": ("Under stress", "Prompts made more and more extreme: a line a level."),
    "provenance": ("Where this comes from", ""),
}
SCRIPTS = ("tools.js", "cards.js", "lines.js", "heat.js", "scatter.js", "sections.js")
GENERATOR = '<meta name="generator" content="layerwise">'
WITHOUT_SCRIPT = "The pictures need JavaScript. Summary, numbers and provenance on this page do not."


def page(
    runs: Sequence[Run],
    *,
    title: str = "",
    correlated: Iterable[tuple[int, Any]] = (),
    compared: Mapping[str, Any] | None = None,
    told: str = "",
    made_by: Sequence[str] = (),
) -> str:
    """The page as text. `compared` is a comparison as plain data, `told` its summary; `made_by` the command's words."""
    data = content(runs, correlated, compared)
    labels = run_labels(runs)
    parts = {
        "summary": summary_section(runs, labels),
        "told": f'<pre class="told" tabindex="0">{escape(told)}</pre>' if told else "",
        "pick": "".join(pick_box(run.pick, label) for run, label in zip(runs, labels, strict=True) if run.pick),
        "curves": cards(data["scan"]),
        "training": cards(all("step" in model for model in data["models"]) and len(data["models"]) > 1),
        "changes": cards(any(pair["changes"] for pair in data["pairs"])),
        "cka": cards(any(pair["cka"] for pair in data["pairs"])),
        "heat": cards(data["scan"], wide=True),
        "scores": cards(data["eval"], wide=True),
        "correlation": cards(data["correlation"], wide=True),
        "tradeoff": cards(data["tradeoff"]),
        "stress": cards(data["stress"]),
        "provenance": provenance_section(runs, labels, made_by),
    }
    shown = {name: inner for name, inner in parts.items() if inner}
    heading = title or listed(data["models"])
    return document(heading, subtitle(runs), shown, data)


def is_page(start: bytes) -> bool:
    """True if a file that starts like this is a page of ours."""
    return GENERATOR.encode() in start


def document(title: str, told: str, parts: Mapping[str, str], data: Mapping[str, Any]) -> str:
    style, script = source("style.css"), f'"use strict";\n(() => {{\n{"".join(map(source, SCRIPTS))}}})();\n'
    allowed = f"script-src {digest(script)}; style-src {digest(style)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    links = "".join(f'<li><a href="#{name}">{escape(HEADINGS[name][0])}</a></li>' for name in parts)
    sections = "".join(section(name, inner) for name, inner in parts.items())
    # The controls stand before the first section that they steer.
    first = next((name for name in ("curves", "scores", "stress") if name in parts), "provenance")
    bar = '<div id="controls" class="bar" role="toolbar" aria-label="What is shown" hidden></div>'
    sections = sections.replace(f'<section id="{first}"', f'{bar}<section id="{first}"', 1)
    return f"""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
{GENERATOR}
<title>{escape(title[:200])}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#summary">Skip to the summary</a>
<div class="wrap">
<header class="top"><div>
<p class="kicker">layerwise report</p><h1 dir="auto">{escape(title)}</h1><p class="quiet">{escape(told)}</p>
</div><button type="button" id="theme">Dark</button></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<noscript><p>{WITHOUT_SCRIPT}</p></noscript>
<main>{sections}</main>
<footer>Made by layerwise; this file needs no network and holds all that it shows.</footer>
</div>
<div id="tip" aria-hidden="true" hidden></div>
<div id="said" class="unseen" aria-live="polite"></div>
<script type="application/json" id="data">{safe_json(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def source(name: str) -> str:
    return (files("layerwise.reporter") / "assets" / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """The name by which a Content-Security-Policy allows one inline script or style, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def safe_json(data: Any) -> str:
    """JSON that cannot end the script element around it: ASCII only, without the characters of markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def escape(text: Any) -> str:
    return html.escape(str(text), quote=True)


def section(name: str, inner: str) -> str:
    heading, note = HEADINGS[name]
    told = f'<p class="quiet">{escape(note)}</p>' if note else ""
    head = f'<h2 id="{name}-h">{escape(heading)}</h2>{told}'
    return f'<section id="{name}" aria-labelledby="{name}-h">{head}{inner}</section>'


def cards(there: Any, *, wide: bool = False) -> str:
    """An empty place that the script fills with cards; nothing where there is nothing to draw."""
    return f'<div class="cards{" wide" if wide else ""}"></div>' if there else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[str], caption: str) -> str:
    """A real table; columns in `words` hold text and are set to the left."""
    kind = {name: ' class="text"' if name in words else ' class="spark"' if name == "by layer" else "" for name in head}
    titles = "".join(f'<th scope="col"{kind[name]}>{escape(name)}</th>' for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td{kind[name]}>{boxed(cell)}</td>" for name, cell in zip(head, row, strict=True)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def boxed(cell: str) -> str:
    """A cell's text; a very long one scrolls in a box of its own."""
    return f'<div class="long" tabindex="0">{escape(cell)}</div>' if len(cell) > 300 else escape(cell)


def listed(models: Sequence[Mapping[str, Any]]) -> str:
    names = [model["label"] for model in models]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def subtitle(runs: Sequence[Run]) -> str:
    made = {"scan": "scan", "eval": "evaluation", "stress": "stress test"}
    kinds = [run.kind for run in runs]
    counts = [f"{kinds.count(k)} {made[k]}{'s' if kinds.count(k) > 1 else ''}" for k in made if k in kinds]
    return f"{', '.join(counts)}; made {datetime.now(UTC):%Y-%m-%d}"


def summary_section(runs: Sequence[Run], labels: Sequence[str]) -> str:
    rows = {label: overview(label, runs, labels) for label in dict.fromkeys(labels)}
    head = [name for name in next(iter(rows.values())) if any(row[name] for row in rows.values())]
    models = table(
        head,
        [[row[name] for name in head] for row in rows.values()],
        words=("model", "family", "texts"),
        caption="Models in this report",
    )
    return models + numbers(runs, labels)


def overview(label: str, runs: Sequence[Run], labels: Sequence[str]) -> dict[str, str]:
    """One line a model: what it is, what was looked at, and its best layer against its last where it was scored."""
    mine = [run for run, name in zip(runs, labels, strict=True) if name == label]
    model: dict[str, Any] = {}
    texts = ""
    for run in reversed(mine):
        told = first_run(run.table)
        model |= told.get("model", {})
        texts = told.get("data", {}).get("name", "").rpartition("/")[2] or texts
    scored = next((run.table for run in mine if run.kind == "eval"), None)
    best, last = best_and_last(scored) if scored else ((None, 0.0), None)
    return {
        "model": label,
        "family": str(model.get("family", "")),
        "layers": str(model.get("depth", "") or max((s.layer for run in mine for s in run.table), default="")),
        "width": str(model.get("width", "")),
        "texts": texts,
        "tasks": str(len({s.metric for s in scored})) if scored else "",
        "best layer": f"{best[0]} ({best[1]:.1f})" if best[0] is not None else "",
        "last layer": f"{last:.1f}" if last is not None else "",
        "gain": f"{best[1] - last:+.1f}" if last is not None else "",
    }


def best_and_last(scored: LayerTable) -> tuple[tuple[int | None, float], float | None]:
    """The layer with the best mean score, and the mean score of the last layer as it is usually used."""
    first = next(iter(scored.scores), None)
    if first is None:
        return (None, 0.0), None
    tasks = {s.metric for s in scored}
    points: dict[tuple[int, str], list[float]] = {}
    for s in scored:
        if s.recipe[1:] == first.recipe[1:] and s.value == s.value:  # as the first row, in either norm
            points.setdefault((s.layer, s.norm), []).append(s.value)
    means = {key: sum(values) / len(values) for key, values in points.items() if len(values) == len(tasks)}
    raw = {layer: mean for (layer, norm), mean in means.items() if norm == first.norm}
    if not raw:
        return (None, 0.0), None
    deepest = max(raw)
    best = max(raw, key=lambda layer: raw[layer])
    shipped = [s.value for s in scored.where(norm=SHIPPED, transform="none") if s.value == s.value]
    last = sum(shipped) / len(shipped) if len(shipped) == len(tasks) else means.get((deepest, "normed"), raw[deepest])
    return (best, raw[best]), last


def numbers(runs: Sequence[Run], labels: Sequence[str]) -> str:
    """First, last, least and most of every metric of every scan, in its first setting, as a table to unfold."""
    rows = []
    for run, label in zip(runs, labels, strict=True):
        firsts: dict[str, tuple[str, str]] = {}
        for s in run.table:
            firsts.setdefault(s.metric, (s.rows, s.tokens))
        kept = [s for s in run.table if (s.rows, s.tokens) == firsts[s.metric]] if run.kind != "stress" else []
        rows += [(label, *line[1:]) for line in summary_lines(kept)]
    if not rows:
        return ""
    head = [name for i, name in enumerate(SUMMARY_COLUMNS) if any(row[i] for row in rows)]
    shown = [[cell for name, cell in zip(SUMMARY_COLUMNS, row, strict=True) if name in head] for row in rows]
    words = ("model", "metric", "rows", "tokens", "pooling", "norm")
    inner = table(head, shown, words=words, caption="Every metric in its first setting: its ends and turns")
    return f"<details><summary>All metrics in numbers</summary>{inner}</details>"


def gain_told(gain: Any) -> str:
    """A gain in points with its interval, as far as it is known."""
    known = {name: v for name, v in (gain or {}).items() if isinstance(v, int | float)}
    if "mean" not in known:
        return ""
    bounds = f", between {known['low']:+.2f} and {known['high']:+.2f}" if {"low", "high"} <= set(known) else ""
    return f"{known['mean']:+.2f} points{bounds}"


def pick_box(pick: Mapping[str, Any], label: str) -> str:
    """What was chosen, said first; then the rule, the reasons, and what is expected of it."""
    recipe = pick.get("recipe") or {}
    layer = recipe.get("layer", "?")
    said = "Keep the last layer" if pick.get("keep_last") else f"Use layer {layer}"
    told = {
        "rule": pick.get("rule", ""),
        "recipe": ", ".join(f"{k} {v}" for k, v in recipe.items() if v not in ("", None, "none", False)),
        "gain by the probes": gain_told(pick.get("gain")),
        "gain of the two tested models": gain_told(pick.get("expected_gain")),
        "layers that do as well": ", ".join(map(str, pick.get("layers_alike") or [])),
        "saving": ", ".join(f"{k} {v}" for k, v in (pick.get("saving") or {}).items()),
    }
    why = "".join(f'<li dir="auto">{escape(reason)}</li>' for reason in pick.get("why") or [])
    pairs = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in told.items() if v)
    reasons = f'<ul class="why">{why}</ul>' if why else ""
    return f'<div class="pick"><p class="said">{escape(label)}: {escape(said)}.</p>{reasons}<dl>{pairs}</dl></div>'


def provenance_section(runs: Sequence[Run], labels: Sequence[str], made_by: Sequence[str]) -> str:
    commands = [command(run.table, run.name or "RUN") for run in runs]
    places = dict.fromkeys(run.name or "RUN" for run in runs)  # a campaign is one place of several models
    this_page = ["layerwise", "report", *places, "--html", "report.html"]
    commands.append(shlex.join(made_by or this_page))
    whole = "\n".join(dict.fromkeys(commands))
    told = "".join(
        f"<details><summary>{escape(run.kind)} of {escape(label)}</summary><dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(run.table))
        + "</dl></details>"
        for run, label in zip(runs, labels, strict=True)
    )
    copy = '<button type="button" data-copies="commands" hidden>Copy</button>'
    return (
        "<p>These commands make the runs and this page again:</p>"
        f'<div class="command"><pre id="commands" tabindex="0">{escape(whole)}</pre>{copy}</div>{told}'
    )
