"""Family: everything that can differ between architectures, as data. An unusual one is one more Family object."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# The places inside a block, in the order in which a block computes them. One name means one place in every family.
PointName = Literal[
    "attention_input",  # what attention reads, behind the norm before it
    "attention_output",  # what attention puts out
    "normed_attention_output",  # the same behind a norm of its own, where it has one before it is added
    "after_attention",  # the sum of the residual stream and attention
    "mlp_input",  # what the MLP reads, behind the norm before it
    "mlp_output",
    "normed_mlp_output",
    "after_mlp",  # the sum of the residual stream and the MLP
    "after_mlp_norm",  # the same behind the norm that ends the block, where one does
    "mixer_input",  # a state space model has one mixer in place of attention and MLP
    "mixer_output",
    "after_mixer",
]

# How a block adds up: x is what enters it, each name a point.
Residuals = Literal[
    "pre_norm",  # after_attention = x + attention, after_mlp = after_attention + MLP
    "post_norm",  # after_attention = x + attention, after_mlp = mlp_input + MLP: the stream itself is normed
    "parallel",  # after_mlp = x + attention + MLP: both read x, so no tensor lies between them and none is listed
    "mixer",  # after_mixer = x + mixer
]


@dataclass(frozen=True)
class Point:
    """A place inside a block that a forward hook ("output") or pre-hook ("input") on one submodule can read.

    What passes there is (B, T, D); where the block works on flattened tokens, (B * T, D). It must be read inside the
    hook: some blocks go on to change the tensor in place.
    """

    name: PointName
    module: str  # path inside the block; "" is the block itself
    side: Literal["input", "output"] = "output"
    flattened: bool = False


@dataclass(frozen=True)
class BlockLayout:
    """The inside of a block: how it adds up, and its points in order; the last one is the block's output."""

    residuals: Residuals
    points: tuple[Point, ...]
    when: Mapping[str, object] = field(default_factory=dict)  # holds only for configs with these values

    def fits(self, config: Any) -> bool:
        """True where each field in `when` has that value; a field that the config lacks decides nothing."""
        return all(getattr(config, name, value) == value for name, value in self.when.items())


@dataclass(frozen=True)
class Family:
    """What layerwise has to know of an architecture. The defaults hold for most; an exception names what differs."""

    types: tuple[str, ...] = ()  # values of `model_type` in a config
    refused: str = ""  # why it cannot be read

    # Modules. Without a path, the blocks are the outermost ModuleList that is as long as the model is deep.
    blocks: str = ""
    shared: bool = False  # a short list of blocks is called again and again: the k-th call makes layer k
    final_norms: tuple[str, ...] = ("norm", "final_layer_norm", "final_layernorm", "final_norm", "ln_f", "norm_f")
    final_norm: str = ""  # its path in the model, where it does not stand beside the list of blocks

    # Fields of the config: of several names, the first that a config has is read; all that it has are set in a cut one.
    depth_fields: tuple[str, ...] = ("num_hidden_layers", "num_layers", "encoder_layers")
    cut_fields: tuple[str, ...] = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    per_block_fields: tuple[str, ...] = ("layer_types", "mlp_layer_types")  # lists with one entry per block
    width_fields: tuple[str, ...] = ("hidden_size", "d_model", "n_embd")
    position_field: str = "max_position_embeddings"
    # Positions that the config counts and no token ever gets: a number, or those up to the id of the padding token.
    unused_positions: int | Literal["padding"] = 0

    # What transformers returns as `hidden_states`. Usually entry k is layer k, and the last one is behind the final
    # norm unless config.tie_last_hidden_states is False.
    first_hidden_state: Literal[0, 1] = 0  # the layer that the first entry holds
    norm_appended: bool = False  # one more entry, the normed output, follows the raw last layer

    layouts: tuple[BlockLayout, ...] = ()  # of a block; the first that fits the config. None: not declared yet
