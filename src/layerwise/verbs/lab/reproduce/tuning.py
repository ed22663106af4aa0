"""Short trainings of a language model, for the figures that compare a model with its fine-tunes.

By next tokens: the model reads more texts, as in its own training. Contrastive: the mean vectors of two parts of a text
are to be nearer to each other than to those of other texts, which is how models are trained to embed without labels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from layerwise.core.errors import InputError
from layerwise.core.files import write_checked_json
from layerwise.core.formats import parse_stored
from layerwise.core.progress import announce
from layerwise.core.quiet import quiet_libraries
from layerwise.maps.fitted import texts_fingerprint
from layerwise.metrics.ops.pooling import pool
from layerwise.models.load import from_pretrained, identity_from_files, load_tokenizer
from layerwise.models.spec import ModelSpec
from layerwise.runs.records import NUMBER_TYPES

Objective = Literal["next_token", "contrastive"]
HELD_OUT_BATCHES = 8
WARMUP_SHARE = 0.1
TEMPERATURE = 0.05  # of the cosines, as in SimCSE
IGNORED = -100  # the label that cross entropy leaves out
REPORTS = 5  # during the training
RECORD_FILE = "tuning.json"


@dataclass(frozen=True)
class Tuning:
    """How to train; together with the model and the texts, this decides the weights."""

    objective: Objective
    steps: int
    batch_size: int
    tokens: int  # of each text, or of each of its two parts
    learning_rate: float
    seed: int = 0


@dataclass(frozen=True)
class Tuned:
    """The loss on texts that were not trained on, in nats, before and after."""

    texts: int  # that were trained on
    before: float
    after: float


TUNED_SHAPE = {"texts": int, "before": NUMBER_TYPES, "after": NUMBER_TYPES}


def tune_once(spec: ModelSpec, texts: Sequence[str], how: Tuning, folder: Path) -> Tuned:
    """Trains the model, or reads what an earlier call made of the same model and texts in the same way."""
    identity = identity_from_files(spec)
    made_from = asdict(how) | {"model": identity and identity.fingerprint, "texts": texts_fingerprint(texts)}
    file = folder / RECORD_FILE
    if file.is_file():
        record = parse_stored(file.read_bytes(), str(file), {"made_from": dict, "result": TUNED_SHAPE})
        if identity is not None and made_from == record["made_from"]:
            return Tuned(**record["result"])
        file.unlink()  # so that half-written weights of this call never pass for those of the record
    result = tune(spec, texts, how, folder)
    write_checked_json(file, {"made_from": made_from, "result": asdict(result)})
    return result


def tune(spec: ModelSpec, texts: Sequence[str], how: Tuning, folder: Path) -> Tuned:
    """Trains all weights of the model and writes it to the folder, with its tokenizer."""
    tokenizer = load_tokenizer(spec)
    model = load_for(how.objective, spec)
    rows = tokenized(tokenizer, texts, how)
    generator = torch.Generator().manual_seed(how.seed)
    order = torch.randperm(len(rows), generator=generator).tolist()
    held_out = [rows[i] for i in order[: HELD_OUT_BATCHES * how.batch_size]]
    trained_on = [rows[i] for i in order[len(held_out) :]]
    if len(trained_on) < how.batch_size:
        raise InputError(f"{len(rows)} long enough texts are too few to train on with batches of {how.batch_size}")
    loss = LOSSES[how.objective]
    before = held_out_loss(model, loss, held_out, how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=how.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_share(step, how.steps))
    for step in range(how.steps):
        chosen = torch.randint(len(trained_on), (how.batch_size,), generator=generator).tolist()
        value = loss(model, [trained_on[i] for i in chosen], how.tokens, generator)
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % math.ceil(how.steps / REPORTS) == 0:
            announce(f"  step {step + 1:,} of {how.steps:,}: loss {value.item():.2f}")
    after = held_out_loss(model, loss, held_out, how)
    with quiet_libraries():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return Tuned(len(trained_on), before, after)


def rate_share(step: int, steps: int) -> float:
    """The share of the learning rate at a step: it rises during the warm-up, and then falls towards zero."""
    warmup = max(1, round(WARMUP_SHARE * steps))
    return min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))


def load_for(objective: Objective, spec: ModelSpec) -> Any:
    """The model in float32, without dropout; for next tokens with the head that it was trained with."""
    from transformers import AutoModel, AutoModelForCausalLM

    auto = AutoModelForCausalLM if objective == "next_token" else AutoModel
    model, found = from_pretrained(auto, spec, output_loading_info=True, dtype=torch.float32)
    if found["missing_keys"]:
        missing = ", ".join(sorted(found["missing_keys"])[:3])
        raise InputError(f"{spec.name} lacks weights that training by {objective} needs: {missing}")
    return model.eval()


def tokenized(tokenizer: Any, texts: Sequence[str], how: Tuning) -> list[list[int]]:
    """The tokens of each text that is long enough: two of them, or two whole parts."""
    with quiet_libraries():
        rows = tokenizer(list(texts), add_special_tokens=how.objective == "next_token")["input_ids"]
    shortest = 2 if how.objective == "next_token" else 2 * how.tokens
    return [row for row in rows if len(row) >= shortest]


def held_out_loss(model: Any, loss: Callable[..., Tensor], rows: Sequence[list[int]], how: Tuning) -> float:
    """The mean loss over batches; the same parts of the same texts each time."""
    generator = torch.Generator().manual_seed(how.seed)
    batches = [rows[start : start + how.batch_size] for start in range(0, len(rows), how.batch_size)]
    with torch.no_grad():
        return sum(loss(model, batch, how.tokens, generator).item() for batch in batches) / len(batches)


def next_token_loss(model: Any, rows: Sequence[list[int]], tokens: int, generator: torch.Generator) -> Tensor:
    """Cross entropy of each token after the first, over the first tokens of each text."""
    kept = [row[:tokens] for row in rows]
    width = max(map(len, kept))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in kept])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in kept])
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
    labels = ids.masked_fill(mask == 0, IGNORED)
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)


def contrastive_loss(model: Any, rows: Sequence[list[int]], tokens: int, generator: torch.Generator) -> Tensor:
    """Cross entropy of finding the other part of the same text among those of the batch, both ways."""
    parts = [two_parts(row, tokens, generator) for row in rows]
    ids = torch.tensor([part for side in zip(*parts, strict=True) for part in side])
    mask = torch.ones_like(ids)
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
    vectors = functional.normalize(pool(hidden, mask.bool(), "mean"), dim=1)
    first, second = vectors.chunk(2)
    cosines = first @ second.mT / TEMPERATURE
    target = torch.arange(len(rows))
    return (functional.cross_entropy(cosines, target) + functional.cross_entropy(cosines.mT, target)) / 2


def two_parts(row: list[int], tokens: int, generator: torch.Generator) -> tuple[list[int], list[int]]:
    """Two parts of a text that do not overlap, one from each side of a random cut."""
    cut = int(torch.randint(tokens, len(row) - tokens + 1, (), generator=generator))
    left = int(torch.randint(0, cut - tokens + 1, (), generator=generator))
    right = int(torch.randint(cut, len(row) - tokens + 1, (), generator=generator))
    return row[left : left + tokens], row[right : right + tokens]


LOSSES: dict[Objective, Callable[..., Tensor]] = {"next_token": next_token_loss, "contrastive": contrastive_loss}
