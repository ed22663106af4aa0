"""Catalog: all families that differ from the default, and how a config is matched to one."""

from typing import Any

from layerwise.models.families.audio import AST, MOONSHINE, WAV2VEC2, WHISPER
from layerwise.models.families.decoders import (
    BIOGPT,
    CLIP_TEXT,
    CTRL,
    DEFAULT,
    ESM,
    FALCON,
    GEMMA3,
    GLM4,
    GPT2,
    GPT_NEOX,
    GPTJ,
    LFM2,
    LLAMA,
    MAMBA,
    MEGATRON_BERT,
    MODERNBERT,
    OLMO2,
    OPT,
    PHI,
    RWKV,
    STABLELM,
    XLM,
    XLNET,
)
from layerwise.models.families.encoders import (
    ALBERT,
    BART_LIKE,
    BERT,
    BIGBIRD_PEGASUS,
    DISTILBERT,
    MPNET,
    ROBERTA,
    ROBERTA_POSITIONS,
    ROBERTA_PRELAYERNORM,
    T5,
    XLM_ROBERTA_XL,
    XMOD,
)
from layerwise.models.families.family import Family, text_config
from layerwise.models.families.vision import (
    AIMV2_VISION,
    BEIT,
    CLIP_VISION,
    DEIT,
    DINOV2,
    MAE,
    SIGLIP_VISION,
    SWIN,
    VIT,
)

FAMILIES: tuple[Family, ...] = (
    LLAMA, GPT2, OPT, MODERNBERT,
    GEMMA3, GLM4, OLMO2,
    GPT_NEOX, PHI, GPTJ, FALCON, STABLELM,
    MAMBA, RWKV,
    BERT, DISTILBERT, ALBERT, ROBERTA, ROBERTA_POSITIONS, ROBERTA_PRELAYERNORM, XMOD, MPNET, XLM_ROBERTA_XL,
    BART_LIKE, BIGBIRD_PEGASUS, T5,
    WHISPER, WAV2VEC2, AST, MOONSHINE,
    VIT, DEIT, MAE, DINOV2, BEIT, CLIP_VISION, SIGLIP_VISION, AIMV2_VISION, SWIN,
    BIOGPT, CLIP_TEXT, CTRL, ESM, LFM2, MEGATRON_BERT,
    XLM, XLNET,
)  # fmt: skip


def family_of(config: Any) -> Family:
    """The family that lists the config's text model type, or the default family."""
    name = getattr(text_config(config), "model_type", "")
    return next((family for family in FAMILIES if name in family.types), DEFAULT)


# Values of `model_type` whose blocks can be read one by one (--stream): tests show the bits of an ordinary pass. Blocks
# of others may hand on more than hidden states, as T5 its position bias, and numbers would be wrong without an error.
STREAMED_TYPES = frozenset(
    """
    bert bloom camembert cohere deberta-v2 distilbert electra exaone4 falcon gemma gemma2 gemma3_text glm4 gpt2
    gpt_bigcode gpt_neox granite llama mamba mamba2 mistral modernbert mpnet mpt olmo olmo2 opt phi phi3 qwen2 qwen3
    roberta smollm3 stablelm starcoder2 xglm xlm-roberta
    """.split()
)
