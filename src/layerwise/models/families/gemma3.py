"""Gemma 2 and 3, GLM-4 and OLMo 2: the outputs of attention and MLP are normed again before they are added."""

from layerwise.models.families.family import BlockLayout, Family, Point

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
