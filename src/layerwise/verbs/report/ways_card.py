"""The card of a comparison by shrink: what to use, a picture of time against what a search loses, and the table."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerwise.verbs.report.markup import escape, table

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 280, 64, 44, 16, 150
COLUMNS_EXPLAINED = (
    "time: mean of the times for one and for 32 short and long texts; 1.00 is the whole model. lowest cosine: for the "
    "kind of texts that agrees least with the original. MRR lost: queries of this model in the original's index, with "
    "95 % intervals."
)


def ways_cards(found: Sequence[Mapping[str, Any]]) -> str:
    return "".join(map(ways_card, found))


def ways_card(found: Mapping[str, Any]) -> str:
    """What was recommended, the picture, and all ways that were made."""
    name = Path(found["model"]["name"]).name
    first, *others = (sentence.removeprefix("recommended: ") for sentence in found["answer"])
    rows = [row_of(way) for way in found["ways"]]
    ways = table(
        ["way", "MB", "time", "lowest cosine", "MRR lost in the index", "if re-embedded"], rows,
        words=("way", "lowest cosine"), caption=f"Ways to make {name} smaller", stacked=True,
    )  # fmt: skip
    others += [f"not made: {way}: {why}" for way, why in found["not_made"].items()]
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in others)
    texts = found["data"]
    made_of = f"{texts['count']:,} texts ({texts['name']}, fingerprint {texts['fingerprint']})"
    return (
        f'<div class="pick"><p class="answer">{escape(f"{name}: {first}")}</p><ul class="why">{items}</ul>'
        f'{picture(found["ways"])}{ways}<p class="quiet">{escape(f"{COLUMNS_EXPLAINED} Made of {made_of}.")}</p></div>'
    )


def row_of(way: Mapping[str, Any]) -> list[str]:
    lost, again = (loss_of(way, case) for case in ("new_old", "new_new"))
    groups = (way["agreement"] or {}).get("groups") or []
    worst = min(groups, key=lambda group: float(group["mean_cosine"]), default=None)
    cosine = f"{worst['mean_cosine']:.2f} ({worst['name']})" if worst else ""
    return [way["words"], f"{way['bytes'] / 1e6:.0f}", f"{mean_time(way):.2f}", cosine, in_words(lost), in_words(again)]


def mean_time(way: Mapping[str, Any]) -> float:
    """The geometric mean of the times."""
    ratios = [float(found["ratio"]) for found in way["times"].values()]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios and min(ratios) > 0 else 1.0


def loss_of(way: Mapping[str, Any], case: str) -> tuple[float, float, float] | None:
    """The MRR that is lost, and its interval; None where it was not tested."""
    cases = (way["compatibility"] or {}).get("cases")
    if not cases:
        return None
    found = cases[case]["loss"]
    return found["mean"], *found["interval"]


def in_words(loss: tuple[float, float, float] | None) -> str:
    return "" if loss is None else "{:.3f} ({:.3f} to {:.3f})".format(*loss)


def picture(ways: Sequence[Mapping[str, Any]]) -> str:
    """Each way as a point: its time, on a scale of doublings, and the MRR that its queries lose, with the interval."""
    points = [(way["words"], mean_time(way), loss) for way in ways if (loss := loss_of(way, "new_old")) is not None]
    if not points:
        return ""
    first = min(0.5, *(time for _, time, _ in points))
    low, high = min(0.0, *(loss[1] for *_, loss in points)), max(0.02, *(loss[2] for *_, loss in points))

    def x(time: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(time / first) / math.log(1 / first)

    def y(loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (loss - low) / (high - low)  # what loses less is higher

    marks = [f'<line class="axis" x1="{LEFT}" x2="{x(1):.1f}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>']
    marks += [
        f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>' for value in {0, high}
    ]
    ticks = [first, 1.0] if first > 0.3 else [first, math.sqrt(first), 1.0]
    marks += [f'<text x="{x(t):.1f}" y="{HEIGHT - 24}" text-anchor="middle">{t:.2g}</text>' for t in ticks]
    middle = (LEFT + x(1)) / 2
    marks.append(f'<text x="{middle:.1f}" y="{HEIGHT - 6}" text-anchor="middle">time, of the whole model\'s</text>')
    marks.append(f'<text x="{LEFT}" y="{TOP - 4}" text-anchor="start">MRR lost in the original\'s index</text>')
    for words, time, (mean, least, most) in [("the whole model", 1.0, (0.0, 0.0, 0.0)), *points]:
        marks.append(
            f'<line class="frame" x1="{x(time):.1f}" x2="{x(time):.1f}" y1="{y(least):.1f}" y2="{y(most):.1f}"/>'
        )
        marks.append(f'<circle class="frame" cx="{x(time):.1f}" cy="{y(mean):.1f}" r="4"/>')
        side, anchor = (-8, "end") if 0.25 < time < 1 else (8, "start")  # those between are close to the whole model
        place = f'x="{x(time) + side:.1f}" y="{y(mean) - 6:.1f}" text-anchor="{anchor}"'
        marks.append(f'<text class="strong" {place}>{escape(words)}</text>')
    label = "Time of each way against the mean reciprocal rank that its queries lose"
    drawn = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(marks)}</svg>'
    return f'<div class="plot">{drawn}</div>'
