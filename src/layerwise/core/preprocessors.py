"""What a model is loaded with to make its inputs: how a tokenizer is told from anything else."""


def is_tokenizer(preprocessor: object) -> bool:
    """True for whatever turns texts into ids of a vocabulary."""
    return callable(preprocessor) and hasattr(preprocessor, "get_vocab")
