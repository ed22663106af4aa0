"""Family: everything that can differ between architectures, as data. An exception is one more Family object."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from layerwise.core.errors import ModelError
from layerwise.core.preprocessors import Frames, Patches

# The points inside a block, in order of computation. A name means the same point in every family.
PointName = Literal[
    "attention_input",  # input of attention, after its norm
    "attention_output",  # output of attention
    "normed_attention_output",  # the same after its own norm, if there is one before the residual sum
    "after_attention",  # the sum of the residual stream and attention
    "mlp_input",  # input of the MLP, after its norm
    "mlp_output",
    "normed_mlp_output",
    "after_mlp",  # the sum of the residual stream and the MLP
    "after_mlp_norm",  # the same after the norm at the end of the block, if there is one
    "mixer_input",  # a state space model has one mixer instead of attention and MLP
    "mixer_output",
    "after_mixer",
]

PARALLEL_NOTE = "attention and MLP both read the input of the block, so there is no point between them"


def are_parallel(points: Collection[str]) -> bool:
    """True if a block with these points computes attention and MLP side by side."""
    return "attention_output" in points and "after_attention" not in points


def is_stream(point: str) -> bool:
    """True if a point is the residual stream: a sum, or the output of the block."""
    return not point or point.startswith("after")


# The residual sums of a block: x is its input, each name is a point.
Residuals = Literal[
    "pre_norm",  # after_attention = x + attention, after_mlp = after_attention + MLP
    "post_norm",  # after_attention = x + attention, after_mlp = mlp_input + MLP: the stream itself is normed
    "parallel",  # after_mlp = x + attention + MLP: both read x, so there is no point between them
    "mixer",  # after_mixer = x + mixer
]


@dataclass(frozen=True)
class Point:
    """A point inside a block, read by a forward hook ("output") or pre-hook ("input") on a submodule.

    The tensor is (B, T, D), or (B * T, D) if the block works on flattened tokens. Read it inside the hook: some
    blocks change the tensor in place afterwards.
    """

    name: PointName
    module: str  # path inside the block; "" is the block itself
    side: Literal["input", "output"] = "output"
    flattened: bool = False


@dataclass(frozen=True)
class BlockLayout:
    """The layout of a block: its residual sums, and its points in order; the last point is the block's output."""

    residuals: Residuals
    points: tuple[Point, ...]
    condition: Mapping[str, object] = field(default_factory=dict)  # applies only to configs with these values

    @property
    def inner_points(self) -> tuple[Point, ...]:
        """The points before the block's output."""
        return self.points[:-1]

    @property
    def point_names(self) -> tuple[PointName, ...]:
        """The names of the points before the block's output."""
        return tuple(point.name for point in self.inner_points)

    def matches(self, config: Any) -> bool:
        """True if the config has the values of `condition`."""
        return has_values(config, self.condition)


def has_values(config: Any, values: Mapping[str, object]) -> bool:
    """True if each of these fields has that value; fields missing from the config are ignored."""
    return all(getattr(config, name, value) == value for name, value in values.items())


@dataclass(frozen=True)
class Family:
    """What layerwise needs to know about an architecture. The defaults fit most; an exception sets what differs."""

    types: tuple[str, ...] = ()  # values of `model_type` in a config
    unsupported_reason: str = ""  # why it cannot be read

    # Modules. Without a path, the blocks are the outermost ModuleList whose length is the model's depth.
    blocks: str = ""
    shares_blocks: bool = False  # a short list of blocks is called repeatedly: the k-th call is layer k
    final_norms: tuple[str, ...] = ("norm", "final_layer_norm", "final_layernorm", "final_norm", "ln_f", "norm_f")
    final_norm: str = ""  # its path in the model, if it is not next to the list of blocks
    final_norm_condition: Mapping[str, object] = field(default_factory=dict)  # `final_norm` is one only in such configs

    # Config fields: the first existing name is read; all existing names are set in a truncated config.
    depth_fields: tuple[str, ...] = ("num_hidden_layers", "num_layers", "encoder_layers")
    depth_fields_to_set: tuple[str, ...] = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    per_block_fields: tuple[str, ...] = ("layer_types", "mlp_layer_types")  # lists with one entry per block
    width_fields: tuple[str, ...] = ("hidden_size", "d_model", "n_embd")
    position_field: str = "max_position_embeddings"
    # Positions that are counted but never used: a number, or all up to the id of the padding token.
    unused_positions: int | Literal["padding"] = 0

    # What transformers returns as `hidden_states`. Usually entry k is layer k, and the last entry is after the final
    # norm unless config.tie_last_hidden_states is False.
    first_hidden_state: Literal[0, 1] = 0  # the layer of the first entry
    appends_normed_output: bool = False  # one more entry, the normed output, follows the raw last layer

    # How a model that takes audio turns samples into positions, from its config and its feature extractor.
    audio_frames: Callable[[Any, Any], Frames] | None = None
    # How a model that takes images turns pixels into positions, from its config.
    image_patches: Callable[[Any], Patches] | None = None
    width_changes: bool = False  # the layers have different widths
    # Values of the config while the model runs, for a model that would otherwise read only a part of its input.
    config_while_reading: Mapping[str, object] = field(default_factory=dict)

    layouts: tuple[
        BlockLayout, ...
    ] = ()  # block layouts; the first that matches the config is used. Empty: not declared yet


def text_config(config: Any) -> Any:
    """The config of the text blocks: a nested one, or the config itself.

    An encoder-decoder model nests two, so its config is used unchanged; `part` selects one of its stacks, which has
    its own config.
    """
    if not hasattr(config, "get_text_config") or getattr(config, "is_encoder_decoder", False):
        return config
    try:
        return config.get_text_config()
    except ValueError as error:
        raise ModelError(f"the config of this {config.model_type} has no single text part: {error}") from None
