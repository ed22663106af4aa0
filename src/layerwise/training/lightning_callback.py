"""The callback for Lightning's Trainer. Lightning is imported here only."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerwise.core.checks import Choices
from layerwise.core.errors import MissingExtra
from layerwise.inputs.source import DataLike
from layerwise.metrics.base import Metric
from layerwise.models.spec import LayerChoice, ModelObject
from layerwise.runs.table import LayerTable
from layerwise.training.options import Alert, Keep, WatchOptions
from layerwise.training.watch import LayerWatch, open_watch

try:
    from lightning.pytorch import Callback
except ImportError:
    raise MissingExtra("LightningCallback needs Lightning: pip install lightning") from None


class LightningCallback(Callback):
    """Measures every layer while Lightning trains a model; the same as LayerwiseCallback does for transformers.

    Args:
        model: a function of your LightningModule that returns what to measure: a transformers model, a
            SentenceTransformer, or a pair (model, tokenizer).
        texts: what `scan` takes as data, or a list of tokenized batches with `input_ids` and `attention_mask`.
        every: optimizer steps between scans, or a list of the steps to scan at.
        out: a folder or url that gets one run per scan, for `compare`, `report` and `plot`. None keeps none.
        keep: run (all of a run) or table (a few kilobytes; then `compare` has no paired intervals).
        metrics: `fast`, `all`, names with commas, or Metric objects.
        rows: what is done to rows before a metric: raw, unit, centered, centered_unit, or several with commas.
        layers: `all`, numbers such as "0,6,12", depths such as "25%,50%", or `last`.
        norm: raw (hidden states as they are) or normed (after the final norm). The last layer is read both ways.
        tokens: which tokens count: all, no_first, no_special or no_sinks.
        pooling: how tokens become one vector per text: mean, last, first or max.
        max_length: longest input in tokens; None for 512, or less where the model takes less.
        batch_tokens: tokens in a batch of a scan, padding included.
        shard_size: texts that one process of a distributed training computes at a time.
        alerts: rules that warn, such as `Alert("effective_rank", below=5.0)`.
        max_share: skip a scan if scans took more than this share of the time so far; None never skips.
        progress: say at the end what the scans cost.

    Raises:
        InputError: an option or the texts cannot be used. Problems with the model are raised when training starts.
        MissingExtra: Lightning is not installed.
    """

    def __init__(
        self,
        model: Callable[[Any], ModelObject | tuple[ModelObject, object]],
        texts: DataLike | Sequence[Mapping[str, Any]],
        *,
        every: int | Sequence[int] = 100,
        out: str | Path | None = None,
        keep: Keep = "run",
        metrics: str | Sequence[str | Metric] = "prompt_entropy,effective_rank,curvature",
        rows: Choices = "raw",
        layers: LayerChoice = "all",
        norm: Choices = "raw",
        tokens: Choices = "all",
        pooling: Choices | None = "mean",
        max_length: int | None = None,
        batch_tokens: int = 4096,
        shard_size: int = 64,
        alerts: Sequence[Alert] = (),
        max_share: float | None = None,
        progress: bool = True,
    ) -> None:
        self.options = WatchOptions(
            every=every,
            out=out,
            keep=keep,
            metrics=metrics,
            rows=rows,
            layers=layers,
            norm=norm,
            tokens=tokens,
            pooling=pooling,
            max_length=max_length,
            batch_tokens=batch_tokens,
            shard_size=shard_size,
            alerts=alerts,
            max_share=max_share,
            progress=progress,
        )
        self.model, self.texts = model, texts
        self.watch: LayerWatch | None = None

    @property
    def tables(self) -> Mapping[int, LayerTable]:
        """The table of each scan, by training step."""
        return {} if self.watch is None else self.watch.tables

    @property
    def messages(self) -> Sequence[str]:
        """What alerts have said so far."""
        return [] if self.watch is None else self.watch.messages

    @property
    def seconds(self) -> float:
        """The time that scans took."""
        return 0.0 if self.watch is None else self.watch.seconds

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch = open_watch(self.model(pl_module), self.texts, self.options)
        self._scan(trainer, self.watch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.watch is not None and self.watch.is_due(trainer.global_step):
            self._scan(trainer, self.watch)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.watch is not None:
            if trainer.global_step != self.watch.last_step:
                self._scan(trainer, self.watch)
            self.watch.close()

    def _scan(self, trainer: Any, watch: LayerWatch) -> None:
        values, stop = watch.scan(trainer.global_step)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)
        trainer.should_stop = trainer.should_stop or stop
