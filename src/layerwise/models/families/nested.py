"""Nested configs: a model that sees or hears keeps the config of its text blocks inside its own."""

from typing import Any

from layerwise.core.errors import ModelError


def text_config(config: Any) -> Any:
    """The config that describes the blocks that read texts: a nested one, or the config itself.

    An encoder-decoder model nests two of them, so its config is taken as it is; `part` chooses one of its stacks, which
    brings its own.
    """
    if not hasattr(config, "get_text_config") or getattr(config, "is_encoder_decoder", False):
        return config
    try:
        return config.get_text_config()
    except ValueError as error:
        raise ModelError(f"the config of this {config.model_type} names no single part for texts: {error}") from None
