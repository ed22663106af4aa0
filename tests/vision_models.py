"""Tiny random models of every image family that layerwise reads, with their image processors, and images for them."""

import io

import numpy as np
import torch
from families import DEPTH, WIDTH
from PIL import Image
from transformers import AutoConfig, AutoModel, BitImageProcessorPil, CLIPImageProcessorPil, ViTImageProcessorPil

SIZE, PATCH = 21, 7  # pixels; nine patches
COMMON = {
    "hidden_size": WIDTH, "num_hidden_layers": DEPTH, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": SIZE, "patch_size": PATCH,
}  # fmt: skip
REGISTERS = 3
DECODER = {f"decoder_{name}": 4 for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
SWIN_SIZE = 24
SWIN = {"embed_dim": WIDTH // 4, "depths": [2, 1, 2], "num_heads": [2, 2, 4], "window_size": 3}

# name -> (model type, options of the config)
VISION = {
    "vit": ("vit", COMMON),
    "deit": ("deit", COMMON),
    "dinov2": ("dinov2", COMMON | {"mlp_ratio": 2}),
    "dinov2-registers": ("dinov2_with_registers", COMMON | {"mlp_ratio": 2, "num_register_tokens": REGISTERS}),
    "beit": ("beit", COMMON | {"use_mean_pooling": False, "use_relative_position_bias": True}),
    "beit-mean": ("beit", COMMON | {"use_mean_pooling": True}),
    "clip": ("clip_vision_model", COMMON),
    "siglip": ("siglip_vision_model", COMMON),
    "mae": ("vit_mae", COMMON | DECODER),
    "aimv2": ("aimv2_vision_model", COMMON),
    "swin": ("swin", SWIN | {"image_size": SWIN_SIZE, "patch_size": 2}),
}
SPECIAL = {"siglip": 0, "aimv2": 0, "swin": 0, "deit": 2, "dinov2-registers": 1 + REGISTERS}  # others: a class token
WIDTHS = {"swin": (WIDTH // 4, WIDTH // 2, WIDTH, WIDTH)}
POSITIONS = {"swin": (144, 36, 9, 9)}


def special_of(name):
    return SPECIAL.get(name, 1)


def make_vision_model(name):
    """A model with random weights, norms and biases included: an untrained norm of ones would hide mistakes."""
    torch.manual_seed(sum(map(ord, name)))
    model_type, options = VISION[name]
    model = AutoModel.from_config(AutoConfig.for_model(model_type, **options)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model


def make_processor(name):
    size = SWIN_SIZE if name == "swin" else SIZE
    cut = {"size": {"shortest_edge": size + 3}, "crop_size": {"height": size, "width": size}}
    if name.startswith("dinov2"):
        return BitImageProcessorPil(**cut)
    if name in ("clip", "aimv2"):
        return CLIPImageProcessorPil(**cut)
    return ViTImageProcessorPil(size={"height": size, "width": size})


def save_vision(folder, name):
    """A folder with the model and its image processor."""
    make_vision_model(name).save_pretrained(folder)
    make_processor(name).save_pretrained(folder)
    return str(folder)


def picture(number=0, size=(31, 26)):
    """Width and height; a gradient with a coloured square: no two numbers give the same one."""
    random, (width, height) = np.random.default_rng(number), size
    pixels = np.zeros((height, width, 3))
    pixels += np.linspace(0, 255, width)[None, :, None] * random.uniform(0.2, 1, 3)
    top, left = random.integers(0, height // 2), random.integers(0, width // 2)
    pixels[top : top + height // 2, left : left + width // 2] = random.uniform(0, 255, 3)
    return np.clip(pixels + random.normal(0, 4, pixels.shape), 0, 255).astype(np.uint8)


def pictures(n=9):
    """Images of different sizes, wide and tall."""
    return [picture(number, (20 + 3 * number, 44 - 2 * number)) for number in range(n)]


def encoded(pixels, form="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()
