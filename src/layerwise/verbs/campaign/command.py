"""`layerwise campaign`: scan models x revisions x data x settings from one file into one table; resumable."""

import json
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Any

from layerwise.cli.shared import add_json, next_steps, say
from layerwise.core.display import printable, redact
from layerwise.core.progress import announcements

EXAMPLE = "layerwise campaign campaign.yaml --dry-run"
DOOR, LINE = "many", "many models, data sets and settings from one file"
HELP = "scan many models, revisions, data sets and settings from one file, into one table"


MAX_PRINTED = 100  # scans whose curves are printed at the end


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help="YAML file with out, models, data, settings, engine (docs/scale.md)")
    parser.add_argument("--dry-run", action="store_true", help="list the scans without loading anything")
    parser.add_argument(
        "--status", action="store_true", help="show what is done, running and failed, without running anything"
    )
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.runs.table import LayerTable
    from layerwise.verbs.campaign.api import run_campaign
    from layerwise.verbs.campaign.plan import Campaign
    from layerwise.verbs.campaign.status import statuses
    from layerwise.verbs.campaign.status_page import STATUS_PAGE, StatusPage, status_text, write_status_page

    plan = Campaign.load(args.file)
    if args.dry_run:
        print("\n".join(cell.name for cell in plan.cells))
        return 0
    if args.status:
        found = statuses(plan)
        if args.json:
            print(json.dumps([{"name": s.cell.name, "status": s.status, "reason": s.reason} for s in found]))
        else:
            print(status_text(found))
        return 0
    progress, page = ProgressTable(live=sys.stderr.isatty()), StatusPage(plan)

    def on_event(event: Any) -> None:
        progress(event)
        page(event)

    try:
        with announcements(False):  # the board shows which model is at work
            run_campaign(plan, on_event)
    finally:
        write_status_page(plan, found := statuses(plan))
    if not any(entry.status == "done" for entry in found):  # all are being run by other processes: no table yet
        print("[]" if args.json else status_text(found))
        return 0
    if args.json:
        print(LayerTable.load(plan.out).to_json())
    else:
        print(LayerTable.load(plan.out) if len(found) <= MAX_PRINTED else status_text(found))
    say(f"saved in {plan.out}; {STATUS_PAGE} there shows the status of every scan")
    if others := sum(entry.status == "running" for entry in found):
        say(f"{others} of {len(found)} scans are being run by other processes")
    next_steps(["layerwise", "report", str(plan.out), "--html", "report.html"])
    return 0


@dataclass
class ProgressTable:
    """A table of all scans on standard error, redrawn as they proceed; where it is no terminal, one line per change."""

    live: bool
    lines: dict[str, list[Any]] = field(default_factory=dict)  # status, prompts, tokens, start time
    drawn_lines: int = 0
    drawn_at: float = 0.0
    lock: Any = field(default_factory=threading.Lock)  # on a cluster, models report from several threads

    def __call__(self, event: Any) -> None:
        with self.lock:
            # The first event of a scan says whether it was done before; only changes are worth a line.
            line = self.lines.setdefault(event.cell.name, [event.status, 0, 0, time.monotonic()])
            changed, line[0] = line[0] != event.status, event.status
            line[1:3] = line[1] + event.prompts, line[2] + event.tokens
            if changed and event.status == "running":
                line[3] = time.monotonic()
            if not self.live and changed:
                reason = printable(redact(f"  {event.why}" if event.why else ""))
                print(self.format_line(event.cell.name) + reason, file=sys.stderr)
            elif self.live and (changed or time.monotonic() - self.drawn_at > 0.5):
                self.draw()

    def format_line(self, name: str) -> str:
        status, prompts, tokens, start_time = self.lines[name]
        tokens_per_second = tokens / max(1e-9, time.monotonic() - start_time)
        return f"{status:8}{prompts:>9,} texts{tokens_per_second:>9,.0f} tokens/s  {printable(redact(name))}"

    def draw(self) -> None:
        """The scans that run, and how many wait, are done or have failed."""
        lines = [self.format_line(name) for name, line in self.lines.items() if line[0] == "running"]
        counts = {
            status: sum(line[0] == status for line in self.lines.values()) for status in ("waiting", "done", "failed")
        }
        lines.append(", ".join(f"{count} {status}" for status, count in counts.items()))
        print((f"\x1b[{self.drawn_lines}A" if self.drawn_lines else "") + "\x1b[J" + "\n".join(lines), file=sys.stderr)
        self.drawn_lines, self.drawn_at = len(lines), time.monotonic()
