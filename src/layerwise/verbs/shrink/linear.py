"""Shrinking without training: choose the blocks, then fit a linear map to the teacher's vectors in closed form."""

from dataclasses import dataclass
from typing import Any

from layerwise.core.progress import announce
from layerwise.maps.ridge import RidgeFit, fit_ridge
from layerwise.models.network import Network
from layerwise.verbs.shrink.blocks import BlockChoice, Blocks, search_blocks
from layerwise.verbs.shrink.student import Teacher, own_vectors, pooled_student
from layerwise.verbs.shrink.texts import TextSplit

CHOOSING_TEXTS = 1000  # texts on which sets of blocks are compared; a fifth of them are held out


@dataclass(frozen=True)
class LinearStudent:
    """The chosen blocks with the teacher's pooling, and the map that was fitted."""

    network: Network
    fit: RidgeFit


def choose_blocks(teacher: Teacher, texts: TextSplit, count: int) -> BlockChoice:
    """The blocks after which a map recovers the teacher's vectors best."""
    chosen = texts.fit[:CHOOSING_TEXTS]
    held = len(chosen) // 5
    targets = teacher.vectors(chosen)
    depth = teacher.depth

    def error_of(blocks: Blocks) -> float:
        rows = own_vectors(pooled_student(teacher, blocks), chosen, teacher.max_length)
        return fit_ridge(rows[held:], targets[held:], rows[:held], targets[:held]).unexplained

    announce(f"choosing {count} of {depth} blocks on {len(chosen)} texts")
    return search_blocks(
        depth,
        count,
        error_of,
        lambda blocks, error: announce(f"  blocks {block_words(blocks)}: {error:.3f} unexplained"),
    )


def block_words(blocks: Blocks) -> str:
    """The numbers of blocks, counted from 1: `1-3,6`."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == runs[-1][-1] + 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    return ",".join(f"{run[0] + 1}-{run[-1] + 1}" if len(run) > 1 else str(run[0] + 1) for run in runs)


def fit_student(teacher: Teacher, texts: TextSplit, kept: Blocks) -> LinearStudent:
    """The student of these blocks, with its map fitted on all texts for fitting."""
    announce(f"fitting the map of blocks {block_words(kept)} on {len(texts.fit):,} texts")
    student = pooled_student(teacher, kept)
    rows, held_rows = (own_vectors(student, part, teacher.max_length) for part in (texts.fit, texts.held_out))
    return LinearStudent(
        student, fit_ridge(rows, teacher.vectors(texts.fit), held_rows, teacher.vectors(texts.held_out))
    )


def choice_record(choice: BlockChoice) -> dict[str, Any]:
    """How the blocks were chosen, for layerwise.json: the best sets that were tried, with their errors."""
    best = sorted(choice.errors.items(), key=lambda item: item[1])[:10]
    return {
        "how": choice.how,
        "tried": len(choice.errors),
        "unexplained": {block_words(blocks): round(error, 5) for blocks, error in best},
    }
