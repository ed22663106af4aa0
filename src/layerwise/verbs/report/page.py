"""One HTML file that shows a set of runs: it works offline, loads nothing from the network, and escapes all names.

Text and tables are written here; the scripts in assets/ draw the charts from data in the page.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from layerwise.runs.folder import Run
from layerwise.verbs.report.content import page_data, run_labels
from layerwise.verbs.report.markup import escape, safe_json
from layerwise.verbs.report.overview import summary_section
from layerwise.verbs.report.pick_card import pick_cards
from layerwise.verbs.report.repeat_commands import commands, facts
from layerwise.verbs.report.ways_card import ways_cards

HEADINGS = {
    "summary": ("Summary", ""),
    "compared": ("What changed", ""),
    "ways": ("Ways to make it smaller", ""),
    "pick": ("Recommended layer", ""),
    "curves": (
        "Metrics by depth",
        "Bands are 95 % intervals. A ring is the last layer after the final norm; if it lies outside the chart, an "
        "arrow at the edge shows its value. A metric describes a layer. Only labelled data can show whether the layer "
        "is useful for a task.",
    ),
    "inside": (
        "Inside the block",
        "Solid lines: the residual stream, which enters a block and leaves it. Dashed lines: what attention and MLP "
        "read and what they add.",
    ),
    "training": ("During training", "Each metric by layer and training step, on a common scale."),
    "changes": ("Differences by layer", "Second model minus first, at the same relative depth, with 95 % intervals."),
    "cka": (
        "Similarity of layers",
        "Linear CKA of pooled vectors of the same texts: 1 means identical up to rotation and scale.",
    ),
    "heat": ("All metrics at a glance", ""),
    "scores": ("Task scores", ""),
    "correlation": (
        "Correlation of metrics and scores",
        "Correlation over the layers of one model. It describes this model and tests nothing. Signs differ between "
        "model families, so do not use it as a rule for another model.",
    ),
    "tradeoff": ("Score and cost of each layer", ""),
    "stress": ("Stress tests", "Increasingly extreme prompts, one line per level."),
    "provenance": ("Provenance", ""),
}
SCRIPTS = ("tools.js", "cards.js", "lines.js", "heat.js", "scatter.js", "sections.js")
GENERATOR = '<meta name="generator" content="layerwise">'
NO_SCRIPT_NOTE = "The charts need JavaScript. The summary, the numbers and the provenance do not."
PLACEHOLDERS = ("TEXTS.txt", "RUN", "ROOT", "MODEL", "RECIPE1.json", "FIT", "LABELS")
FILL_IN = "Replace words in capitals: they stand for objects that were passed from Python, or were not recorded."


def page(
    runs: Sequence[Run],
    ways: Sequence[Mapping[str, Any]] = (),
    *,
    title: str = "",
    correlations: Iterable[tuple[int, Any]] = (),
    comparison: Mapping[str, Any] | None = None,
    comparison_text: str = "",
    command_line: Sequence[str] = (),
) -> str:
    """The page as text.

    `comparison` is a comparison as plain data, `comparison_text` its summary; `command_line` is the command.
    """
    data = page_data(runs, correlations, comparison)
    labels = run_labels(runs)
    picks = [(label, run.pick) for run, label in zip(runs, labels, strict=True) if run.pick]
    parts = {
        "summary": summary_section(runs, labels) if runs else "",
        "ways": ways_cards(ways),
        "compared": f'<pre class="wide" tabindex="0">{escape(comparison_text)}</pre>' if comparison_text else "",
        "pick": pick_cards(picks),
        "curves": cards(data["scan"]),
        "inside": cards(data["inside"]),
        "training": cards(all("step" in model for model in data["models"]) and len(data["models"]) > 1),
        "changes": cards(any(pair["changes"] for pair in data["pairs"])),
        "cka": cards(any(pair["cka"] for pair in data["pairs"])),
        "heat": cards(data["scan"], wide=True),
        "scores": cards(data["eval"], wide=True),
        "correlation": cards(data["correlation"], wide=True),
        "tradeoff": cards(data["tradeoff"]),
        "stress": cards(data["stress"]),
        "provenance": provenance_section(runs, labels, command_line),
    }
    sections = {name: inner for name, inner in parts.items() if inner}
    names = [model["label"] for model in data["models"]] or [Path(found["model"]["name"]).name for found in ways]
    heading = title or model_list(names)
    return document(heading, subtitle(runs, len(ways)), sections, data)


def is_page(start: bytes) -> bool:
    """True if a file that starts like this is a page of layerwise."""
    return GENERATOR.encode() in start


def document(title: str, made_of: str, parts: Mapping[str, str], data: Mapping[str, Any]) -> str:
    style, script = asset_text("style.css"), f'"use strict";\n(() => {{\n{"".join(map(asset_text, SCRIPTS))}}})();\n'
    sources = f"script-src {csp_hash(script)}; style-src {csp_hash(style)}"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    links = "".join(f'<li><a href="#{name}">{escape(HEADINGS[name][0])}</a></li>' for name in parts)
    sections = "".join(section(name, inner) for name, inner in parts.items())
    # The controls come before the first section that they control.
    first = next((name for name in ("curves", "scores", "stress") if name in parts), "provenance")
    bar = '<div id="controls" class="bar" role="toolbar" aria-label="Display settings" hidden></div>'
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
<a class="skip" href="#{next(iter(parts))}">Skip to summary</a>
<div class="wrap">
<header class="top"><div>
<p class="kicker">layerwise report</p><h1 dir="auto">{escape(title)}</h1><p class="quiet">{escape(made_of)}</p>
</div><button type="button" id="theme">Dark</button></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<noscript><p>{NO_SCRIPT_NOTE}</p></noscript>
<main>{sections}</main>
<footer>Made with layerwise. This file is self-contained and works offline.</footer>
</div>
<div id="tip" aria-hidden="true" hidden></div>
<div id="announcer" class="visually-hidden" aria-live="polite"></div>
<script type="application/json" id="data">{safe_json(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def asset_text(name: str) -> str:
    return (files("layerwise.verbs.report") / "assets" / name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """The hash with which a Content-Security-Policy allows exactly one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def section(name: str, inner: str) -> str:
    heading, note = HEADINGS[name]
    shown = f'<p class="quiet">{escape(note)}</p>' if note else ""
    head = f'<h2 id="{name}-h">{escape(heading)}</h2>{shown}'
    return f'<section id="{name}" aria-labelledby="{name}-h">{head}{inner}</section>'


def cards(has_content: Any, *, wide: bool = False) -> str:
    """An empty container that the script fills with cards; an empty string if there is nothing to draw."""
    return f'<div class="cards{" wide" if wide else ""}"></div>' if has_content else ""


def model_list(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def subtitle(runs: Sequence[Run], comparisons: int = 0) -> str:
    if models := max((run.table.run.get("models", 0) for run in runs), default=0):
        return f"quantiles over {models:,} models; made {datetime.now(UTC):%Y-%m-%d}"
    names = {"scan": "scan", "eval": "evaluation", "probe": "probe run", "stress": "stress test"}
    kinds = [run.kind for run in runs]
    counts = [f"{kinds.count(k)} {names[k]}{'s' if kinds.count(k) > 1 else ''}" for k in names if k in kinds]
    counts += [f"{comparisons} comparison{'s' if comparisons > 1 else ''} by shrink"] if comparisons else []
    return f"{', '.join(counts)}; made {datetime.now(UTC):%Y-%m-%d}"


def provenance_section(runs: Sequence[Run], labels: Sequence[str], command_line: Sequence[str]) -> str:
    lines = commands(runs, command_line)
    details = "".join(
        f"<details><summary>{escape(run.kind)} of {escape(label)}</summary><dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(run.table))
        + "</dl></details>"
        for run, label in zip(runs, labels, strict=True)
    )
    blanks = {word for line in lines for word in line.split()} & set(PLACEHOLDERS)
    fill_in = f'<p class="quiet">{escape(FILL_IN)}</p>' if blanks else ""
    copy = '<button type="button" data-copies="commands" hidden>Copy</button>'
    return (
        "<p>These commands reproduce the runs and this page:</p>"
        f'<div class="command"><pre id="commands" tabindex="0">{escape(chr(10).join(lines))}</pre>{copy}</div>'
        f"{fill_in}{details}"
    )
