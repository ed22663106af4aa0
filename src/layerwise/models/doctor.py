"""The doctor: checks that layerwise's assumptions hold for a model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from layerwise.core.errors import LayerwiseError
from layerwise.core.preprocessors import is_tokenizer, require_tokenizer
from layerwise.metrics.ops.precision import not_finite_advice
from layerwise.models.head import Head
from layerwise.models.network import Network
from layerwise.models.taps import hidden_from_output, model_lock, model_output, tapped

TEXTS = ("A short line.", "A second line, a good deal longer than the first one, so that the first must be padded.")
RELATIVE_TOLERANCE = 1e-4  # relative difference that reordered sums can cause in float32


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


def run_checks(network: Network) -> Iterator[Finding]:
    """Checks layer count, final norm, padding, batch size, finite numbers and the tokenizer."""
    require_tokenizer(network.preprocessor, "doctor")
    yield Finding("ok", "blocks", f"{network.depth} x {network.width}, at {network.structure.path}")
    ids = [torch.tensor(network.tokenizer(text)["input_ids"]) for text in TEXTS]
    try:
        unbatched = [
            hidden_states(network, token_ids[None], torch.ones(1, len(token_ids), dtype=torch.bool))
            for token_ids in ids
        ]
    except LayerwiseError as error:
        yield Finding("wrong", "taps", str(error))
        return
    yield check_layer_count(network, unbatched[1])
    yield check_finite(network, unbatched)
    yield check_final_norm(network, ids[1])
    yield check_padding(network, ids, unbatched)
    yield check_batch_size(network, ids[1], unbatched[1])
    if network.head is not None:
        yield check_shipped_head(network, network.head)
    yield from check_tokenizer(network)


def hidden_states(network: Network, ids: Tensor, real: Tensor) -> list[Tensor]:
    """The hidden states of every layer for one batch, read by taps."""
    by_layer: dict[int, Tensor] = {}
    with torch.inference_mode(), tapped(network.structure, range(network.depth + 1), by_layer.__setitem__):
        network.forward(make_inputs(ids.to(network.device), real.to(network.device)))
    return [by_layer[layer].float().cpu() for layer in sorted(by_layer)]


def make_inputs(ids: Tensor, real: Tensor) -> dict[str, Tensor]:
    return {"input_ids": ids, "attention_mask": real.long()}


def check_layer_count(network: Network, layers: list[Tensor]) -> Finding:
    is_ok = len(layers) == network.depth + 1
    return Finding("ok" if is_ok else "wrong", "layers", f"{len(layers)} tapped, {network.depth + 1} expected")


def check_finite(network: Network, unbatched: list[list[Tensor]]) -> Finding:
    bad = [k for k, layer in enumerate(unbatched[1]) if not bool(torch.isfinite(layer).all())]
    if bad:
        return Finding(
            "wrong",
            "numbers",
            f"layer {bad[0]} contains NaN or infinity in {network.dtype}; {not_finite_advice(network.dtype)}",
        )
    return Finding("ok", "numbers", f"finite in {network.dtype}")


def check_final_norm(network: Network, ids: Tensor) -> Finding:
    gap = output_gap(network, ids)
    name = "none" if network.structure.final_norm is None else type(network.structure.final_norm).__name__
    if gap > tolerance(network):
        return Finding("wrong", "final norm", f"{name}: last layer and model output differ by {gap:.1e} (relative)")
    return Finding("ok", "final norm", f"{name}: the last layer equals the model's output")


def output_gap(network: Network, ids: Tensor) -> float:
    """How much the output of the last block, after the final norm, differs from the model's output (relative).

    Infinite if they differ in shape, as they do where a projection follows; 0 if the model returns no such output.
    """
    states: list[Tensor] = []
    block, ids = network.structure.blocks[-1], ids[None].to(network.device)
    with torch.no_grad(), model_lock(network.structure.blocks[0]):
        handle = block.register_forward_hook(lambda module, args, output: states.append(hidden_from_output(output)))
        try:
            output = network.forward(make_inputs(ids, torch.ones_like(ids)))
        finally:
            handle.remove()
        last = model_output(network.structure, states[-1])
    expected = getattr(output, "last_hidden_state", None)
    if expected is None:
        return 0.0
    return relative_difference(last.float().cpu(), expected.float().cpu()) if last.shape == expected.shape else math.inf


def output_problem(network: Network) -> str:
    """Why the state after the last block is not the model's output; "" if it is, or if its inputs are not texts."""
    if not is_tokenizer(network.preprocessor):
        return ""
    ids = torch.tensor(network.tokenizer(TEXTS[0], truncation=True, max_length=network.max_length)["input_ids"])
    if not len(ids) or not output_gap(network, ids) > tolerance(network):  # NaN has its own error
        return ""
    return (
        f"{network.name} changes its hidden states after its last block and final norm, in a way that layerwise does "
        "not know; `layerwise doctor` shows how much. Please report this model"
    )


def check_padding(network: Network, ids: list[Tensor], unbatched: list[list[Tensor]]) -> Finding:
    short, long = ids
    padded = torch.full((2, len(long)), network.tokenizer.pad_token_id)
    padded[0, : len(short)], padded[1] = short, long
    real = torch.ones_like(padded, dtype=torch.bool)
    real[0, len(short) :] = False
    batched = hidden_states(network, padded, real)
    largest_difference = max(
        relative_difference(b[:1, : len(short)], a) for a, b in zip(unbatched[0], batched, strict=True)
    )
    verdict: Literal["ok", "wrong"] = "ok" if largest_difference <= tolerance(network) else "wrong"
    return Finding(verdict, "padding", f"padded and unpadded text differ by {largest_difference:.1e} (relative)")


def check_batch_size(network: Network, ids: Tensor, unbatched: list[Tensor]) -> Finding:
    batched = hidden_states(network, ids.repeat(3, 1), torch.ones(3, len(ids), dtype=torch.bool))
    gap = max(relative_difference(b[:1], a) for a, b in zip(unbatched, batched, strict=True))
    verdict: Literal["ok", "wrong"] = "ok" if gap <= tolerance(network) else "wrong"
    return Finding(verdict, "batch size", f"batches of three and of one differ by {gap:.1e} (relative)")


def check_shipped_head(network: Network, head: Head) -> Finding:
    """Compares layerwise's output for the shipped modules with that of sentence-transformers."""
    modules = ", ".join(module.kind for module in head.shipped.modules)
    if head.shipped.own_encode_reason:
        return Finding(
            "note",
            "shipped modules",
            f"{modules}: {head.shipped.own_encode_reason}, so `last` needs its own forward pass",
        )
    prompt, tokenizer = head.shipped.prompt, network.tokenizer
    texts = [prompt + text for text in TEXTS]
    expected = head.encode(texts, network.default_length)
    rows = []
    with torch.inference_mode():
        for text in texts:
            encoding = tokenizer(text, truncation=True, max_length=network.default_length)
            token_ids = torch.tensor(encoding["input_ids"])[None]
            last = hidden_states(network, token_ids, torch.ones_like(token_ids, dtype=torch.bool))[-1]
            states = model_output(network.structure, last.to(network.device, network.dtype))
            device_ids = token_ids.to(network.device)
            inputs, left_out = make_inputs(device_ids, torch.ones_like(device_ids)), head.left_out(tokenizer, texts, "")
            rows.append(head(states, inputs, left_out).float().cpu())
    gap = relative_difference(torch.cat(rows), expected)
    verdict: Literal["ok", "wrong"] = "ok" if gap <= tolerance(network) else "wrong"
    return Finding(verdict, "shipped modules", f"{modules}: differs from encode() by {gap:.1e}")


def check_tokenizer(network: Network) -> Iterator[Finding]:
    tokenizer = network.tokenizer
    same = tokenizer.pad_token_id is not None and tokenizer.pad_token_id == tokenizer.eos_token_id
    yield Finding(
        "ok",
        "padding token",
        repr(tokenizer.pad_token) + (" (the end-of-text token; padding is masked)" if same else ""),
    )
    yield Finding("ok", "maximum length", f"{network.max_length} tokens")
    if getattr(tokenizer, "chat_template", None):
        yield Finding("note", "chat template", "not applied by layerwise; sentence-transformers applies it")


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def tolerance(network: Network) -> float:
    return RELATIVE_TOLERANCE if network.dtype in (torch.float32, torch.float64) else 0.05
