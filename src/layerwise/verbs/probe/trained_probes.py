"""Probes that are trained by gradient descent: attention over positions, and the weighted sum of all layers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layerwise.verbs.probe.features import Positions
from layerwise.verbs.probe.labelled import LabelTask
from layerwise.verbs.probe.probes import Codes, ProbeFit

HEADS = 8
LEARNING_RATE = 1e-3
WEIGHTED_SUM_RATE = 1e-2  # its inputs have a variance far below 1, because means over positions shrink
BATCH = 64  # examples
PATIENCE = 5  # epochs without a higher accuracy before training stops
PATIENCE_STEPS = 100  # and no fewer steps than that: an epoch of a small data set has a few
WEIGHTED_SUM_EPOCHS, WEIGHTED_SUM_PATIENCE = 200, 20  # its epochs take milliseconds
TEST_BATCH = 256


class AttentionProbe(nn.Module):
    """Batch norm, one learned query that attends to the positions of an example with several heads, and a classifier.

    The query is the same for all examples, so keys and values need not be computed per position: a head's score is
    (key weights' q) . x, and its output is its value weights times the mean of x under its attention. That is what
    torch.nn.MultiheadAttention computes, at a fraction of the cost: one product of size H x D per position instead of
    two of size D x D.
    """

    def __init__(self, width: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = head_count(width)
        # momentum=None: the statistics of all batches count alike, so that few steps suffice
        self.norm = nn.BatchNorm1d(width, affine=False, momentum=None)
        bound = (3 / width) ** 0.5
        self.query = nn.Parameter(0.02 * torch.randn(width, generator=generator))
        self.key = nn.Parameter(uniform((width, width), bound, generator))
        self.value = nn.Parameter(uniform((width, width), bound, generator))
        self.classifier = nn.Parameter(uniform((classes, width), bound, generator))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, positions: Tensor, lengths: Tensor) -> Tensor:
        """positions (P, D) of B examples one after another, and how many each has (B,) -> logits (B, classes)."""
        x, mask = padded(self.norm(positions), lengths)  # (B, T, D), (B, T)
        size = x.shape[-1] // self.heads  # d = D / H
        query, key, value = (w.view(self.heads, size, -1) for w in (self.query, self.key, self.value))
        folded = (query * key).sum(dim=1) / size**0.5  # (H, d, 1) * (H, d, D) -> (H, D)
        scores = (x @ folded.T).masked_fill(~mask[..., None], -torch.inf)  # (B, T, H)
        means = scores.softmax(dim=1).transpose(1, 2) @ x  # (B, H, D)
        attended = torch.einsum("bhw,hdw->bhd", means, value).flatten(1)  # (B, D)
        return attended @ self.classifier.T + self.bias


def head_count(width: int) -> int:
    """8 heads, or the most below 8 that divide the width."""
    return next(heads for heads in range(HEADS, 0, -1) if width % heads == 0)


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(shape, generator=generator) - 1) * bound


def padded(positions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Positions (P, D) as (B, T, D) with zeros at the end, and the mask (B, T) of those that are real."""
    mask = torch.arange(int(lengths.max()), device=positions.device) < lengths[:, None]
    x = positions.new_zeros(*mask.shape, positions.shape[-1])
    x[mask] = positions
    return x, mask


class WeightedSumProbe(nn.Module):
    """A learned weighted sum over layers, softmax(w), and a linear classifier, as in SUPERB."""

    def __init__(self, layers: int, width: int, classes: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.classifier = nn.Parameter(torch.zeros(classes, width))
        self.bias = nn.Parameter(torch.zeros(classes))

    @property
    def weights(self) -> Tensor:
        return self.scores.softmax(dim=0)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, L, D) -> logits (B, classes)."""
        return torch.einsum("l,bld->bd", self.weights, vectors) @ self.classifier.T + self.bias


class Batches(Protocol):
    """Gives the inputs of a module for some examples."""

    def __call__(self, examples: Codes) -> tuple[Tensor, ...]: ...


@dataclass(frozen=True)
class Training:
    """How a probe is trained: Adam on batches in random order, with as many epochs as serve held-out examples best."""

    make: Callable[[torch.Generator], nn.Module]
    batches: Batches
    train: Codes  # places of the training examples
    epochs: int
    patience: int
    rate: float

    def fit(self, task: LabelTask) -> tuple[nn.Module, int]:
        """Chooses the number of epochs on the held-out training examples, then trains anew on all of them."""
        epochs = self.choose_epochs(task) if len(task.held_out) else self.epochs
        everything = np.arange(len(self.train))
        *_, module = self.epochs_of(task, everything, epochs)
        return module, epochs

    def choose_epochs(self, task: LabelTask) -> int:
        """The epoch with the highest accuracy on held-out examples; of equals, that with the lowest loss.

        It stops after some epochs without a higher accuracy: where all examples are predicted, the loss falls for ever.
        """
        best, chosen, last_gain = (-1.0, 0.0), 1, 1
        targets = torch.from_numpy(task.train[task.held_out])
        patience = max(self.patience, -(-PATIENCE_STEPS // batch_count(len(task.fitted))))
        for epoch, module in enumerate(self.epochs_of(task, task.fitted, self.epochs), start=1):
            logits = self.logits(module, self.train[task.held_out])
            accuracy = float((logits.argmax(dim=1) == targets).float().mean())
            reached = (accuracy, -float(cross_entropy(logits, targets)))
            last_gain = epoch if accuracy > best[0] else last_gain
            if reached > best:
                best, chosen = reached, epoch
            if epoch - last_gain >= patience:
                break
        return chosen

    def epochs_of(self, task: LabelTask, fitted: Codes, epochs: int) -> Iterator[nn.Module]:
        """The module after each epoch over these training examples."""
        generator = torch.Generator().manual_seed(task.seed)
        module = self.make(generator)
        optimiser = torch.optim.Adam(module.parameters(), lr=self.rate, fused=True)
        for _ in range(epochs):
            module.train()
            order = torch.randperm(len(fitted), generator=generator)
            for part in order.tensor_split(batch_count(len(fitted))):
                places = fitted[part.numpy()]
                logits = module(*self.batches(self.train[places]))
                loss = cross_entropy(logits, torch.from_numpy(task.train[places]))
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            yield module

    def logits(self, module: nn.Module, examples: Codes) -> Tensor:
        """The logits of these examples, (N, classes)."""
        module.eval()
        with torch.no_grad():
            parts = [
                module(*self.batches(examples[start : start + TEST_BATCH]))
                for start in range(0, len(examples), TEST_BATCH)
            ]
        return torch.cat(parts)


def batch_count(examples: int) -> int:
    """How many batches an epoch has. They are nearly equal, because batch norm needs more than one example."""
    return -(-examples // BATCH)


def attention_probe(positions: Positions, train: Codes, test: Codes, task: LabelTask, epochs: int) -> ProbeFit:
    """The attention probe on the positions of one readout; `train` and `test` are places of examples in it."""
    training = Training(
        lambda generator: AttentionProbe(positions.width, len(task.classes), generator),
        lambda examples: positions.batch(examples.tolist()),
        train, epochs, PATIENCE, LEARNING_RATE,
    )  # fmt: skip
    module, chosen = training.fit(task)
    heads = head_count(positions.width)
    note = "" if heads == HEADS else f"{heads} heads, because {HEADS} do not divide the width {positions.width}"
    return ProbeFit(training.logits(module, test).argmax(dim=1).numpy(), {"epochs": chosen}, note=note)


def weighted_sum_probe(layers: Sequence[NDArray[np.float32]], train: Codes, test: Codes, task: LabelTask) -> ProbeFit:
    """The weighted sum of layers, from the vectors (N, D) of each.

    SUPERB sums the layers of every position and then takes the mean over positions. Both are linear, so the sum of the
    layers' means is the same.
    """
    stacked = torch.from_numpy(np.stack(layers, axis=1))  # (N, L, D)
    training = Training(
        lambda generator: WeightedSumProbe(stacked.shape[1], stacked.shape[2], len(task.classes)),
        lambda examples: (stacked[torch.from_numpy(examples)],),
        train, WEIGHTED_SUM_EPOCHS, WEIGHTED_SUM_PATIENCE, WEIGHTED_SUM_RATE,
    )  # fmt: skip
    module, chosen = training.fit(task)
    assert isinstance(module, WeightedSumProbe)
    predicted = training.logits(module, test).argmax(dim=1).numpy()
    return ProbeFit(predicted, {"epochs": chosen}, weights=module.weights.detach().tolist())
