"""Families of text encoders, and of models with an encoder and a decoder."""

from layerwise.models.families.family import BlockLayout, Family, Point

# BERT and related models: a norm follows each residual sum, so the residual stream is normed twice per block.

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


# RoBERTa and related models: positions start after the padding token's id, so the first ones are never used.

ROBERTA = Family(
    types=("roberta", "xlm-roberta", "camembert", "data2vec-text"), unused_positions="padding", layouts=(BERT_LAYOUT,)
)

# The same positions, but other blocks.
ROBERTA_POSITIONS = Family(types=("ibert", "longformer", "luke", "markuplm"), unused_positions="padding")
ROBERTA_PRELAYERNORM = Family(types=("roberta-prelayernorm",), unused_positions="padding", final_norm="LayerNorm")
XMOD = Family(types=("xmod",), unused_positions="padding", final_norms=("LayerNorm",))  # only if built with pre_norm

MPNET = Family(
    types=("mpnet",),
    unused_positions=2,  # it counts from 2, whatever the padding token
    layouts=(
        BlockLayout(
            "post_norm",
            (
                Point("attention_output", "attention.attn"),
                Point("after_attention", "attention.LayerNorm", "input"),
                Point("mlp_input", "attention.LayerNorm"),
                Point("mlp_output", "output.dense"),
                Point("after_mlp", "output.LayerNorm", "input"),
                Point("after_mlp_norm", ""),
            ),
        ),
    ),
)


# XLM-RoBERTa-XL: RoBERTa's positions, pre-norm blocks, and a final norm with BERT's name.

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


# ALBERT: a few blocks, often one, are called repeatedly, so that all layers share their weights.

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


# Encoder-decoder models: BART-like models call their final norm `layer_norm`; T5 has a list of parts per block.

# In other families `layer_norm` may be a different norm, so it is not among the default names.
BART_LIKE = Family(
    types=("blenderbot", "m2m_100", "mbart", "nllb-moe", "pegasus", "pegasus_x", "plbart", "speech_to_text", "xglm"),
    final_norms=("layer_norm",),
)

BIGBIRD_PEGASUS = Family(
    types=("bigbird_pegasus",), final_norms=("layernorm_embedding",)
)  # in BART, this name is a different norm

T5 = Family(
    types=("t5", "mt5"),
    layouts=(
        BlockLayout(
            "pre_norm",
            (
                Point("attention_input", "layer.0.layer_norm"),
                Point("attention_output", "layer.0.SelfAttention"),
                Point("after_attention", "layer.1.layer_norm", "input"),
                Point("mlp_input", "layer.1.layer_norm"),
                Point("mlp_output", "layer.1.DenseReluDense"),
                Point("after_mlp", ""),
            ),
            condition={"is_decoder": False},  # a decoder adds a third sum
        ),
    ),
)
