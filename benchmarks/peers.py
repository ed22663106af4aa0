"""Two other ways to the numbers of a scan, to compare its cost with. Both keep the hidden states of all layers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Numbers = dict[tuple[int, int], tuple[float, float, float]]  # by layer and prompt: entropy, curvature, mean norm


def all_hidden_states(module: Any, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        states: tuple[Tensor, ...] = module(**inputs, output_hidden_states=True).hidden_states
    return states


def naive(module: Any, inputs: Mapping[str, Tensor]) -> Numbers:
    """As one writes it in a notebook: all hidden states, then NumPy in float32, prompt by prompt."""
    found, pooled = {}, []
    for layer, states in enumerate(all_hidden_states(module, inputs)):
        for prompt, tokens in enumerate(states):
            z = tokens.float().cpu().numpy()
            gram = z @ z.T
            values = np.linalg.eigvalsh(gram / np.trace(gram))
            values = values[values > 0]
            steps = np.diff(z, axis=0)
            steps = steps / np.linalg.norm(steps, axis=1, keepdims=True)
            turns = np.arccos(np.clip((steps[1:] * steps[:-1]).sum(axis=1), -1, 1))
            pooled.append(z.mean(axis=0))
            norm = np.linalg.norm(z, axis=1).mean()
            found[layer, prompt] = (float(-(values * np.log(values)).sum()), float(turns.mean()), float(norm))
    return found


def reference(module: Any, inputs: Mapping[str, Tensor]) -> Numbers:
    """By the formulas of the paper's code: float64 throughout, and curvature as a loop over tokens."""
    found, pooled = {}, []
    for layer, states in enumerate(all_hidden_states(module, inputs)):
        for prompt, tokens in enumerate(states):
            z = tokens.double()
            gram = z @ z.T
            values = torch.linalg.eigvalsh(gram / gram.trace()).clamp(min=0)
            entropy = -torch.special.xlogy(values, values).sum()
            total = 0.0
            for first, second, third in zip(z[:-2], z[1:-1], z[2:], strict=True):
                a, b = second - first, third - second
                cosine = float(a @ b / (a.norm() * b.norm()))
                total += math.acos(max(-1.0, min(1.0, cosine)))
            pooled.append(z.mean(dim=0))
            found[layer, prompt] = (float(entropy), total / (len(z) - 2), float(z.norm(dim=-1).mean()))
    return found
