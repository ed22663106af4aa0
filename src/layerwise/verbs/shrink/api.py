"""shrink: an embedding model with fewer blocks whose vectors imitate those of the whole model."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.files import DiskFolder, write_checked_json
from layerwise.core.formats import parse_stored
from layerwise.core.hub import offline
from layerwise.core.options import takes
from layerwise.core.outputs import require_path
from layerwise.core.progress import GO_ON, announce, announcements
from layerwise.maps.fitted import FittedOn, FittedRecipe, texts_fingerprint
from layerwise.models.load import network_from_object
from layerwise.models.network import Network
from layerwise.models.opening import open_network
from layerwise.models.readouts import last_recipe
from layerwise.models.shipped import similarity_of
from layerwise.runs.leases import sole_writer
from layerwise.runs.ownership import claim, require_usable
from layerwise.runs.records import NUMBER_TYPES
from layerwise.verbs.export.agreement import MOST_TEXTS, ComparedTexts
from layerwise.verbs.export.run import export_fitted, require_new_folder
from layerwise.verbs.shrink.blocks import BlockChoice, named_blocks
from layerwise.verbs.shrink.index_advice import check_compatibility, grouped_agreement
from layerwise.verbs.shrink.linear import block_words, choice_record, choose_blocks, fit_student
from layerwise.verbs.shrink.made_requests import made_requests
from layerwise.verbs.shrink.options import ShrinkOptions
from layerwise.verbs.shrink.other_model import REMEDY as OTHER_REMEDY
from layerwise.verbs.shrink.other_model import fit_map_of, open_student, read_by, with_map
from layerwise.verbs.shrink.static_models import export_static
from layerwise.verbs.shrink.student import (
    Teacher,
    Vectors,
    assemble,
    blocks_read,
    is_unit,
    open_whole,
    own_vectors,
    pooling_modules,
    portable_backend,
    search_prompts,
    teacher_prompts,
)
from layerwise.verbs.shrink.texts import PromptedText, TextSplit, open_given, split_texts
from layerwise.verbs.shrink.ways import compare_ways
from layerwise.verbs.shrink.work import delete_work, stored_vectors, work_folder

REMEDY = "keep more blocks (--blocks), train (--method distill), or add texts like your queries and documents"
TRAINING_PACKAGES = ("accelerate", "datasets")


@takes(ShrinkOptions)
def shrink(options: ShrinkOptions) -> Any:
    """Makes an embedding model smaller: keeps some of its blocks, and fits them to give the whole model's vectors.

    No labels are needed. The result is a folder that plain `SentenceTransformer(path)` loads, checked like every
    export. Its vectors lie in the space of the original's, so they may even work with an index of those. Without a
    method, a number of blocks or a student, the cheap ways are tried and compared.

    Returns:
        The small model, loaded on the CPU: a SentenceTransformer. Or, where ways are compared, the CheaperWays.

    Raises:
        InputError: `out` exists, options contradict one another, or there are too few texts.
        ModelError: the model has modules that a student cannot have.
        MissingExtra: training needs `pip install 'layerwise[train]'`.

    Example:
        >>> small = layerwise.shrink(model, [*texts, *(f"{text} again" for text in texts)], folder / "small", blocks=1)
        >>> small.encode(["a text"]).shape
        (1, 32)
    """
    if options.way == "compare":
        return compare_ways(options, shrink)
    require_new_folder(options.out)
    if options.way == "static":
        with announcements(options.progress):
            given = open_given(options.data, options.queries, options.documents, options.pairs)
            return export_static(open_network(options.model), given, require_path(options.out), options)
    require_packages(options)
    target = require_path(options.out)
    folder = work_folder(target, options.work)
    require_usable(DiskFolder(folder), "shrink")
    given = open_given(options.data, options.queries, options.documents, options.pairs)
    if given is None:
        raise InputError("shrink needs texts: pass --data, --queries, --documents or --pairs (data=, queries=, ...)")
    with announcements(options.progress):
        network = open_whole(options.model)
        student = open_student(options.student, network) if options.student is not None else None
        backend = portable_backend(student or network)
        pooling, prompts = () if student else pooling_modules(network), teacher_prompts(network)
        count = 0 if student else block_count(network, options)
        split = split_texts(given, prompts, options.seed, search_prompts(network))
        claim(DiskFolder(folder), "shrink")
        with sole_writer(DiskFolder(folder)), offline():  # sentence-transformers would look the model up on the hub
            try:
                vectors = partial(stored_vectors, network, folder)
                announce(f"vectors of {Path(network.name).name} for {len(split.fit) + len(split.held_out):,} texts")
                unit = is_unit(vectors(split.held_out), network.dtype)
                teacher = Teacher(network, pooling, prompts, network.default_length, vectors, unit)
                vectors(split.fit)
                fitted_on = FittedOn(
                    "texts", given.name, texts_fingerprint([t.text for t in split.fit]), len(split.fit)
                )
                if student is None:
                    made, record = of_blocks(teacher, split, count, options, folder)
                else:
                    made, record = of_other_model(teacher, student, split, folder)
                made.network.name = network.name
                record |= {"fitted_on": asdict(fitted_on), "seed": options.seed}
                announce(f"comparing vectors of both models for {len(split.check):,} held-out texts")
                of_search = search_prompts(network)
                record["agreement"] = grouped_agreement(
                    vectors, made.vectors, split, of_search[1] if of_search else prompts[0]
                ).to_record()
                if options.compatible:
                    similarity = similarity_of(network.shipped)
                    found = check_compatibility(
                        vectors, made.vectors, split, similarity, of_search, made.remedy, made.re_embedded
                    )
                    record["compatibility"] = found.to_record()
            except KeyboardInterrupt as stopped:
                stopped.add_note(GO_ON)
                raise
        exported = export_fitted(
            made.network, FittedRecipe(last_recipe(made.network), made.network.identity()), Path(options.out),
            backend=backend, compared=ComparedTexts([t.text for t in split.check[:MOST_TEXTS]], given.name),
            original=network, shrunk=record,
        )  # fmt: skip
        if options.work is None:
            delete_work(folder)
        return exported


@dataclass(frozen=True)
class Made:
    """The small model in memory, and how it is compared with the original."""

    network: Network
    vectors: Vectors  # of texts with the original's prompts
    remedy: str  # how to lose less
    re_embedded: tuple[Vectors, str] | None = None  # see check_compatibility


def of_blocks(
    teacher: Teacher, split: TextSplit, count: int, options: ShrinkOptions, folder: Path
) -> tuple[Made, dict[str, Any]]:
    """Some blocks of the model with a linear map, trained if that was asked for; and how they were made."""
    choice = chosen_blocks(teacher, split, count, options, folder)
    student = fit_student(teacher, split, choice.kept)
    record = shrunk_record(options.way, block_words(choice.kept)) | {
        "choice": choice_record(choice), "penalty": student.fit.penalty, "unexplained": student.fit.unexplained,
    }  # fmt: skip
    small = assemble(teacher, student.network, student.fit.linear)
    if options.method == "distill":
        record["training"] = train(teacher, small, split, choice, options, folder)
    made = network_from_object(small)
    return Made(made, partial(own_vectors, made, max_length=teacher.max_length), REMEDY), record


def of_other_model(teacher: Teacher, student: Network, split: TextSplit, folder: Path) -> tuple[Made, dict[str, Any]]:
    """Another model with a map to the original's vectors; and how it was made."""
    own = read_by(student, partial(stored_vectors, student, folder))
    found = fit_map_of(teacher, own, split, Path(student.name).name)
    record = shrunk_record("student", "all") | {
        "student": asdict(student.identity()), "map": found.kind, "maps": dict(found.unexplained),
        "unexplained": found.unexplained[found.kind],
    }  # fmt: skip
    made = network_from_object(with_map(student, found.linear, unit=teacher.unit))
    mapped = read_by(made, partial(own_vectors, made, max_length=made.default_length))
    return Made(made, mapped, OTHER_REMEDY, (own, similarity_of(student.shipped))), record


def require_packages(options: ShrinkOptions) -> None:
    """Raises before anything is computed if a package for training is not installed."""
    if options.method == "distill":
        for package in (*TRAINING_PACKAGES, *(["peft"] if options.lora else [])):
            if find_spec(package) is None:
                raise MissingExtra(f"training needs {package}: pip install 'layerwise[train]'")


def block_count(network: Network, options: ShrinkOptions) -> int:
    """How many blocks are kept; raises unless it is fewer than there are."""
    depth = blocks_read(network)
    if options.choose not in ("measured", "prefix", "even"):
        return len(named_blocks(options.choose, depth, options.blocks))
    count = options.blocks or max(1, depth // 2)
    if count >= depth:
        raise InputError(f"the vectors of {network.name} need {depth} blocks; keep fewer: --blocks 1 to {depth - 1}")
    return count


BLOCKS_SHAPE = {"kept": [int], "errors": [{"blocks": [int], "error": NUMBER_TYPES}]}


def chosen_blocks(
    teacher: Teacher, split: TextSplit, count: int, options: ShrinkOptions, folder: Path
) -> BlockChoice:  # fmt: skip
    """The blocks to keep: named by the caller, measured now, or measured by an earlier call with the same texts."""
    network = teacher.network
    if options.choose != "measured":
        named = options.choose in ("prefix", "even")
        return BlockChoice(named_blocks(options.choose, teacher.depth, count), options.choose if named else "named", {})
    key = hash_of(network.fingerprint(), fingerprint_with_prompts(split.fit), count)
    path = folder / f"blocks-{key}.json"
    if path.is_file():
        record = parse_stored(path.read_bytes(), str(path), BLOCKS_SHAPE)
        return BlockChoice(
            tuple(record["kept"]), "measured", {tuple(e["blocks"]): e["error"] for e in record["errors"]}
        )
    choice = choose_blocks(teacher, split, count)
    measured = [{"blocks": blocks, "error": error} for blocks, error in choice.errors.items()]
    write_checked_json(path, {"kept": choice.kept, "errors": measured})
    return choice


def fingerprint_with_prompts(texts: Sequence[PromptedText]) -> str:
    """The identity of texts that are read with prompts."""
    return texts_fingerprint([item.prompt + item.text for item in texts])


def train(
    teacher: Teacher, small: Any, split: TextSplit, choice: BlockChoice, options: ShrinkOptions, folder: Path
) -> dict[str, Any]:  # fmt: skip
    """Trains the student in place; returns what is recorded."""
    from layerwise.verbs.shrink.training import TrainingSettings, train_student, trains_in_bfloat16

    asked = {
        name: getattr(options, name) for name in ("minutes", "steps", "lora", "batch_size", "learning_rate", "seed")
    }
    network = teacher.network
    of_search = search_prompts(network)
    made = made_requests(split.fit, network.tokenizer, of_search[0] if of_search else teacher.prompts[0], options.seed)
    fit = (*split.fit, *made)
    texts = [fingerprint_with_prompts(part) for part in (fit, split.held_out)]
    key = hash_of(network.fingerprint(), texts, choice.kept, asked)
    checkpoints = folder / f"training-{key}"
    if not checkpoints.exists() and any(folder.glob("training-*")):
        announce(f"{folder} holds a training with other settings or texts, so this one starts at its first step")
    excluded = teacher.shipped is not None and not teacher.shipped.include_prompt
    settings = TrainingSettings(
        options.steps, options.minutes, options.batch_size, options.learning_rate, options.seed, options.lora,
        teacher.prompts[0] if excluded else "",
    )  # fmt: skip
    if made:
        announce(f"adding {len(made):,} made requests such as {made[0].text!r}, so that short texts are not forgotten")
    targets, held_targets = teacher.vectors(fit), teacher.vectors(split.held_out)
    if settings.steps is not None:
        announce(f"training for {settings.steps:,} steps of {settings.batch_size} of {len(fit):,} texts")
    trained = train_student(
        small, fit, targets, split.held_out, held_targets, settings, unit=teacher.unit, folder=checkpoints
    )
    used = {"steps": settings.steps or trained.steps, "made_requests": len(made)}
    used["bfloat16"] = trains_in_bfloat16(network.device)
    return asdict(settings) | used | {"result": asdict(trained)}


def shrunk_record(method: str, blocks: str) -> dict[str, Any]:
    """How the model was made, as `shrunk` in layerwise.json; what does not apply to a method stays null."""
    return {
        "method": method, "blocks": blocks, "choice": None, "student": None, "map": None, "maps": None,
        "fitted_on": None, "penalty": None, "unexplained": None, "seed": None, "training": None, "agreement": None,
        "compatibility": None,
    }  # fmt: skip


def hash_of(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()
