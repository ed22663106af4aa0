"""The parts of running a scan: its shards, what its folder must agree in, a finished table, provenance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import Folder
from layerwise.core.formats import stored_checksum
from layerwise.core.progress import GO_ON
from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.shards import ProgressCallback
from layerwise.inputs.source import Example, Source
from layerwise.metrics.accumulators.base import require_same_settings
from layerwise.metrics.catalog import CATALOG
from layerwise.models.network import Network
from layerwise.runs.folder import PROMPT_FILES, SHARDS, prompts_file, state_files
from layerwise.runs.identity import DataRef, ModelRef
from layerwise.runs.records import PLAN, environment
from layerwise.runs.table import LayerTable
from layerwise.verbs.scan.options import KeepPrompts
from layerwise.verbs.scan.plan import ScanPlan
from layerwise.verbs.scan.rows import prompt_table
from layerwise.verbs.scan.state import ScanState
from layerwise.verbs.scan.worker import scan_shard

MAX_PROMPTS = 100_000  # limit of `auto`
MERGE_ORDER = "tree"  # the order in which shards are merged affects the last bits


@dataclass(frozen=True)
class ScanShardFunction:
    """The shard function of a scan: returns the state, and per-prompt values if they are saved."""

    plan: ScanPlan
    origin: Mapping[str, Any]
    max_prompts: float

    def __call__(
        self, network: Network, number: int, examples: Sequence[Example], on_batch: ProgressCallback
    ) -> tuple[ScanState, dict[str, bytes]]:
        state, prompts = scan_shard(network, self.plan, self.origin, examples, on_batch)
        is_within_limit = (number + 1) * self.plan.shard_size <= max(self.max_prompts, self.plan.shard_size)
        if not (self.max_prompts and is_within_limit):
            return state, {}
        name, table = prompts_file(number), prompt_table(self.plan, prompts)
        state.facts.prompt_files[name] = stored_checksum(table)
        return state, {name: table}


def prompt_limit(keep_prompts: KeepPrompts) -> float:
    """Of how many examples the own values are kept."""
    return {"auto": MAX_PROMPTS, "all": math.inf, "none": 0}[keep_prompts]


def origin_of(plan: ScanPlan, model: ModelRef) -> dict[str, Any]:
    """What the states of a scan must agree in before they are merged."""
    return {"plan": plan.fingerprint(), "model": model.fingerprint, "dtype": model.dtype, "merge": MERGE_ORDER}


def what_was_kept(out: Folder | None) -> str:
    """What an interrupted scan left behind, and what to do now."""
    if out is None:
        return "no --out was given, so nothing was kept"
    if state_files(out) or out.names(SHARDS):
        return GO_ON
    return "nothing was kept (the first shard was not finished)"


def finished_table(
    out: Folder, plan: ScanPlan, source: Source, model: ModelRef, *, allow_missing: int = 0
) -> LayerTable | None:
    """The table of a folder that holds exactly this scan, complete and undamaged; None in every other case.

    It compares the plan, the model's fingerprint and type, and the content of every example, and checks the hashes of
    state and table. After None, `execute` computes what is missing, or raises an error that says what differs.
    """
    origin = origin_of(plan, model)
    try:
        table = LayerTable.load(out)
        finished = Checkpoint(out, partial(parse_state_of_scan, origin)).finished()
    except (RunError, InputError):
        return None
    made_by = table.run.get("environment", {}).get("layerwise")
    if finished is None or made_by != version("layerwise") or table.run.get("plan") != plan.settings():
        return None
    if plan.unknown_metrics():
        return None
    state, _ = finished
    count = digests = 0
    for example in source:
        count, digests = count + 1, digests + example.digest
    known = table.model is not None and table.model.same_as(model) and table.data is not None
    if not known or not state.was_made_from(count, digests) or len(state.missing) > allow_missing:
        return None
    return table if table.run["data"]["fingerprint"] == state.facts.data_fingerprint else None


def parse_state_of_scan(origin: Mapping[str, Any], data: bytes) -> ScanState:
    """Parses a state of this scan; raises MergeError if its plan, model or dtype differs."""
    state = ScanState.parse(data)
    require_same_settings(origin, state.origin)
    return state


def claim_plan(out: Folder, plan: dict[str, Any], unknown: Mapping[str, str]) -> None:
    """Writes the plan to the folder, or compares it with the existing one; raises if they differ.

    `unknown` are metrics of which it cannot be known whether they are the same, with the reason.
    """
    if out.create(PLAN.file, PLAN.dump(plan)):
        return
    for name, reason in unknown.items():
        raise RunError(
            f"the scan in {out} is not used again: the metric {name!r} may have changed since then ({reason}); use "
            "another folder"
        )
    existing = PLAN.parse(out.read(PLAN.file) or b"", f"{out}/{PLAN.file}")
    requested, recorded = ({**p.get("settings", {}), **p.get("origin", {})} for p in (plan, existing))
    differing = [
        f"{k}: {recorded.get(k)!r} there, {requested.get(k)!r} asked for"
        for k in {**requested, **recorded}
        if recorded.get(k) != requested.get(k)
    ]
    if differing:
        raise RunError(f"{out} contains a different scan ({'; '.join(differing)}); use another folder")


def provenance(
    model: ModelRef, plan: ScanPlan, data: DataRef, state: ScanState, blank_rows: int, unit: str
) -> dict[str, Any]:
    """Everything needed to interpret a table and to reproduce it."""
    facts = state.facts
    own = {m.name: m.caption for m in plan.metrics if m not in CATALOG}
    return {
        "kind": "scan",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "plan": plan.settings(),
        **({"metrics": own} if own else {}),  # what a report says about metrics that it cannot look up
        "model": model.to_record(),
        PROMPT_FILES: facts.prompt_files,  # so that those of another run are not taken for this one's
        "data": {
            **data.to_record(),
            "prompts": facts.prompts,
            "tokens": facts.tokens,
            "cut": facts.cut,
            "missing": facts.missing,
            "blank_rows": blank_rows,  # skipped
            "unit": unit,  # what one example is called, such as text
        },
    }
