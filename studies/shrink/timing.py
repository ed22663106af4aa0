"""Seconds of a training step and of an evaluation, for each model and size of the study, on an idle machine.

    python studies/shrink/timing.py MODELS SHARED_DATA KEPT

Run this first, alone, with all cores: study.py turns minutes into steps by it, and may then share the machine with
other work. Writes KEPT/timing.json.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from study import BATCH_SIZE, RECIPE_MODEL, RECIPE_SIZES, SIZES, sentences, source_of

from layerwise.maps.linear import LinearMap
from layerwise.models.opening import open_network
from layerwise.verbs.shrink.blocks import prefix
from layerwise.verbs.shrink.student import Teacher, assemble, pooled_student, pooling_modules
from layerwise.verbs.shrink.texts import MOST_HELD_OUT, PromptedText
from layerwise.verbs.shrink.training import AgreementEvaluator, ImitationLoss

TEXTS = 24000
TIMED_STEPS = 6


def no_vectors(texts: object) -> torch.Tensor:
    """The original's vectors are not asked for: the time does not depend on what is imitated."""
    raise NotImplementedError


def typical_batches(texts: Sequence[str], count: int) -> list[list[int]]:
    """A few batches whose mean cost is that of all: evenly spaced from the shortest to the longest texts."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    batches = [order[i : i + BATCH_SIZE] for i in range(0, len(order), BATCH_SIZE)]
    return [batches[(2 * i + 1) * len(batches) // (2 * count)] for i in range(count)]


def seconds_of(model: Any, texts: Sequence[str], targets: torch.Tensor) -> dict[str, float]:
    """The seconds of a step and of an evaluation."""
    loss = ImitationLoss(model, unit=True)
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=0.0, fused=True)
    batches, seconds = typical_batches(texts, TIMED_STEPS), []
    for places in [batches[-1], *batches]:  # the first warms up
        began = time.perf_counter()
        loss([model.preprocess([texts[i] for i in places])], targets[places]).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    AgreementEvaluator(texts[:MOST_HELD_OUT], targets[:MOST_HELD_OUT], "", BATCH_SIZE)(model)
    evaluation = time.perf_counter() - began
    return {"seconds_per_step": sum(seconds[1:]) / TIMED_STEPS, "seconds_per_evaluation": evaluation}


def main() -> None:
    models, data, kept = map(Path, sys.argv[1:])
    texts = [PromptedText(text) for text in sentences(data / "wikitext2" / "train.parquet", TEXTS)]
    path = kept / "timing.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name, sizes in {**SIZES, RECIPE_MODEL: RECIPE_SIZES}.items():
        network = open_network(str(source_of(name, models, kept)))
        pooling = pooling_modules(network)
        width = pooling[-1].get_embedding_dimension()  # a recipe may pool twice and put both side by side
        targets = torch.randn(TEXTS, width)
        teacher = Teacher(network, pooling, ("",), network.default_length, no_vectors, unit=True)
        for size in sizes:
            student = pooled_student(teacher, prefix(network.depth, size))
            model = assemble(teacher, student, LinearMap(torch.eye(width), torch.zeros(width)))
            found[f"{name}-{size}"] = seconds_of(model, [item.text for item in texts], targets)
            print(f"{name}-{size}", found[f"{name}-{size}"], flush=True)
            path.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
