"""The callback for the trainers of transformers and of sentence-transformers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from layerwise.core.checks import Choices
from layerwise.core.errors import InputError
from layerwise.inputs.source import DataLike
from layerwise.metrics.base import Metric
from layerwise.models.parts import is_sentence_transformer
from layerwise.models.spec import LayerChoice
from layerwise.runs.table import LayerTable
from layerwise.training.options import Alert, Keep, WatchOptions
from layerwise.training.watch import LayerWatch, open_watch

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments


class LayerwiseCallback(TrainerCallback):
    """Measures every layer while a model trains: at the first and last step, and every n steps between them.

    The same texts go through the model each time, in evaluation mode and without gradients. The metrics are logged
    through the trainer, as `layers/LAYER/METRIC`, so that every active logger gets them. The training itself is
    unchanged, bit for bit. In a distributed training each process measures a part of the texts, and the parts are
    merged exactly.

    Args:
        trainer: the Trainer of transformers, or a SentenceTransformerTrainer.
        texts: what `scan` takes as data, or a list of tokenized batches with `input_ids` and `attention_mask`.
        every: steps between scans, or a list of the steps to scan at, such as [1, 2, 4, 8].
        out: a folder or url that gets one run per scan, for `compare`, `report` and `plot`. None keeps none.
        keep: run (all of a run; it grows with the number of texts and the square of the width) or table (a few
            kilobytes; then `compare` has no paired intervals).
        metrics: `fast`, `all`, names with commas, or Metric objects.
        rows: what is done to rows before a metric: raw, unit, centered, centered_unit, or several with commas.
        layers: `all`, numbers such as "0,6,12", depths such as "25%,50%", or `last`.
        norm: raw (hidden states as they are) or normed (after the final norm). The last layer is read both ways.
        tokens: which tokens count: all, no_first, no_special or no_sinks.
        pooling: how tokens become one vector per text: mean, last, first or max.
        max_length: longest input in tokens; None for 512, or less where the model takes less.
        batch_tokens: tokens in a batch of a scan, padding included.
        shard_size: texts that one process of a distributed training computes at a time.
        tokenizer: the tokenizer; None for the trainer's own, or the one that the model came with.
        alerts: rules that warn, such as `Alert("effective_rank", below=5.0)`.
        max_share: skip a scan if scans took more than this share of the time so far; None never skips.
        progress: say at the end what the scans cost.

    Raises:
        InputError: an option or the texts cannot be used, or the trainer shards the weights (FSDP, DeepSpeed).
        ModelError: the layers of the model cannot be found.

    Example:
        >>> from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
        >>> trained = AutoModelForCausalLM.from_pretrained(model)
        >>> ids = AutoTokenizer.from_pretrained(model)(texts, truncation=True, max_length=5)["input_ids"]
        >>> rows = [{"input_ids": row, "labels": row} for row in ids]
        >>> options = {"max_steps": 4, "report_to": [], "disable_tqdm": True, "use_cpu": True}
        >>> trainer = Trainer(trained, TrainingArguments(folder, **options), train_dataset=rows)
        >>> watch = layerwise.training.LayerwiseCallback(trainer, texts, every=2, tokenizer=model, progress=False)
        >>> trainer.add_callback(watch)
        >>> done = trainer.train()
        {...}
        >>> [*watch.tables]
        [0, 2, 4]
    """

    def __init__(
        self,
        trainer: "Trainer",
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
        tokenizer: object = None,
        alerts: Sequence[Alert] = (),
        max_share: float | None = None,
        progress: bool = True,
    ) -> None:
        options = WatchOptions(
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
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise InputError(
                "FSDP and DeepSpeed split the weights over processes, which this callback cannot read; scan the "
                "checkpoints that the training saves instead"
            )
        self.trainer = trainer
        self.watch: LayerWatch = open_watch(model_of(trainer, tokenizer), texts, options)

    @property
    def tables(self) -> Mapping[int, LayerTable]:
        """The table of each scan, by training step."""
        return self.watch.tables

    @property
    def messages(self) -> Sequence[str]:
        """What alerts have said so far."""
        return self.watch.messages

    @property
    def seconds(self) -> float:
        """The time that scans took."""
        return self.watch.seconds

    @property
    def share(self) -> float:
        """The share of the time since the training began that scans took."""
        return self.watch.share

    def predicted_seconds(self) -> float:
        """What one scan will take on this machine, from a few timed batches."""
        return self.watch.predicted_seconds()

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        self.watch.restart_clock()
        self._scan(state.global_step, control)

    def on_step_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        is_last = control.should_training_stop or state.global_step >= state.max_steps
        if self.watch.is_due(state.global_step) or (is_last and state.global_step != self.watch.last_step):
            self._scan(state.global_step, control)

    def on_train_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        if state.global_step != self.watch.last_step:  # stopped by another callback, such as early stopping
            self._scan(state.global_step, control)
        self.watch.close()

    def _scan(self, step: int, control: "TrainerControl") -> None:
        values, stop = self.watch.scan(step)
        should_log = control.should_log
        self.trainer.log(values)
        control.should_log = should_log  # logging clears it, and the loss of this step would not be logged
        control.should_training_stop = control.should_training_stop or stop


def model_of(trainer: "Trainer", tokenizer: object) -> Any:
    """The model of a trainer as layerwise reads it: with its tokenizer, if one is known."""
    if isinstance(tokenizer, str | Path):
        from transformers import AutoTokenizer

        load: Any = AutoTokenizer.from_pretrained
        tokenizer = load(tokenizer)
    found = tokenizer or trainer.processing_class
    model: Any = trainer.model
    return model if found is None or (tokenizer is None and is_sentence_transformer(model)) else (model, found)
