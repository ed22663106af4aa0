"""The callback for the trainers of transformers and of sentence-transformers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from layerwise.core.errors import InputError
from layerwise.core.options import init_takes, with_arguments
from layerwise.models.parts import is_sentence_transformer
from layerwise.runs.table import LayerTable
from layerwise.training.options import CallbackOptions
from layerwise.training.watch import LayerWatch, open_watch

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments


class LayerwiseCallback(TrainerCallback):
    """Measures every layer while a model trains: at the first and last step, and every n steps between them.

    The same texts go through the model each time, in evaluation mode and without gradients. The metrics are logged
    through the trainer, as `layers/LAYER/METRIC`, so that every active logger gets them. The training itself is
    unchanged, bit for bit. In a distributed training each process measures a part of the texts, and the parts are
    merged exactly.

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

    @init_takes(CallbackOptions)
    def __init__(self, options: CallbackOptions) -> None:
        trainer = options.trainer
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise InputError(
                "FSDP and DeepSpeed split the weights over processes, which this callback cannot read; scan the "
                "checkpoints that the training saves instead"
            )
        self.trainer = trainer
        self.watch: LayerWatch = open_watch(model_of(trainer, options.tokenizer), options.texts, options)

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


LayerwiseCallback.__doc__ = with_arguments(LayerwiseCallback.__doc__, CallbackOptions)


def model_of(trainer: "Trainer", tokenizer: object) -> Any:
    """The model of a trainer as layerwise reads it: with its tokenizer, if one is known."""
    if isinstance(tokenizer, str | Path):
        from transformers import AutoTokenizer

        load: Any = AutoTokenizer.from_pretrained
        tokenizer = load(tokenizer)
    found = tokenizer or trainer.processing_class
    model: Any = trainer.model
    return model if found is None or (tokenizer is None and is_sentence_transformer(model)) else (model, found)
