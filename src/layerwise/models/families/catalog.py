"""Catalog: all families that differ from the default, and how a config is matched to one."""

from typing import Any

from layerwise.models.families.albert import ALBERT
from layerwise.models.families.audio import AST, MOONSHINE, WAV2VEC2, WHISPER
from layerwise.models.families.bert import BERT, DISTILBERT
from layerwise.models.families.default import DEFAULT
from layerwise.models.families.encoder_decoder import BART_LIKE, BIGBIRD_PEGASUS, T5
from layerwise.models.families.family import Family
from layerwise.models.families.gemma3 import GEMMA3, GLM4, OLMO2
from layerwise.models.families.mamba import MAMBA, RWKV
from layerwise.models.families.nested import text_config
from layerwise.models.families.parallel import FALCON, GPT_NEOX, GPTJ, PHI, STABLELM
from layerwise.models.families.pre_norm import GPT2, LLAMA, MODERNBERT, OPT
from layerwise.models.families.roberta import MPNET, ROBERTA, ROBERTA_POSITIONS, ROBERTA_PRELAYERNORM, XMOD
from layerwise.models.families.unreadable import XLM, XLNET
from layerwise.models.families.unusual_norms import BIOGPT, CLIP_TEXT, CTRL, ESM, LFM2, MEGATRON_BERT
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
from layerwise.models.families.xlm_roberta_xl import XLM_ROBERTA_XL

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
