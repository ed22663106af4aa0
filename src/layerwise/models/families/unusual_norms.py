"""Final norms under names that other families give to other norms, so that they are not among the usual ones."""

from layerwise.models.families.family import Family

BIOGPT = Family(types=("biogpt",), final_norms=("layer_norm",))
CTRL = Family(types=("ctrl",), final_norms=("layernorm",))
ESM = Family(types=("esm",), final_norms=("emb_layer_norm_after",), unused_positions="padding")
LFM2 = Family(types=("lfm2", "lfm2_moe"), final_norms=("embedding_norm",))  # it follows the last block all the same
MEGATRON_BERT = Family(types=("megatron-bert",), final_norms=("ln",))
