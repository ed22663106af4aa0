"""What a model is loaded with to make its inputs: a tokenizer, or something else."""

from layerwise.core.errors import InputError


def is_tokenizer(preprocessor: object) -> bool:
    """True for whatever turns texts into ids of a vocabulary."""
    return callable(preprocessor) and hasattr(preprocessor, "get_vocab")


def require_tokenizer(preprocessor: object, step: str) -> None:
    """Raises where a step that works on texts only is asked of a model that reads something else."""
    if not is_tokenizer(preprocessor):
        kind = type(preprocessor).__name__
        raise InputError(f"{step} works on texts only, and this model has no tokenizer: a {kind} makes its inputs")
