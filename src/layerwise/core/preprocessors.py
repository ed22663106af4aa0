"""The preprocessor of a model: a tokenizer, or something else."""

from layerwise.core.errors import InputError


def is_tokenizer(preprocessor: object) -> bool:
    """True for anything that turns texts into token ids."""
    return callable(preprocessor) and hasattr(preprocessor, "get_vocab")


def require_tokenizer(preprocessor: object, step: str) -> None:
    """Raises if a text-only step is used with a model that does not read text."""
    if not is_tokenizer(preprocessor):
        kind = type(preprocessor).__name__
        raise InputError(f"{step} works on texts only, but this model has no tokenizer; its inputs come from a {kind}")
