"""shrink: an embedding model with fewer blocks whose vectors imitate those of the whole model."""

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.files import DiskFolder, write_checked_json
from layerwise.core.formats import parse_record
from layerwise.core.hub import offline
from layerwise.core.options import takes
from layerwise.core.outputs import require_path
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.progress import GO_ON, announce, announcements, is_announcing
from layerwise.core.templates import template_of_prompt
from layerwise.engines.local import LocalEngine
from layerwise.maps.fitted import FittedOn, FittedRecipe, texts_fingerprint
from layerwise.models.load import network_from_object
from layerwise.models.network import Network
from layerwise.models.opening import open_network
from layerwise.models.quantized import require_ordinary_weights
from layerwise.models.readouts import last_recipe
from layerwise.models.shipped import similarity_of
from layerwise.runs.leases import sole_writer
from layerwise.runs.ownership import MARKER, claim, require_usable
from layerwise.verbs.eval.encoding import Encoding, with_engine
from layerwise.verbs.eval.vectors import VectorKind, VectorStore
from layerwise.verbs.export.agreement import MOST_TEXTS, ComparedTexts
from layerwise.verbs.export.backends.catalog import find_backend
from layerwise.verbs.export.run import export_fitted, require_new_folder
from layerwise.verbs.shrink.blocks import BlockChoice, named_blocks
from layerwise.verbs.shrink.index_advice import check_compatibility, grouped_agreement
from layerwise.verbs.shrink.linear import LinearStudent, block_words, choice_record, choose_blocks, fit_student
from layerwise.verbs.shrink.made_requests import made_requests
from layerwise.verbs.shrink.options import ShrinkOptions
from layerwise.verbs.shrink.static_models import export_static
from layerwise.verbs.shrink.student import (
    Teacher,
    assemble,
    blocks_read,
    is_unit,
    own_vectors,
    pooling_modules,
    require_own_vectors,
    search_prompts,
    teacher_prompts,
)
from layerwise.verbs.shrink.texts import PromptedText, TextSplit, open_given, split_texts

BATCH_TOKENS = 4096
REMEDY = "keep more blocks (--blocks), train (--method distill), or add texts like your queries and documents"
OWN_FILE, OWN_FOLDER = re.compile(r"blocks-[0-9a-f]{16}\.json"), re.compile(r"training-[0-9a-f]{16}")
TRAINING_PACKAGES = ("accelerate", "datasets")


@takes(ShrinkOptions)
def shrink(options: ShrinkOptions) -> Any:
    """Makes an embedding model smaller: keeps some of its blocks, and fits them to give the whole model's vectors.

    No labels are needed. The result is a folder that plain `SentenceTransformer(path)` loads, checked like every
    export. Its vectors lie in the space of the original's, so they may even work with an index of those.

    Returns:
        The small model, loaded on the CPU: a SentenceTransformer.

    Raises:
        InputError: `out` exists, options contradict one another, or there are too few texts.
        ModelError: the model has modules that a student cannot have.
        MissingExtra: training needs `pip install 'layerwise[train]'`.

    Example:
        >>> small = layerwise.shrink(model, [*texts, *(f"{text} again" for text in texts)], folder / "small", blocks=1)
        >>> small.encode(["a text"]).shape
        (1, 32)
    """
    require_new_folder(options.out)
    if options.method == "static":
        with announcements(options.progress):
            given = open_given(options.data, options.queries, options.documents, options.pairs)
            return export_static(open_network(options.model), given, require_path(options.out), options)
    require_packages(options)
    target = require_path(options.out)
    folder = require_path(options.work) if options.work is not None else target.with_name(f"{target.name}.work")
    require_usable(DiskFolder(folder), "shrink")
    given = open_given(options.data, options.queries, options.documents, options.pairs)
    if given is None:
        raise InputError("shrink needs texts: pass --data, --queries, --documents or --pairs (data=, queries=, ...)")
    with announcements(options.progress):
        network = open_network(options.model)
        require_ordinary_weights(network.module.config, network.name, "shrink")
        require_tokenizer(network.preprocessor, "shrink")
        require_own_vectors(network)
        backend = find_backend("sentence_transformers")
        backend.check_supported(network, last_recipe(network), "portable")
        pooling, prompts = pooling_modules(network), teacher_prompts(network)
        similarity = similarity_of(network.shipped)
        count = block_count(network, options)
        split = split_texts(given, prompts, options.seed, search_prompts(network))
        claim(DiskFolder(folder), "shrink")
        with sole_writer(DiskFolder(folder)), offline():  # sentence-transformers would look the model up on the hub
            try:
                vectors = partial(stored_vectors, network, folder)
                announce(f"vectors of {Path(network.name).name} for {len(split.fit) + len(split.held_out):,} texts")
                unit = is_unit(vectors(split.held_out), network.dtype)
                teacher = Teacher(network, pooling, prompts, network.default_length, vectors, unit)
                vectors(split.fit)
                choice = chosen_blocks(teacher, split, count, options, folder)
                student = fit_student(teacher, split, choice.kept)
                fitted_on = FittedOn(
                    "texts", given.name, texts_fingerprint([t.text for t in split.fit]), len(split.fit)
                )
                record = shrunk_record(options, student, choice, fitted_on)
                small = assemble(teacher, student.network, student.fit.linear)
                if options.method == "distill":
                    record["training"] = train(teacher, small, split, choice, options, folder)
                made = network_from_object(small)
                made.name = network.name
                announce(f"comparing vectors of both models for {len(split.check):,} held-out texts")
                of_student = partial(own_vectors, made, max_length=teacher.max_length)
                of_search = search_prompts(network)
                record["agreement"] = grouped_agreement(
                    vectors, of_student, split, of_search[1] if of_search else prompts[0]
                ).to_record()
                if options.compatible:
                    found = check_compatibility(vectors, of_student, split, similarity, of_search, REMEDY)
                    record["compatibility"] = found.to_record()
            except KeyboardInterrupt as stopped:
                stopped.add_note(GO_ON)
                raise
        exported = export_fitted(
            made, FittedRecipe(last_recipe(made), made.identity()), Path(options.out), backend=backend,
            compared=ComparedTexts([t.text for t in split.check[:MOST_TEXTS]], given.name), original=network,
            shrunk=record,
        )  # fmt: skip
        if options.work is None:
            delete_work(folder)
        return exported


def delete_work(folder: Path) -> None:
    """Deletes what shrink has put into a claimed folder, and the folder itself unless the user has put files there."""
    for path in list(folder.iterdir()):
        if path.name == "vectors" or OWN_FOLDER.fullmatch(path.name):
            shutil.rmtree(path)
        elif path.name == MARKER or OWN_FILE.fullmatch(path.name):
            path.unlink()
    with suppress(OSError):  # it is not empty
        folder.rmdir()


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


def stored_vectors(network: Network, folder: Path, texts: Sequence[PromptedText]) -> Tensor:
    """The vectors (N, E) of the model as shipped, each text with its prompt; computed once, then read from disk."""
    readout = last_recipe(network).readout
    engine = LocalEngine(network, network.identity())
    rows: Tensor | None = None
    for prompt in dict.fromkeys(item.prompt for item in texts):
        places = [i for i, item in enumerate(texts) if item.prompt == prompt]
        kind = VectorKind(
            network.fingerprint(), str(network.dtype).removeprefix("torch."), network.default_length, (readout,),
            template_of_prompt(prompt),
        )  # fmt: skip
        encoding = Encoding(kind, "float32", BATCH_TOKENS, torch.get_num_threads())
        store = with_engine(engine, encoding, VectorStore(folder / "vectors", kind), progress=is_announcing())
        found = torch.from_numpy(store.vectors([texts[i].text for i in places], readout))
        if rows is None:
            rows = torch.empty(len(texts), found.shape[1])
        rows[places] = found
    assert rows is not None, "there are texts"
    return rows


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
        record = parse_record(path.read_bytes(), str(path))
        return BlockChoice(tuple(record["kept"]), "measured", {tuple(b): error for b, error in record["errors"]})
    choice = choose_blocks(teacher, split, count)
    write_checked_json(path, {"kept": choice.kept, "errors": list(choice.errors.items())})
    return choice


def fingerprint_with_prompts(texts: Sequence[PromptedText]) -> str:
    """The identity of texts that are read with prompts."""
    return texts_fingerprint([item.prompt + item.text for item in texts])


def train(
    teacher: Teacher, small: Any, split: TextSplit, choice: BlockChoice, options: ShrinkOptions, folder: Path
) -> dict[str, Any]:  # fmt: skip
    """Trains the student in place; returns what is recorded."""
    from layerwise.verbs.shrink.training import TrainingSettings, train_student

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
    return asdict(settings) | used | {"result": asdict(trained)}


def shrunk_record(
    options: ShrinkOptions, student: LinearStudent, choice: BlockChoice, fitted_on: FittedOn
) -> dict[str, Any]:  # fmt: skip
    """How the model was made, as `shrunk` in layerwise.json."""
    return {
        "method": options.method,
        "blocks": block_words(choice.kept),
        "choice": choice_record(choice),
        "fitted_on": asdict(fitted_on),
        "penalty": student.fit.penalty,
        "unexplained": student.fit.unexplained,
        "seed": options.seed,
        "training": None,
        "agreement": None,
        "compatibility": None,
    }


def hash_of(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()
