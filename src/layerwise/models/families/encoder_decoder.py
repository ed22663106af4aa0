"""Encoder-decoder models: the BART-like name their final norm `layer_norm`; T5 keeps its parts in a list per block."""

from layerwise.models.families.family import BlockLayout, Family, Point

# Elsewhere `layer_norm` may be another norm, so it is not among the usual names.
BART_LIKE = Family(
    types=("blenderbot", "m2m_100", "mbart", "nllb-moe", "pegasus", "pegasus_x", "plbart", "speech_to_text", "whisper",
           "xglm"),
    final_norms=("layer_norm",),
)  # fmt: skip

BIGBIRD_PEGASUS = Family(types=("bigbird_pegasus",), final_norms=("layernorm_embedding",))  # BART's is another one

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
            when={"is_decoder": False},  # a decoder adds a third sum
        ),
    ),
)
