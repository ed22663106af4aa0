"""RoBERTa and related models: positions start after the padding token's id, so the first ones are never used."""

from layerwise.models.families.bert import BERT_LAYOUT
from layerwise.models.families.family import BlockLayout, Family, Point

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
