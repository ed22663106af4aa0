"""One scan from its plan to its table: shards, checkpoints, prompts' own numbers, provenance."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from layerwise.engines.local import Checkpoint, run_shards
from layerwise.errors import InputError, RunError
from layerwise.files import write_atomically, write_json
from layerwise.inputs.source import Example, Source, shards
from layerwise.models.network import Network
from layerwise.results import LayerTable, environment
from layerwise.sweep.plan import ScanPlan
from layerwise.sweep.rows import layer_scores, prompt_table
from layerwise.sweep.state import ScanState
from layerwise.sweep.worker import OnBatch, scan_shard

KeepPrompts = Literal["auto", "all", "none"]
PROMPTS_AT_MOST = 100_000  # what `auto` keeps
SECONDS_BETWEEN_CHECKPOINTS = 30.0


def run_scan(
    network: Network,
    plan: ScanPlan,
    source: Source,
    *,
    out: Path | None = None,
    keep_prompts: KeepPrompts = "auto",
    on_batch: OnBatch = lambda prompts, tokens: None,
) -> LayerTable:
    """The table of a scan; with `out`, also a run folder that can be resumed and read again."""
    if keep_prompts not in ("auto", "all", "none"):
        raise InputError(f"keep_prompts={keep_prompts!r} is not one of auto, all, none")
    began = time.monotonic()
    origin = {"plan": plan.fingerprint(), "model": network.fingerprint(), "dtype": str(network.dtype)}
    if out is not None:
        claim(out, {"origin": origin, "settings": plan.settings(), "model": network.name, "data": source.name})
    most = {"auto": PROMPTS_AT_MOST, "all": float("inf"), "none": 0}[keep_prompts]

    def work(number: int, shard: Sequence[Example]) -> ScanState:
        state, prompts = scan_shard(network, plan, origin, shard, on_batch)
        if out is not None and (number + 1) * plan.shard_size <= max(most, plan.shard_size) and most:
            write_atomically(out / "prompts" / f"{number:05d}.parquet", prompt_table(plan, prompts))
        return state

    checkpoint = Checkpoint(out, ScanState.parse, SECONDS_BETWEEN_CHECKPOINTS)
    state = run_shards(shards(source, plan.shard_size), work, checkpoint)
    run = provenance(network, plan, source, state) | {"seconds": round(time.monotonic() - began, 3)}
    scores = (s for layer in plan.layers for s in layer_scores(network, plan, state, source.name, layer))
    table = LayerTable(tuple(scores), run)
    if out is not None:
        table.save(out)
    return table


def claim(out: Path, plan: dict[str, Any]) -> None:
    """Marks the folder as this scan's own; raises where it belongs to another."""
    if out.is_file():
        raise RunError(f"{out} is a file; --out names a folder")
    path = out / "plan.json"
    if not path.exists():
        write_json(path, plan)
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); use another folder, or empty this one") from None
    mine, theirs = ({**p["settings"], **p["origin"]} for p in (plan, found))
    differing = [f"{k}: {theirs.get(k)!r} there, {mine[k]!r} asked for" for k in mine if theirs.get(k) != mine[k]]
    if differing:
        raise RunError(f"{out} holds another scan ({'; '.join(differing)}); use another folder")


def provenance(network: Network, plan: ScanPlan, source: Source, state: ScanState) -> dict[str, Any]:
    """Everything needed to know what a table says and to make it again."""
    facts = state.facts
    return {
        "kind": "scan",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "plan": plan.settings(),
        "model": {
            "name": network.name,
            "revision": network.revision,
            "fingerprint": state.origin["model"],
            "family": getattr(network.module.config, "model_type", ""),
            "depth": network.depth,
            "width": network.width,
            "dtype": str(network.dtype).removeprefix("torch."),
            "device": str(network.device),
        },
        "data": {
            "name": source.name,
            "fingerprint": facts.data_fingerprint,
            "prompts": facts.prompts,
            "tokens": facts.tokens,
            "cut": facts.cut,
        },
    }
