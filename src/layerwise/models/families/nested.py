"""Nested configs: a vision or audio model nests the config of its text blocks."""

from typing import Any

from layerwise.core.errors import ModelError


def text_config(config: Any) -> Any:
    """The config of the text blocks: a nested one, or the config itself.

    An encoder-decoder model nests two, so its config is used unchanged; `part` selects one of its stacks, which has
    its own config.
    """
    if not hasattr(config, "get_text_config") or getattr(config, "is_encoder_decoder", False):
        return config
    try:
        return config.get_text_config()
    except ValueError as error:
        raise ModelError(f"the config of this {config.model_type} has no single text part: {error}") from None
