"""Pre-norm blocks: Llama and related models, GPT-2, OPT, ModernBERT."""

from dataclasses import replace

from layerwise.models.families.family import BlockLayout, Family, Point


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
