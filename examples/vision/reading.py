"""Opens a model that train.py saved, as layerwise and transformers read it.

    from reading import open_model
    table = layerwise.scan(open_model("models/autoregressive-0"), layerwise.images("test.parquet", column="img"))

transformers has no causal ViT. Its attention `sdpa`, the default, follows `is_causal` in config.json, and its attention
`eager` does not: it would read an autoregressive model with attention in both directions, which the model was not
trained with. `open_model` makes sure. A supervised or masked model needs none of this: pass its folder.
"""

from pathlib import Path
from typing import Any

from transformers import AutoImageProcessor, ViTModel


def open_model(folder: Path | str) -> tuple[Any, Any]:
    """The model with the attention that it was trained with, and its image processor."""
    model = ViTModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa").eval()
    if getattr(model.config, "is_causal", False):
        for module in model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = True
    return model, AutoImageProcessor.from_pretrained(folder, backend="pil")
