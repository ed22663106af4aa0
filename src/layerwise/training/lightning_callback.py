"""The callback for Lightning's Trainer. Lightning is imported here only."""

from collections.abc import Mapping, Sequence
from typing import Any

from layerwise.core.errors import MissingExtra
from layerwise.core.options import init_takes, with_arguments
from layerwise.runs.table import LayerTable
from layerwise.training.options import LightningOptions
from layerwise.training.watch import LayerWatch, open_watch

try:
    from lightning.pytorch import Callback
except ImportError:
    raise MissingExtra("LightningCallback needs Lightning: pip install lightning") from None


class LightningCallback(Callback):
    """Measures every layer while Lightning trains a model; the same as LayerwiseCallback does for transformers.

    Raises:
        InputError: an option or the texts cannot be used. Problems with the model are raised when training starts.
        MissingExtra: Lightning is not installed.
    """

    @init_takes(LightningOptions)
    def __init__(self, options: LightningOptions) -> None:
        self.options = options
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
        self.watch = open_watch(self.options.model(pl_module), self.options.texts, self.options)
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


LightningCallback.__doc__ = with_arguments(LightningCallback.__doc__, LightningOptions)
