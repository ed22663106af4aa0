"""ALBERT: a few blocks, often one, are called repeatedly, so that all layers share their weights."""

from layerwise.models.families.family import BlockLayout, Family, Point

ALBERT = Family(
    types=("albert",),
    blocks="encoder.albert_layer_groups",
    shares_blocks=True,
    layouts=(
        BlockLayout(
            "post_norm",
            (
                Point("attention_output", "albert_layers.0.attention.dense"),
                Point("after_attention", "albert_layers.0.attention.LayerNorm", "input"),
                Point("mlp_input", "albert_layers.0.attention.LayerNorm"),
                Point("mlp_output", "albert_layers.0.ffn_output"),
                Point("after_mlp", "albert_layers.0.full_layer_layer_norm", "input"),
                Point("after_mlp_norm", ""),
            ),
            condition={"inner_group_num": 1, "chunk_size_feed_forward": 0},
        ),
    ),
)
