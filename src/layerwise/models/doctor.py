"""The doctor: checks that layerwise's assumptions hold for a model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from layerwise.core.errors import LayerwiseError
from layerwise.models.network import Network
from layerwise.models.shipped import Head
from layerwise.models.taps import final_states, tapped

TEXTS = ("A short line.", "A second line, a good deal longer than the first one, so that the first must be padded.")
CLOSE = 1e-4  # relative difference that reordered sums can cause in float32


@dataclass(frozen=True)
class Finding:
    """One check of `doctor`: its verdict and what was seen.

    Args:
        verdict: "ok", "note" or "wrong".
        subject: what was checked.
        seen: what was found, in words.
    """

    verdict: Literal["ok", "note", "wrong"]
    subject: str
    seen: str


def examine(network: Network) -> Iterator[Finding]:
    """Checks layer count, final norm, padding, batch size, finite numbers and the tokenizer."""
    yield Finding("ok", "blocks", f"{network.depth} x {network.width}, at {network.anatomy.path}")
    ids = [torch.tensor(network.tokenizer(text)["input_ids"]) for text in TEXTS]
    try:
        alone = [hidden_states(network, one[None], torch.ones(1, len(one), dtype=torch.bool)) for one in ids]
    except LayerwiseError as error:
        yield Finding("wrong", "taps", str(error))
        return
    yield layer_count(network, alone[1])
    yield finite(network, alone)
    yield final_norm(network, ids[1], alone[1])
    yield padding(network, ids, alone)
    yield batch_size(network, ids[1], alone[1])
    if network.head is not None:
        yield as_shipped(network, network.head)
    yield from tokenizer(network)


def hidden_states(network: Network, ids: Tensor, real: Tensor) -> list[Tensor]:
    """The hidden states of every layer for one batch, read by taps."""
    seen: dict[int, Tensor] = {}
    with torch.inference_mode(), tapped(network.anatomy, range(network.depth + 1), seen.__setitem__):
        network.forward(inputs_of(ids.to(network.device), real.to(network.device)))
    return [seen[layer].float().cpu() for layer in sorted(seen)]


def inputs_of(ids: Tensor, real: Tensor) -> dict[str, Tensor]:
    return {"input_ids": ids, "attention_mask": real.long()}


def layer_count(network: Network, layers: list[Tensor]) -> Finding:
    right = len(layers) == network.depth + 1
    return Finding("ok" if right else "wrong", "layers", f"{len(layers)} tapped, {network.depth + 1} expected")


def finite(network: Network, alone: list[list[Tensor]]) -> Finding:
    bad = [k for k, layer in enumerate(alone[1]) if not bool(torch.isfinite(layer).all())]
    if bad:
        return Finding(
            "wrong", "numbers", f"layer {bad[0]} contains NaN or infinity in {network.dtype}; try --dtype float32"
        )
    return Finding("ok", "numbers", f"finite in {network.dtype}")


def final_norm(network: Network, ids: Tensor, layers: list[Tensor]) -> Finding:
    with torch.inference_mode():
        usual = network.module(input_ids=ids[None].to(network.device)).last_hidden_state.float().cpu()
        last = final_states(network.anatomy, layers[-1].to(network.device, network.dtype)).float().cpu()
    gap = difference(last, usual)
    name = "none" if network.anatomy.final_norm is None else type(network.anatomy.final_norm).__name__
    if gap > tolerance(network):
        return Finding("wrong", "final norm", f"{name}: last layer and model output differ by {gap:.1e} (relative)")
    return Finding("ok", "final norm", f"{name}: the last layer equals the model's output")


def padding(network: Network, ids: list[Tensor], alone: list[list[Tensor]]) -> Finding:
    short, long = ids
    padded = torch.full((2, len(long)), network.tokenizer.pad_token_id)
    padded[0, : len(short)], padded[1] = short, long
    real = torch.ones_like(padded, dtype=torch.bool)
    real[0, len(short) :] = False
    together = hidden_states(network, padded, real)
    gap = max(difference(b[:1, : len(short)], a) for a, b in zip(alone[0], together, strict=True))
    verdict: Literal["ok", "wrong"] = "ok" if gap <= tolerance(network) else "wrong"
    return Finding(verdict, "padding", f"padded and unpadded text differ by {gap:.1e} (relative)")


def batch_size(network: Network, ids: Tensor, alone: list[Tensor]) -> Finding:
    together = hidden_states(network, ids.repeat(3, 1), torch.ones(3, len(ids), dtype=torch.bool))
    gap = max(difference(b[:1], a) for a, b in zip(alone, together, strict=True))
    verdict: Literal["ok", "wrong"] = "ok" if gap <= tolerance(network) else "wrong"
    return Finding(verdict, "batch size", f"batches of three and of one differ by {gap:.1e} (relative)")


def as_shipped(network: Network, head: Head) -> Finding:
    """Compares layerwise's output for the shipped modules with that of sentence-transformers."""
    modules = ", ".join(module.kind for module in head.shipped.modules)
    if head.shipped.own_pass:
        return Finding(
            "note", "as shipped", f"{modules}: {head.shipped.own_pass}, so `last` needs its own forward pass"
        )
    prompt = head.shipped.prompt
    texts = [prompt + text for text in TEXTS]
    own = head.encode(texts, network.usual_length)
    rows = []
    with torch.inference_mode():
        for text in texts:
            cut = network.tokenizer(text, truncation=True, max_length=network.usual_length)
            one = torch.tensor(cut["input_ids"])[None]
            last = hidden_states(network, one, torch.ones_like(one, dtype=torch.bool))[-1]
            states = final_states(network.anatomy, last.to(network.device, network.dtype))
            given = one.to(network.device)
            rows.append(head(states, inputs_of(given, torch.ones_like(given))).float().cpu())
    gap = difference(torch.cat(rows), own)
    verdict: Literal["ok", "wrong"] = "ok" if gap <= tolerance(network) else "wrong"
    return Finding(verdict, "shipped modules", f"{modules}: differs from encode() by {gap:.1e}")


def tokenizer(network: Network) -> Iterator[Finding]:
    words = network.tokenizer
    same = words.pad_token_id is not None and words.pad_token_id == words.eos_token_id
    yield Finding(
        "ok", "padding token", repr(words.pad_token) + (" (the end-of-text token; padding is masked)" if same else "")
    )
    yield Finding("ok", "maximum length", f"{network.max_length} tokens")
    if getattr(words, "chat_template", None):
        yield Finding("note", "chat template", "not applied by layerwise; sentence-transformers applies it")


def difference(one: Tensor, other: Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-30))


def tolerance(network: Network) -> float:
    return CLOSE if network.dtype in (torch.float32, torch.float64) else 0.05
