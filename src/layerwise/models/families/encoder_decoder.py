"""Encoder-decoder models: BART-like models call their final norm `layer_norm`; T5 has a list of parts per block."""

from layerwise.models.families.family import BlockLayout, Family, Point

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
