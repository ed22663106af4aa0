"""Final norms whose names mean other norms in other families, so they are not among the default names."""

from layerwise.models.families.family import Family

BIOGPT = Family(types=("biogpt",), final_norms=("layer_norm",))
# Its norm has a common name, but its blocks are one module deeper.
CLIP_TEXT = Family(types=("clip_text_model",), final_norm="final_layer_norm")
CTRL = Family(types=("ctrl",), final_norms=("layernorm",))
ESM = Family(types=("esm",), final_norms=("emb_layer_norm_after",), unused_positions="padding")
# Despite its name, it follows the last block.
LFM2 = Family(types=("lfm2", "lfm2_moe", "lfm3"), final_norms=("embedding_norm",))
MEGATRON_BERT = Family(types=("megatron-bert",), final_norms=("ln",))
