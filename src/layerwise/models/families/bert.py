"""BERT and related models: a norm follows each residual sum, so the residual stream is normed twice per block."""

from layerwise.models.families.family import BlockLayout, Family, Point

BERT_LAYOUT = BlockLayout(
    "post_norm",
    (
        Point("attention_output", "attention.output.dense"),
        Point("after_attention", "attention.output.LayerNorm", "input"),
        Point("mlp_input", "attention.output.LayerNorm"),
        Point("mlp_output", "output.dense"),
        Point("after_mlp", "output.LayerNorm", "input"),
        Point("after_mlp_norm", ""),
    ),
    # Cross-attention adds a third sum; a chunked MLP calls its modules once per chunk.
    condition={"add_cross_attention": False, "chunk_size_feed_forward": 0},
)

BERT = Family(types=("bert", "electra", "ernie", "deberta", "deberta-v2"), layouts=(BERT_LAYOUT,))

DISTILBERT = Family(
    types=("distilbert",),
    layouts=(
        BlockLayout(
            "post_norm",
            (
                Point("attention_output", "attention"),
                Point("after_attention", "sa_layer_norm", "input"),
                Point("mlp_input", "sa_layer_norm"),
                Point("mlp_output", "ffn"),
                Point("after_mlp", "output_layer_norm", "input"),
                Point("after_mlp_norm", ""),
            ),
        ),
    ),
)
