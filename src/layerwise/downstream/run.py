"""One evaluation from its choices to its table: the store, the scoring, the rows, the record."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from layerwise.downstream.scoring import Scorer, score_all
from layerwise.downstream.tasks import TaskChoice
from layerwise.downstream.vectors import VectorKind, VectorStore
from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.passes.vectors import Readout, pooled_vectors
from layerwise.results import LayerScore, LayerTable, environment


def run_evaluation(
    network: Network,
    tasks: Sequence[TaskChoice],
    readouts: Sequence[Readout],
    *,
    out: Path,
    max_length: int,
    batch_tokens: int = 4096,
    prompts: dict[str, str] | None = None,
    precision: str = "float32",
    vectors: str = "keep",
    workers: int = 0,
    on_score: Callable[[dict[str, Any]], None] = lambda told: None,
) -> LayerTable:
    """Every readout on every task, each unique text through the model once."""
    began = time.monotonic()
    dtype = str(network.dtype).removeprefix("torch.")
    kind = VectorKind(network.fingerprint(), dtype, max_length, tuple(readouts))
    given = tuple(sorted((prompts or {}).items()))
    # Prompts and precision change scores, so they are part of the folder's name, as all of `kind` is.
    folder = out / replace(kind, prompt=repr(given), role=precision).name()
    scorer = Scorer(folder, kind, precision, network.name, network.revision, given)
    opened: list[VectorStore] = []

    def open_store(wanted: VectorKind) -> VectorStore:
        def compute(texts: Sequence[str]) -> dict[Readout, Tensor]:
            examples = [Example(str(i), wanted.prompt + text) for i, text in enumerate(texts)]
            return pooled_vectors(network, examples, readouts, max_length=max_length, batch_tokens=batch_tokens)

        opened.append(VectorStore(scorer.out / "vectors", wanted, compute, precision))
        return opened[-1]

    def after_task() -> None:
        if vectors == "evict":
            for store in opened:
                store.evict()

    found = score_all(scorer, tasks, readouts, open_store, workers=workers, on_score=on_score, after_task=after_task)
    run = {
        "kind": "eval",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "model": {"name": network.name, "revision": network.revision, "fingerprint": kind.model, "dtype": dtype},
        "max_length": max_length,
        "prompts": prompts or {},
        "forwarded_texts": sum(store.forwarded for store in opened),
        "tasks": {t.name: t.local.size_told if t.local else "hub" for t in tasks},
        "seconds": round(time.monotonic() - began, 1),
    }
    table = LayerTable(tuple(layer_score(network, told, tasks, dtype) for told in found), run)
    table.save(out)
    return table


def layer_score(network: Network, told: dict[str, Any], tasks: Sequence[TaskChoice], dtype: str) -> LayerScore:
    """A task's score as a row: the task is the metric, in points from 0 to 100."""
    readout, task = Readout(**told["readout"]), next(t for t in tasks if t.name == told["task"])
    return LayerScore(
        model=network.name,
        revision=network.revision,
        layer=readout.layer,
        depth=readout.layer / network.depth,
        readout=readout.readout,
        tokens=readout.tokens,
        pooling=readout.pooling,
        rows="-",
        metric=told["task"],
        value=float("nan") if told["score"] is None else told["score"],
        n=task.local.examples if task.local else 0,
        data=f"{task.type}: {told['metric']}",
        dtype=dtype,
    )


def choose_readouts(network: Network, layers: Sequence[int], wanted: Sequence[Readout]) -> list[Readout]:
    """Each layer as asked; the last one also normed, since that is what people call the last layer."""
    chosen = [replace(look, layer=layer) for look in wanted for layer in layers]
    if network.anatomy.final_norm is not None and network.depth in layers:
        chosen += [replace(look, layer=network.depth, readout="normed") for look in wanted]
    return list(dict.fromkeys(chosen))
