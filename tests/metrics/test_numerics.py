"""float32 against float64 on the same hidden states of real decoders, whose attention sinks carry nearly all of a Gram
matrix's trace: what is left for the other directions is small, and must not be taken for rounding noise."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from matrices import normal

import layerwise
from layerwise import functional as F
from layerwise.inputs.perturbations.changes import ViewPlan
from layerwise.metrics.ops import spectrum as spectra
from layerwise.models.load import ModelSpec, load_network
from layerwise.passes.batches import make_batch, network_processor
from layerwise.passes.tapped_pass import run_batch
from layerwise.runs.identity import DataRef
from layerwise.verbs.scan.plan import ScanPlan, choose_metrics
from layerwise.verbs.scan.rows import layer_scores
from layerwise.verbs.scan.state import ScanState
from layerwise.verbs.scan.worker import PromptValues, ReadingConsumer

DECODERS = ("smollm2-135m", "gemma3-270m")
network_of = functools.cache(lambda folder: load_network(ModelSpec(folder)))


@functools.cache
def paragraphs(folder, data):
    """24 paragraphs that have at least 128 tokens."""
    kept = {"only": "wikitext", "min_tokens": 128, "tokenizer": network_of(folder).tokenizer}
    return tuple(layerwise.texts(data, limit=24, **kept))


def batch_of(folder, data, length, prompts, views=0):
    """A batch of paragraphs, all cut to `length` tokens."""
    network, texts = network_of(folder), paragraphs(folder, data)[:prompts]
    return make_batch(network, network_processor(network).prepare(texts, length, ViewPlan(views=views)))


class Keep:
    """A consumer that keeps the hidden states of every layer."""

    def __init__(self):
        self.layers = {}

    def on_layer(self, number, hidden, batch, point=""):
        self.layers[number] = hidden[:, 0].clone()  # (B, T, D)

    def keep(self, batch):
        pass

    def finish(self, batch):
        pass

    def discard(self):
        pass


@functools.cache
def hidden_states(folder, data, length, prompts=3):
    network, kept = network_of(folder), Keep()
    run_batch(network, batch_of(folder, data, length, prompts), range(network.depth + 1), kept)
    return kept.layers


def allowed(exact):
    """0.1 %, or 1e-4 where the value is below 0.1."""
    return np.where(np.abs(exact) < 0.1, 1e-4, 1e-3 * np.abs(exact))


def assert_all_close(found):
    """found: (where, value in float32, value in float64), all of them shown where one is too far off."""
    bad = [f"{where}: {single:.6g} instead of {exact:.6g}" for where, single, exact in found
           if not abs(single - exact) <= allowed(exact)]  # fmt: skip
    assert not bad, "\n".join(bad)


def treated(z, rows):
    """float64 by NumPy, apart from the code under test."""
    z = z.double().numpy()
    if rows == "centered_unit":
        z = z - z.mean(axis=0)
        z = z / np.linalg.norm(z, axis=1, keepdims=True)
    return z


def shares_of(z, rows):
    values = np.linalg.eigvalsh(treated(z, rows) @ treated(z, rows).T).clip(min=0)
    return values[values > 0] / values.sum()


def exact_entropy(z, rows, alpha=1.0):
    p = shares_of(z, rows)
    return -(p * np.log(p)).sum() if alpha == 1 else np.log((p**alpha).sum()) / (1 - alpha)


@pytest.mark.real
@pytest.mark.parametrize("rows", ["raw", "unit", "centered", "centered_unit"])
@pytest.mark.parametrize("model", DECODERS)
def test_entropy_by_products_at_every_layer(real_model, shared, model, rows):
    """What docs/metrics.md promises for matrix products, at a size where they are used."""
    for layer, hidden in hidden_states(real_model(model), shared("data/wikitext2/test.parquet"), 128).items():
        mask = torch.ones(hidden.shape[:2], dtype=torch.bool)
        exact = F.prompt_entropy(hidden.double(), mask, rows=rows)
        found = F.prompt_entropy(hidden, mask, rows=rows, entropy="products")
        assert float((found - exact).abs().max()) < 1e-3, layer


@pytest.mark.parametrize("rows", ["raw", "centered_unit"])
@pytest.mark.parametrize("length", [37, 128])
@pytest.mark.parametrize("model", DECODERS)
def test_prompt_entropy_in_float32_is_that_of_float64_at_every_layer(model, length, rows, real_model, shared):
    found = []
    for layer, hidden in hidden_states(real_model(model), shared("data/wikitext2/test.parquet"), length).items():
        mask = torch.ones(hidden.shape[:2], dtype=torch.bool)
        plain, normalized = (f(hidden, mask, rows=rows) for f in (F.prompt_entropy, F.normalized_prompt_entropy))
        for prompt, z in enumerate(hidden):
            exact, where = exact_entropy(z, rows), f"layer {layer}, prompt {prompt}"
            found.append((where, float(plain[prompt]), exact))
            bound = np.log(length - (1 if rows == "centered_unit" else 0))
            found.append((f"{where}, normalised, in nats", float(normalized[prompt]) * bound, exact))
    assert_all_close(found)


class Twice:
    """Hands the same hidden states to two consumers: as they come, and in float64."""

    def __init__(self, single, exact):
        self.single, self.exact = single, exact

    def on_layer(self, number, hidden, batch, point=""):
        self.single.on_layer(number, hidden, batch)
        self.exact.on_layer(number, hidden.double(), batch)

    def keep(self, batch):
        self.single.keep(batch)
        self.exact.keep(batch)

    def finish(self, batch):
        self.single.finish(batch)
        self.exact.finish(batch)

    def discard(self):
        pass


VIEWED = "infonce,dime,lidar"


@pytest.mark.parametrize(("metrics", "prompts", "length"), [("fast", 24, 64), (VIEWED, 8, 16)])
@pytest.mark.parametrize("model", DECODERS)
def test_every_metric_in_float32_is_that_of_float64_at_every_layer(model, metrics, prompts, length, real_model, shared):
    folder, data = real_model(model), shared("data/wikitext2/test.parquet")
    network = network_of(folder)
    chosen = tuple(replace(metric, interval_source=None) for metric in choose_metrics(metrics))  # values only
    plan = ScanPlan(chosen, tuple(range(network.depth + 1)), network.depth, has_norm=False)
    consumers = [ReadingConsumer(network, plan, ScanState({}), PromptValues(), lambda *counts: None) for _ in range(2)]
    run_batch(network, batch_of(folder, data, length, prompts, plan.views), plan.layers, Twice(*consumers))
    found, identity = [], network.identity()
    for layer in plan.layers:
        singles, exacts = (layer_scores(identity, plan, c.state, DataRef("texts"), layer) for c in consumers)
        for single, exact in zip(singles, exacts, strict=True):
            found.append((f"layer {layer}, {exact.metric}", single.value, exact.value))
    assert len(found) == len(plan.layers) * len(plan.metrics)
    assert_all_close(found)


@pytest.mark.parametrize("model", DECODERS)
def test_roots_and_orders_below_one_of_float32_rows_are_those_of_float64(model, real_model, shared):
    found = []
    for layer, hidden in hidden_states(real_model(model), shared("data/wikitext2/test.parquet"), 128).items():
        z, where = hidden[0], f"layer {layer}"
        roots = np.linalg.svd(z.double().numpy(), compute_uv=False)
        p = roots / roots.sum()
        found.append((f"{where}, effective rank", float(F.effective_rank(z)), np.exp(-(p * np.log(p)).sum())))
        for alpha in (0.25, 0.5, 0.9):
            found.append((f"{where}, {alpha}", float(F.matrix_entropy(z, alpha)), exact_entropy(z, "raw", alpha)))
        for alpha in (1.5, 2):
            found.append((f"{where}, {alpha}", float(F.matrix_entropy(z, alpha)), exact_entropy(z, "raw", alpha)))
    assert_all_close(found)


def test_the_type_of_an_entropy_is_that_of_its_rows():
    z = normal(11, 7)
    for function in (F.effective_rank, *(functools.partial(F.matrix_entropy, alpha=a) for a in (0.5, 1, 2))):
        assert function(z).dtype == torch.float64
        assert function(z.float()).dtype == function(z.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("padding", [1, 91, 219])
@pytest.mark.parametrize("model", DECODERS)
def test_padding_does_not_move_an_entropy_in_float32(model, padding, real_model, shared):
    found = []
    for layer, hidden in hidden_states(real_model(model), shared("data/wikitext2/test.parquet"), 37).items():
        padded = torch.cat([hidden, torch.full((len(hidden), padding, hidden.shape[-1]), torch.nan)], dim=1)
        mask = (torch.arange(37 + padding) < 37).expand(len(hidden), -1)
        for rows in ("raw", "centered_unit"):
            values = F.prompt_entropy(padded, mask, rows=rows)
            found += [(f"layer {layer}, {rows}", float(v), exact_entropy(z, rows))
                      for v, z in zip(values, hidden, strict=True)]  # fmt: skip
    assert_all_close(found)


@pytest.mark.parametrize("length", [2, 37, 128, 512])
def test_one_token_repeated_has_no_entropy(length):
    z = normal(1, 576).float().expand(1, length, 576)
    mask = torch.ones(1, length, dtype=torch.bool)
    assert 0 <= float(F.prompt_entropy(z, mask)) < 1e-4
    assert float(F.effective_rank(z[0])) == pytest.approx(1, abs=1e-4)
    assert torch.isnan(F.prompt_entropy(z, mask, rows="centered_unit"))


def test_the_steadiest_way_to_eigenvalues_keeps_their_signs(monkeypatch):
    """A negative eigenvalue is rounding noise; its size must not come back as a positive one."""
    gram = torch.diag(torch.tensor([4.0, -1e-6, 1.0]))

    def fails(gram):
        raise torch.linalg.LinAlgError("failed to converge")

    monkeypatch.setattr(spectra.torch.linalg, "eigvalsh", fails)
    assert spectra.eigenvalues(gram, 3).tolist() == pytest.approx([0, 1, 4], abs=1e-12)
