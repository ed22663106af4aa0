"""XLM-RoBERTa-XL: RoBERTa's positions, pre-norm blocks, and a final norm with BERT's name."""

from layerwise.models.families.family import BlockLayout, Family, Point

XLM_ROBERTA_XL = Family(
    types=("xlm-roberta-xl",),
    final_norms=("LayerNorm",),
    unused_positions="padding",
    layouts=(
        BlockLayout(
            "pre_norm",
            (
                Point("attention_input", "attention.self_attn_layer_norm"),
                Point("attention_output", "attention.output.dense"),
                Point("after_attention", "LayerNorm", "input"),
                Point("mlp_input", "LayerNorm"),
                Point("mlp_output", "output.dense"),
                Point("after_mlp", ""),
            ),
            condition={"add_cross_attention": False, "chunk_size_feed_forward": 0},
        ),
    ),
)
