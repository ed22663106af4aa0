"""Image encoders: ViT, DeiT, DINOv2, BEiT, CLIP and SigLIP vision, MAE, AIMv2, Swin.

Layer 0 is what enters block 1: patches and positions, with class tokens and registers first. In CLIP it is behind the
norm that precedes the blocks.
"""

from typing import Any

from layerwise.core.preprocessors import Patches
from layerwise.models.families.decoders import pre_norm_layout
from layerwise.models.families.family import Family

VIT_LAYOUT = pre_norm_layout("layernorm_before", "attention", "layernorm_after", "mlp")
CLIP_LAYOUT = pre_norm_layout("layer_norm1", "self_attn", "layer_norm2", "mlp")


def with_class_token(config: Any) -> Patches:
    return Patches(patch_size(config), special=1)


def without_class_token(config: Any) -> Patches:
    return Patches(patch_size(config))


def patch_size(config: Any) -> int:
    size = config.patch_size
    return int(size if isinstance(size, int) else size[0])


VIT = Family(types=("vit",), final_norm="layernorm", image_patches=with_class_token, layouts=(VIT_LAYOUT,))

# A class token and a distillation token.
DEIT = Family(
    types=("deit",),
    final_norm="layernorm",
    image_patches=lambda config: Patches(patch_size(config), special=2),
    layouts=(VIT_LAYOUT,),
)

# It would leave out a random part of the patches and shuffle the others.
MAE = Family(
    types=("vit_mae",),
    final_norm="layernorm",
    image_patches=lambda config: Patches(patch_size(config), special=1, order_input="noise"),
    config_while_reading={"mask_ratio": 0.0},
    layouts=(VIT_LAYOUT,),
)

# The class token, then the registers. What is added to the residual stream is scaled first.
DINOV2 = Family(
    types=("dinov2", "dinov2_with_registers"),
    final_norm="layernorm",
    image_patches=lambda config: Patches(patch_size(config), 1 + getattr(config, "num_register_tokens", 0)),
    layouts=(pre_norm_layout("norm1", "layer_scale1", "norm2", "layer_scale2"),),
)

# Models that average the patches norm the average, not the positions.
BEIT = Family(
    types=("beit",),
    final_norm="layernorm",
    final_norm_condition={"use_mean_pooling": False},
    image_patches=with_class_token,
)

# The model itself norms its class token only, which is then its output.
CLIP_VISION = Family(
    types=("clip_vision_model",),
    final_norm="post_layernorm",
    image_patches=with_class_token,
    layouts=(CLIP_LAYOUT,),
)

SIGLIP_VISION = Family(
    types=("siglip_vision_model",),
    final_norm="post_layernorm",
    image_patches=without_class_token,
    layouts=(CLIP_LAYOUT,),
)

AIMV2_VISION = Family(
    types=("aimv2_vision_model",),
    final_norm="rms_norm",
    image_patches=without_class_token,
    layouts=(pre_norm_layout("rms_norm1", "attention", "rms_norm2", "ffn"),),
)

# A layer is a stage: several blocks, and the merging of four neighbouring patches that ends all but the last stage. The
# number of positions and the width change from layer to layer.
SWIN = Family(
    types=("swin",),
    blocks="encoder.layers",
    width_changes=True,
    final_norm="layernorm",
    image_patches=without_class_token,
)
