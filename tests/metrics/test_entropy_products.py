"""Prompt entropy by matrix products: within 0.001 nats of float64, chosen by name, never mixed with exact numbers."""

import json

import pytest
import torch

import layerwise
from layerwise.core.errors import InputError, RunError
from layerwise.metrics.ops import entropy_products
from layerwise.metrics.ops.entropy_products import SMALLEST_SIZE, entropy_by_products, fitted_coefficients
from layerwise.metrics.prompt_entropy import prompt_entropy
from layerwise.verbs.scan import entropy_route

TOLERANCE = 1e-3  # nats, as promised in docs/metrics.md
SIZE = 160
SPECTRA = {
    "flat": torch.ones(SIZE),
    "linear": torch.arange(1.0, SIZE + 1),
    "power law": torch.arange(1.0, SIZE + 1) ** -1.5,
    "exponential": torch.exp(-torch.arange(SIZE) / 10),
    "attention sink": torch.cat([torch.tensor([1e4]), torch.ones(SIZE - 1)]),
    "strong sink": torch.cat([torch.tensor([1e7]), torch.arange(1.0, SIZE)]),
    "more large ones than are taken out": torch.cat([torch.full((20,), 100.0), torch.ones(SIZE - 20)]),
    "rank 3": torch.cat([torch.tensor([3.0, 2.0, 1.0]), torch.zeros(SIZE - 3)]),
    "rank 1": torch.cat([torch.tensor([1.0]), torch.zeros(SIZE - 1)]),
    "half rank": torch.cat([torch.ones(SIZE // 2), torch.zeros(SIZE - SIZE // 2)]),
}


def entropy_of(values):
    p = values.double() / values.double().sum()
    return float(-(p[p > 0] * p[p > 0].log()).sum())


def with_spectrum(values, seed=0):
    noise = torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(seed))
    basis = torch.linalg.qr(noise.double()).Q
    return (basis * values.double()) @ basis.mT


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_kind_of_spectrum(name, dtype):
    found = entropy_by_products(with_spectrum(SPECTRA[name])[None].to(dtype))
    assert found.dtype == dtype
    assert float(found) == pytest.approx(entropy_of(SPECTRA[name]), abs=TOLERANCE)


def test_scale_batch_and_order_do_not_matter():
    grams = torch.stack([with_spectrum(SPECTRA[name], seed) for seed, name in enumerate(SPECTRA)]).float()
    together = entropy_by_products(grams)
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(1))
    for gram, value in zip(grams, together, strict=True):
        assert float(entropy_by_products(gram)) == pytest.approx(float(value), abs=1e-5)
        assert float(entropy_by_products(1000 * gram[None])) == pytest.approx(float(value), abs=1e-5)
        assert float(entropy_by_products(gram[order][:, order])) == pytest.approx(float(value), abs=1e-3)


def test_zero_matrices_have_no_entropy_and_small_ones_are_solved_exactly():
    grams = torch.stack([torch.zeros(SIZE, SIZE), torch.eye(SIZE)])
    zero, one = entropy_by_products(grams)
    assert torch.isnan(zero) and float(one) == pytest.approx(entropy_of(torch.ones(SIZE)), abs=TOLERANCE)
    small = with_spectrum(torch.arange(1.0, 9))
    assert 8 < SMALLEST_SIZE
    assert float(entropy_by_products(small)) == pytest.approx(entropy_of(torch.arange(1.0, 9)), abs=1e-9)


def test_the_polynomial_is_near_the_function_everywhere():
    x = torch.cat([torch.logspace(-8, -2, 500), torch.linspace(0.01, 1, 2000)]).double()
    degree = entropy_products.STEPS**2
    j = torch.arange(degree + 1, dtype=torch.float64)
    terms = torch.cos(torch.arccos(2 * x - 1)[:, None] * j) - (-1.0) ** j
    found = terms @ torch.tensor(fitted_coefficients(degree), dtype=torch.float64)
    assert float((found + x * x.log()).abs().max()) < 1.2e-4


def test_padding_and_short_prompts():
    torch.manual_seed(0)
    tokens, mask = torch.randn(3, 120, 200), torch.ones(3, 120, dtype=torch.bool)
    mask[1, 100:], mask[2, 1:] = False, False
    tokens[1, 100:] = float("nan")  # padding may hold anything
    exact, products = (prompt_entropy(tokens, mask, entropy=route) for route in ("exact", "products"))
    assert torch.allclose(exact[:2], products[:2], atol=TOLERANCE) and torch.isnan(products[2])


def test_a_scan_by_products_is_near_the_exact_one_and_never_resumes_it(tiny_llama, tmp_path, monkeypatch):
    monkeypatch.setattr(entropy_products, "SMALLEST_SIZE", 25)  # the model is 32 wide
    texts = [" ".join(f"w{(7 * i + j * j) % 90}" for j in range(50 + i)) for i in range(4)]
    tables = {
        route: layerwise.scan(tiny_llama, texts, metrics="prompt_entropy", out=tmp_path / route, entropy=route)
        for route in ("exact", "products", "auto")
    }
    values = {route: [row.value for row in table] for route, table in tables.items()}
    assert values["products"] == pytest.approx(values["exact"], abs=TOLERANCE) and values["auto"] == values["exact"]
    settings = [json.loads((tmp_path / route / "run.json").read_text())["plan"] for route in ("products", "exact")]
    assert settings[0]["entropy"] == "products" and "entropy" not in settings[1]
    assert len({row.settings_hash for table in (tables["products"], tables["exact"]) for row in table}) == 2
    with pytest.raises(RunError, match="entropy"):
        layerwise.scan(tiny_llama, texts, metrics="prompt_entropy", out=tmp_path / "products", entropy="exact")


def test_auto_times_both_where_the_device_is_not_a_cpu(tmp_path, monkeypatch):
    """No accelerator is at hand: the device is a stand-in, and so are the times."""
    gpu = torch.device("cuda")
    monkeypatch.setattr(entropy_route, "device_of", lambda model: gpu)
    monkeypatch.setattr(entropy_route, "faster_route", lambda device, size: "products" if size > 200 else "exact")
    assert entropy_route.chosen_route("auto", None, 512, None) == "products"
    assert entropy_route.chosen_route("auto", None, 64, tmp_path / "new") == "exact"
    assert entropy_route.chosen_route("exact", None, 512, None) == "exact"


def test_auto_goes_on_as_a_run_began(tiny_llama, tmp_path, monkeypatch):
    layerwise.scan(tiny_llama, ["w1 w2 w3"], metrics="prompt_entropy", out=tmp_path / "run", entropy="products")
    monkeypatch.setattr(entropy_route, "device_of", lambda model: torch.device("cuda"))
    monkeypatch.setattr(entropy_route, "faster_route", lambda device, size: pytest.fail("timed again"))
    assert entropy_route.chosen_route("auto", None, 512, tmp_path / "run") == "products"


def test_timing_runs_here():
    assert entropy_route.faster_route(torch.device("cpu"), 256) in ("exact", "products")


def test_a_wrong_name_is_refused(tiny_llama):
    with pytest.raises(InputError, match="entropy"):
        layerwise.scan(tiny_llama, ["w1 w2"], entropy="fast")
