"""Families of language models: what differs between their blocks, norms and hidden states."""

from dataclasses import replace

from layerwise.models.families.family import BlockLayout, Family, Point

# The default family: blocks and final norm are found by shape and common names.

# It declares no points inside a block: even with common submodule names, the residual sums may differ.
DEFAULT = Family()


# Pre-norm blocks: Llama and related models, GPT-2, OPT, ModernBERT.


def pre_norm_layout(attention_norm: str, attention: str, mlp_norm: str, mlp: str) -> BlockLayout:
    """x -> norm -> attention -> + -> norm -> MLP -> +, from the names of the four parts."""
    return BlockLayout(
        "pre_norm",
        (
            Point("attention_input", attention_norm),
            Point("attention_output", attention),
            Point("after_attention", mlp_norm, "input"),
            Point("mlp_input", mlp_norm),
            Point("mlp_output", mlp),
            Point("after_mlp", ""),
        ),
    )


LLAMA = Family(
    types=("llama", "mistral", "mixtral", "ministral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "olmo", "phi3",
           "smollm3", "starcoder2", "gemma", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"),
    layouts=(pre_norm_layout("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),),
)  # fmt: skip

GPT2 = Family(
    types=("gpt2", "gpt_bigcode"),
    layouts=(replace(pre_norm_layout("ln_1", "attn", "ln_2", "mlp"), condition={"add_cross_attention": False}),),
)

MODERNBERT = Family(
    types=("modernbert", "modernbert-decoder"),
    layouts=(pre_norm_layout("attn_norm", "attn", "mlp_norm", "mlp"),),  # the first norm of block 1 is an identity
)

# From its second norm on, OPT flattens all tokens of a batch.
OPT = Family(
    types=("opt",),
    layouts=(
        BlockLayout(
            "pre_norm",
            (
                Point("attention_input", "self_attn_layer_norm"),
                Point("attention_output", "self_attn"),
                Point("after_attention", "final_layer_norm", "input", flattened=True),
                Point("mlp_input", "final_layer_norm", flattened=True),
                Point("mlp_output", "fc2", flattened=True),
                Point("after_mlp", ""),
            ),
            condition={"do_layer_norm_before": True},
        ),
        BlockLayout(
            "post_norm",  # opt-350m
            (
                Point("attention_output", "self_attn"),
                Point("after_attention", "self_attn_layer_norm", "input"),
                Point("mlp_input", "self_attn_layer_norm"),
                Point("mlp_output", "fc2", flattened=True),
                Point("after_mlp", "final_layer_norm", "input"),
                Point("after_mlp_norm", ""),
            ),
            condition={"do_layer_norm_before": False},
        ),
    ),
)


# Parallel attention and MLP: GPT-NeoX, Phi, Falcon, GPT-J. Both read the input of the block. If one norm feeds both,
# its output is listed once, as `attention_input`. Some of these families can also be configured with sequential
# attention and MLP; then the block is an ordinary pre-norm block.


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


# Gemma 2 and 3, GLM-4 and OLMo 2: the outputs of attention and MLP are normed again before they are added.

GEMMA3 = Family(
    types=("gemma2", "gemma3_text"),
    layouts=(
        BlockLayout(
            "pre_norm",
            (
                Point("attention_input", "input_layernorm"),
                Point("attention_output", "self_attn"),
                Point("normed_attention_output", "post_attention_layernorm"),
                Point("after_attention", "pre_feedforward_layernorm", "input"),
                Point("mlp_input", "pre_feedforward_layernorm"),
                Point("mlp_output", "mlp"),
                Point("normed_mlp_output", "post_feedforward_layernorm"),
                Point("after_mlp", ""),
            ),
        ),
    ),
)

GLM4 = Family(  # the same four norms, but `post_attention_layernorm` is the one before the MLP
    types=("glm4",),
    layouts=(
        BlockLayout(
            "pre_norm",
            (
                Point("attention_input", "input_layernorm"),
                Point("attention_output", "self_attn"),
                Point("normed_attention_output", "post_self_attn_layernorm"),
                Point("after_attention", "post_attention_layernorm", "input"),
                Point("mlp_input", "post_attention_layernorm"),
                Point("mlp_output", "mlp"),
                Point("normed_mlp_output", "post_mlp_layernorm"),
                Point("after_mlp", ""),
            ),
        ),
    ),
)

OLMO2 = Family(  # attention and MLP read the residual stream without a norm
    types=("olmo2", "olmo3"),
    layouts=(
        BlockLayout(
            "pre_norm",
            (
                Point("attention_output", "self_attn"),
                Point("normed_attention_output", "post_attention_layernorm"),
                Point("after_attention", "mlp", "input"),
                Point("mlp_output", "mlp"),
                Point("normed_mlp_output", "post_feedforward_layernorm"),
                Point("after_mlp", ""),
            ),
        ),
    ),
)


# Mamba and RWKV: recurrent blocks; hidden_states starts after block 1 and ends with the normed output.

MAMBA = Family(
    types=("mamba", "mamba2", "falcon_mamba"),
    first_hidden_state=1,
    appends_normed_output=True,
    layouts=(
        BlockLayout("mixer", (Point("mixer_input", "norm"), Point("mixer_output", "mixer"), Point("after_mixer", ""))),
    ),
)

RWKV = Family(types=("rwkv",), final_norms=("ln_out",), first_hidden_state=1, appends_normed_output=True)


# Final norms whose names mean other norms in other families, so they are not among the default names.

BIOGPT = Family(types=("biogpt",), final_norms=("layer_norm",))
# Its norm has a common name, but its blocks are one module deeper.
CLIP_TEXT = Family(types=("clip_text_model",), final_norm="final_layer_norm")
CTRL = Family(types=("ctrl",), final_norms=("layernorm",))
ESM = Family(types=("esm",), final_norms=("emb_layer_norm_after",), unused_positions="padding")
# Despite its name, it follows the last block.
LFM2 = Family(types=("lfm2", "lfm2_moe", "lfm3"), final_norms=("embedding_norm",))
MEGATRON_BERT = Family(types=("megatron-bert",), final_norms=("ln",))


# Unsupported families: XLNet uses another axis order, XLM has no list of blocks.

XLNET = Family(types=("xlnet",), unsupported_reason="its blocks pass hidden states as (tokens, batch, width)")
XLM = Family(types=("xlm", "flaubert"), unsupported_reason="the submodules of its blocks are in separate lists")
