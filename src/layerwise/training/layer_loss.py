"""Adds a loss on chosen layers to the training of a model, by forward hooks."""

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from layerwise.core.errors import InputError
from layerwise.models.find_blocks import find_structure
from layerwise.models.layers import choose_layers
from layerwise.models.parts import backbone, inner_module
from layerwise.models.spec import LayerChoice, ModelObject
from layerwise.models.taps import hidden_from_arguments, hidden_from_output
from layerwise.training.losses import entropy_loss

if TYPE_CHECKING:
    from transformers import Trainer


class LayerLoss:
    """A loss on the hidden states of chosen layers, for a training that should not let them collapse.

    Inside `with`, or between `attach` and `remove`, forward hooks look at every forward pass in training mode. `value`
    is what to add to your loss; `add_to` does so in a Trainer. Passes in evaluation mode are left alone.

    The hooks keep no copies: the hidden states are those that the backward pass needs anyway. What a loss adds is said
    in its own documentation. It works with gradient checkpointing; before transformers 5.23 `use_reentrant=True` is
    refused.

    Args:
        model: a transformers model, or a SentenceTransformer.
        layers: `all`, numbers such as "4,6", depths such as "50%", or `last`.
        loss: a function of hidden states (B, T, D) and a mask (B, T): `entropy_loss`, `variance_covariance_loss`, one
            of them with other settings (`functools.partial`), or your own.
        weight: what the mean of the loss over the layers is multiplied by.

    Raises:
        InputError: a layer does not exist.
        ModelError: the layers of the model cannot be found.

    Example:
        >>> from transformers import AutoModelForCausalLM, AutoTokenizer
        >>> trained = AutoModelForCausalLM.from_pretrained(model).train()
        >>> batch = AutoTokenizer.from_pretrained(model)(texts, padding=True, return_tensors="pt")
        >>> with layerwise.training.LayerLoss(trained, layers="50%", weight=0.1) as layer_loss:
        ...     loss = trained(**batch, labels=batch["input_ids"]).loss + layer_loss.value()
        >>> loss.backward()
    """

    def __init__(
        self,
        model: ModelObject,
        layers: LayerChoice = "50%",
        *,
        loss: Callable[[Tensor, Tensor], Tensor] = entropy_loss,
        weight: float = 0.1,
    ) -> None:
        self.module: nn.Module = backbone(inner_module(model), None)
        config: Any = self.module.config
        self.structure = find_structure(self.module, config)
        self.layers = choose_layers(layers, self.structure.depth)
        self.loss, self.weight = loss, weight
        self._handles: list[RemovableHandle] = []
        self._trainer: Any = None
        self._hidden: dict[int, Tensor] = {}  # of the pass that is running
        self._mask: Tensor | None = None
        self._calls = 0
        self._is_reading = False
        self._values: list[Tensor] = []  # one per pass since the last `value`

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def attach(self) -> Self:
        """Adds the hooks; does nothing if they are there.

        Returns:
            This object.
        """
        if not self._handles:
            blocks = self.structure.blocks
            self._handles = [self.module.register_forward_pre_hook(self._begin, with_kwargs=True)]
            self._handles.append(blocks[0].register_forward_pre_hook(self._before_blocks, with_kwargs=True))
            self._handles += [
                block.register_forward_hook(self._after_block(number)) for number, block in enumerate(blocks, start=1)
            ]
            self._handles.append(self.module.register_forward_hook(self._end))
        return self

    def remove(self) -> None:
        """Removes the hooks, and the loss from the trainer that it was added to."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._values, self._hidden = [], [], {}
        if self._trainer is not None:
            del self._trainer.compute_loss  # the trainer's own method shows again
            self._trainer = None

    def value(self) -> Tensor:
        """The weighted loss of the forward passes since the last call: the mean over passes and layers.

        Returns:
            One number to add to the loss of the training.

        Raises:
            InputError: there was no forward pass in training mode.
        """
        if not self._values:
            raise InputError(
                "no forward pass in training mode since the last value(): call model.train(), run the model inside "
                "`with LayerLoss(...)` or after attach(), then value() once per step"
            )
        values, self._values = self._values, []
        return self.weight * torch.stack(values).mean()

    def add_to(self, trainer: "Trainer") -> Self:
        """Attaches the hooks, and adds the loss in every training step of a trainer.

        Args:
            trainer: a Trainer of transformers or a SentenceTransformerTrainer of the same model.

        Returns:
            This object; `remove` undoes it.
        """
        if "compute_loss" in vars(trainer):
            raise InputError("this trainer's compute_loss was replaced already; add layer losses only once")
        compute_loss: Any = trainer.compute_loss

        def with_layer_loss(
            model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            self._values = []
            options = {"return_outputs": return_outputs, "num_items_in_batch": num_items_in_batch}
            result = compute_loss(model, inputs, **options)
            if not self._values:  # an evaluation
                return result
            added = self.value()
            if is_scaled_for_accumulation(trainer, num_items_in_batch):  # then the trainer does not divide
                added = added / trainer.current_gradient_accumulation_steps
            return (result[0] + added, *result[1:]) if return_outputs else result + added

        self.attach()
        self._trainer = trainer
        trainer.compute_loss = with_layer_loss  # type: ignore[method-assign]
        return self

    # Hooks. They only keep tensors until the end of the pass: with gradient checkpointing, blocks run again in the
    # backward pass, and must then do exactly what they did before.

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._is_reading = module.training and torch.is_grad_enabled()
        self._hidden, self._calls = {}, 0
        if self._is_reading:
            given = signature(module.forward).bind_partial(*args, **kwargs).arguments
            self._mask = given.get("attention_mask", given.get("kwargs", {}).get("attention_mask"))

    def _before_blocks(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_reading and self._calls == 0 and 0 in self.layers:
            self._hidden[0] = hidden_from_arguments(args, kwargs)

    def _after_block(self, number: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not self._is_reading:
                return
            if not torch.is_grad_enabled():
                raise InputError(
                    "gradient checkpointing with use_reentrant=True hides the layers from a loss; pass "
                    "gradient_checkpointing_kwargs={'use_reentrant': False}"
                )
            self._calls += 1
            layer = self._calls if self.structure.shares_blocks else number
            if layer in self.layers:
                self._hidden[layer] = hidden_from_output(output)

        return hook

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._is_reading:
            losses = [self.loss(hidden, self._mask_of(hidden)) for hidden in self._hidden.values()]
            self._values.append(torch.stack(losses).mean())
        self._is_reading, self._hidden, self._mask = False, {}, None

    def _mask_of(self, hidden: Tensor) -> Tensor:
        """Which tokens count: those of the attention mask, or all where there is none."""
        if hidden.dim() != 3:
            raise InputError(f"a layer loss needs hidden states (B, T, D), not {tuple(hidden.shape)}")
        if self._mask is None or self._mask.shape != hidden.shape[:2]:
            return torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        return self._mask.to(hidden.device)


def is_scaled_for_accumulation(trainer: Any, num_items_in_batch: object) -> bool:
    """True if the trainer's loss is divided already by the items of all batches that one step accumulates."""
    if (declared := getattr(trainer, "loss_is_scaled_for_ga", None)) is not None:
        return bool(declared)
    by_model = trainer.model_accepts_loss_kwargs and num_items_in_batch is not None
    return bool(by_model or trainer.compute_loss_func is not None)
