"""Tokenizers as a model is read with them: padded on the right, and lowercasing where the model is set so."""

import copy
from typing import Any

from layerwise.core.errors import ModelError


def with_right_padding(tokenizer: Any) -> Any:
    """A copy of the tokenizer that pads on the right; the original is unchanged."""
    tokenizer = copy.deepcopy(tokenizer)
    if tokenizer.pad_token is None:  # padding is masked, so any token works
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    tokenizer.padding_side = "right"  # left padding is wrong with absolute positions
    return tokenizer


def lowercasing(tokenizer: Any) -> Any:
    """The tokenizer, changed to lowercase texts first, as sentence-transformers changes it for `do_lower_case`."""
    from tokenizers import normalizers

    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
        raise ModelError("its settings have do_lower_case, which layerwise cannot follow with a tokenizer in Python")
    parts = normalizer_parts(backend.normalizer)
    if not any(lowercases(part) for part in parts):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *parts])
    return tokenizer


def normalizer_parts(normalizer: Any) -> list[Any]:
    """The normalizers that a sequence of them consists of, in order; none for None."""
    from tokenizers import normalizers

    if normalizer is None:
        return []
    is_sequence = isinstance(normalizer, normalizers.Sequence)  # which mypy takes for one without items
    return [part for item in normalizer for part in normalizer_parts(item)] if is_sequence else [normalizer]


def lowercases(normalizer: Any) -> bool:
    from tokenizers import normalizers

    return isinstance(normalizer, normalizers.Lowercase) or bool(getattr(normalizer, "lowercase", False))
