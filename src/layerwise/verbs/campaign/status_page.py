"""The status of a campaign as text and as one HTML file, which is written again while the campaign runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from layerwise.core.display import printable, redact
from layerwise.core.files import open_folder
from layerwise.runs.ownership import MARKER, read_marker
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.campaign.status import STATUSES, CellStatus, counts, statuses
from layerwise.verbs.report.markup import escape, table
from layerwise.verbs.report.page import GENERATOR, asset_text, csp_hash, is_page

STATUS_PAGE = "status.html"
INTERVAL = 60.0  # seconds between two versions of the page
MAX_SHOWN = 20  # scans of one status that are listed by name in the terminal
STYLE = """
.grid { display: flex; flex-wrap: wrap; gap: 2px; margin: 1rem 0; }
.grid i { width: 10px; height: 10px; border-radius: 2px; background: var(--line); }
.done { background: #2a7f62 !important; } .running { background: #d98e04 !important; }
.failed { background: #b3261e !important; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; background: var(--line); }
.key i { margin: 0 .3rem 0 1rem; }
"""


def status_text(found: Sequence[CellStatus]) -> str:
    """The counts, and the names of scans that run or failed."""
    lines = [", ".join(f"{count:,} {status}" for status, count in counts(found).items())]
    for status in ("running", "failed"):
        named = [entry for entry in found if entry.status == status]
        for entry in named[:MAX_SHOWN]:
            reason = f": {entry.reason}" if entry.reason else ""
            lines.append(printable(redact(f"{status}  {entry.cell.name}{reason}")))
        if len(named) > MAX_SHOWN:
            lines.append(f"{status}  and {len(named) - MAX_SHOWN:,} more")
    return "\n".join(lines)


def status_page(plan: Campaign, found: Sequence[CellStatus]) -> str:
    """One square per scan, in the order of the campaign file, and a table of those that run or failed."""
    numbers = counts(found)
    squares = "".join(
        f'<i class="{entry.status}" title="{escape(redact(entry.cell.name))}: {entry.status}"></i>' for entry in found
    )
    key = "".join(f'<i class="{status}"></i>{numbers[status]:,} {status}' for status in STATUSES)
    rows = [
        [entry.status, redact(entry.cell.name), redact(entry.reason)]
        for status in ("failed", "running")
        for entry in found
        if entry.status == status
    ]
    names = table(
        ["status", "scan", "reason"], rows, words=("status", "scan", "reason"), caption="Scans that failed or run"
    )
    style = asset_text("style.css") + STYLE
    policy = f"default-src 'none'; style-src {csp_hash(style)}; base-uri 'none'; form-action 'none'"
    title = f"{numbers['done']:,} of {len(found):,} scans done"
    return f"""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta http-equiv="refresh" content="{INTERVAL:.0f}">
<meta name="viewport" content="width=device-width, initial-scale=1">
{GENERATOR}
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body><div class="wrap">
<header class="top"><div><p class="kicker">layerwise campaign</p><h1>{escape(title)}</h1>
<p class="quiet">{escape(redact(plan.file or plan.out))}; written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, and again
every minute while the campaign runs</p></div></header>
<main><p class="key">{key}</p><div class="grid">{squares}</div>{names if rows else ""}</main>
</div></body>
</html>
"""


def write_status_page(plan: Campaign, found: Sequence[CellStatus]) -> None:
    """Writes the page into the campaign's folder; other folders and files of that name that are not ours stay."""
    folder = open_folder(plan.out)
    marker, existing = folder.read(MARKER), folder.read(STATUS_PAGE)
    if marker is None or read_marker(folder, marker)["kind"] != "campaign":
        return
    if existing is None or is_page(existing):
        folder.write(STATUS_PAGE, status_page(plan, found).encode("utf-8", errors="replace"))


@dataclass
class StatusPage:
    """Called with every event of a campaign; writes the page at most once per minute."""

    plan: Campaign
    written_at: float = field(default_factory=time.monotonic)

    def __call__(self, event: object) -> None:
        if time.monotonic() - self.written_at > INTERVAL:
            self.written_at = time.monotonic()
            write_status_page(self.plan, statuses(self.plan))
