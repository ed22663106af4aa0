"""Seconds of a training step and of an evaluation, for each model and size of the study, on an idle machine.

    python studies/shrink/timing.py MODELS SHARED_DATA KEPT

Run this first, alone, with all cores: study.py turns minutes into steps by it, as `--minutes` does, and may then share
the machine with other work. Writes KEPT/timing.json.
"""

import json
import sys
from pathlib import Path

import torch
from study import BATCH_SIZE, RECIPE_MODEL, RECIPE_SIZES, SIZES, original, sentences

from layerwise.distill.blocks import prefix
from layerwise.distill.student import Teacher, assemble, pooled_student, pooling_modules
from layerwise.distill.texts import MOST_HELD_OUT, PromptedText
from layerwise.distill.training import TrainingSettings, steps_in
from layerwise.maps.linear import LinearMap
from layerwise.models.opening import open_network

TEXTS = 24000


def no_vectors(texts: object) -> torch.Tensor:
    """The original's vectors are not asked for: the time does not depend on what is imitated."""
    raise NotImplementedError


def main() -> None:
    models, data, kept = map(Path, sys.argv[1:])
    texts = [PromptedText(text) for text in sentences(data / "wikitext2" / "train.parquet", TEXTS)]
    path = kept / "timing.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name, sizes in {**SIZES, RECIPE_MODEL: RECIPE_SIZES}.items():
        network = open_network(str(original(name, models, kept)))
        pooling = pooling_modules(network)
        width = pooling[-1].get_embedding_dimension()  # a recipe may pool twice and put both side by side
        targets = torch.randn(TEXTS, width)
        teacher = Teacher(network, pooling, ("",), network.default_length, no_vectors, unit=True)
        for size in sizes:
            student = pooled_student(teacher, prefix(network.depth, size))
            model = assemble(teacher, student, LinearMap(torch.eye(width), torch.zeros(width)))
            found[f"{name}-{size}"] = steps_in(
                1, model, texts, targets, texts[:MOST_HELD_OUT], targets[:MOST_HELD_OUT],
                TrainingSettings(0, BATCH_SIZE, 0.0, 0), unit=True,
            )  # fmt: skip
            print(f"{name}-{size}", found[f"{name}-{size}"], flush=True)
            path.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
