"""Parallel attention and MLP: GPT-NeoX, Phi, Falcon, GPT-J. Both read the input of the block.

If one norm feeds both, its output is listed once, as `attention_input`. Some of these families can also be configured
with sequential attention and MLP; then the block is an ordinary pre-norm block.
"""

from dataclasses import replace

from layerwise.models.families.family import BlockLayout, Family, Point
from layerwise.models.families.pre_norm import pre_norm_layout


def parallel_layout(norm: str, attention: str, mlp_norm: str = "") -> BlockLayout:
    """x + attention(norm(x)) + MLP(norm(x)); the MLP may have its own norm."""
    return BlockLayout(
        "parallel",
        (
            Point("attention_input", norm),
            Point("attention_output", attention),
            *([Point("mlp_input", mlp_norm)] if mlp_norm else []),
            Point("mlp_output", "mlp"),
            Point("after_mlp", ""),
        ),
    )


def sequential_layout(attention: str) -> BlockLayout:
    return pre_norm_layout("input_layernorm", attention, "post_attention_layernorm", "mlp")


GPT_NEOX = Family(
    types=("gpt_neox",),
    layouts=(
        replace(
            parallel_layout("input_layernorm", "attention", "post_attention_layernorm"),
            condition={"use_parallel_residual": True},
        ),
        sequential_layout("attention"),
    ),
)

STABLELM = Family(
    types=("stablelm",),
    layouts=(
        replace(parallel_layout("input_layernorm", "self_attn"), condition={"use_parallel_residual": True}),
        sequential_layout("self_attn"),
    ),
)

PHI = Family(types=("phi", "cohere"), layouts=(parallel_layout("input_layernorm", "self_attn"),))

GPTJ = Family(types=("gptj", "codegen"), layouts=(parallel_layout("ln_1", "attn"),))

FALCON = Family(
    types=("falcon",),
    layouts=(
        replace(
            parallel_layout("ln_attn", "self_attention", "ln_mlp"),
            condition={"new_decoder_architecture": True, "num_ln_in_parallel_attn": 2},
        ),
        replace(parallel_layout("input_layernorm", "self_attention"), condition={"parallel_attn": True}),
        replace(
            sequential_layout("self_attention"), condition={"parallel_attn": False, "new_decoder_architecture": False}
        ),
    ),
)
