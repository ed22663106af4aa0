"""From states to rows: the scores of every layer, and the numbers of single prompts as a table."""

from dataclasses import asdict

from layerwise.metrics.base import Estimate
from layerwise.models.network import Network
from layerwise.results import LayerScore
from layerwise.sweep.plan import Measurement, ScanPlan
from layerwise.sweep.state import ScanState
from layerwise.sweep.worker import PromptValues


def layer_scores(network: Network, plan: ScanPlan, state: ScanState, data: str) -> tuple[LayerScore, ...]:
    """One row a layer, metric and setting."""
    finished: dict[tuple[object, ...], object] = {}
    return tuple(
        LayerScore(
            model=network.name,
            revision=network.revision,
            layer=m.layer,
            depth=m.layer / plan.depth,
            readout=m.lens.readout,
            tokens=m.lens.tokens,
            pooling=m.pooling,
            rows=m.rows,
            metric=m.metric.name,
            data=data,
            dtype=plan.dtype,
            **asdict(score(m, state, network.width, finished)),
        )
        for layer in plan.layers
        for m in plan.measurements(layer)
    )


def score(m: Measurement, state: ScanState, width: int, finished: dict[tuple[object, ...], object]) -> Estimate:
    """A measurement's estimate; what several metrics are made of is finished once and found again in `finished`."""
    at = (m.key, m.rows, m.reading.finish)
    if at not in finished:
        kept = state.kept.get(m.key) or m.reading.start(width)
        finished[at] = m.reading.finish(kept, m.rows)
    return m.metric.score(finished[at], m.rows)


def prompt_table(plan: ScanPlan, prompts: PromptValues) -> bytes:
    """The numbers of single prompts as Parquet: example id, layer, readout, tokens, reading, metric, value."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    ids, parts = pa.array(prompts.ids), []
    kept = {m.key: m for layer in plan.layers for m in plan.measurements(layer) if m.reading.columns}
    for key, m in kept.items():
        if key not in prompts.values:
            continue
        values = torch.cat(prompts.values[key]).double().numpy()                  # (N, columns)
        for i, column in enumerate(m.reading.columns):
            words = {"layer": m.layer, "readout": m.lens.readout, "tokens": m.lens.tokens}
            words |= {"rows": m.rows, "metric": column}
            columns = {name: pa.array([word] * len(ids)) for name, word in words.items()}
            parts.append(pa.table({"id": ids, **columns, "value": values[:, i]}))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(parts) if parts else pa.table({"id": ids}), sink, compression="zstd")
    return bytes(sink.getvalue())
