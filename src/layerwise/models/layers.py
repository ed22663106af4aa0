"""Which layers: from words such as `all`, `0,6,12`, `25%,50%` or `last` to numbers."""

from collections.abc import Sequence

from layerwise.errors import InputError

LayerChoice = str | int | Sequence[int | str]


def layer_at(share: float, depth: int) -> int:
    """The layer nearest to a share of the depth; a tie goes to the shallower one."""
    below = int(share * depth)
    return below if share * depth - below <= 0.5 else below + 1


def choose_layers(choice: LayerChoice, depth: int) -> tuple[int, ...]:
    """Layer numbers from 0 (embeddings) to depth, ascending, each once; raises InputError on anything else."""
    if choice == "all":
        return tuple(range(depth + 1))
    words = choice.split(",") if isinstance(choice, str) else [choice] if isinstance(choice, int) else list(choice)
    chosen = sorted({layer_from(str(word).strip(), depth) for word in words})
    if not chosen:
        raise InputError("no layer is named; use all, last, numbers such as 0,6,12 or depths such as 25%,50%")
    return tuple(chosen)


def layer_from(word: str, depth: int) -> int:
    """One layer from `last`, a number (negative counts from the end) or a percentage of the depth."""
    try:
        if word == "last":
            layer = depth
        elif word.endswith("%"):
            layer = layer_at(float(word[:-1]) / 100, depth)
        else:
            layer = int(word) if int(word) >= 0 else depth + 1 + int(word)
    except ValueError:
        raise InputError(f"{word!r} names no layer; use all, last, a number or a depth such as 50%") from None
    if not 0 <= layer <= depth:
        raise InputError(f"layer {word} does not exist: this model has layers 0 (embeddings) to {depth}")
    return layer
