"""Measured numbers of studies/serve: its tables and sentences are made again from the CSV files and must stand in the
page."""

import importlib.util

import pandas as pd
import pytest
from places import ROOT

SERVE = ROOT / "studies" / "serve"


def page() -> str:
    """The README as one line: where it is wrapped does not matter."""
    return " ".join((SERVE / "README.md").read_text().split())


def csv(name: str) -> pd.DataFrame:
    return pd.read_csv(SERVE / f"{name}.csv")


def claims_about_runtimes():
    table = csv("differences")
    assert (table.texts == 100).all()
    table["largest"] = table[["padded", "alone"]].max(axis=1) / table.largest_entry
    exact = table[(table.precision == "float32") & (table.runtime != "transformers.js")]
    assert {"sentence-transformers", "ONNX Runtime", "OpenVINO"} < set(exact.runtime)
    yield f"differ by at most {exact.largest.max():.1e} of the largest entry"
    node = table[table.runtime == "transformers.js"]
    yield f"differs by at most {(node.uncut / node.largest_entry).max():.1e} on texts that fit"
    yield f"by up to {node.largest.max():.3f} (cosine {node.min_cosine.min():.3f} at least) on longer ones"
    lowest = table.groupby(["runtime", "precision"]).min_cosine.min()
    half, small = (lowest["llama.cpp", name] for name in ("float16", "q8_0"))
    assert half >= 0.9999
    yield f"cosine of at least {half:.6f} in float16 and {small:.4f} in q8_0"


def claims_about_int8():
    table = csv("differences")
    table = table[(table.precision == "int8") & (table["transform"] == "none")]
    for model, value in table.set_index("model").min_cosine.items():
        if " " not in model:
            yield f"{value:.3f} for {model}"
    changes = csv("quantised")
    small = changes[changes.model.isin(["all-minilm-l6-v2", "gte-small"])]
    (beyond,) = [row for row in small.itertuples() if row.low > 0 or row.high < 0]
    assert len(small) == 12
    yield f"by {small.change.min():+.1f} to {small.change.max():+.1f} points"
    large = changes[(changes.model == "all-mpnet-base-v2") & (changes.task == "WikiQA")].iloc[0]
    yield f"int8 loses {-large.change:.1f} points ({-large.high:.1f} to {-large.low:.1f}) on WikiQA"
    yield f"one of the 12 changes ({beyond.model}, {beyond.task}, {beyond.precision}: {beyond.change:+.1f})"


def claims_about_speed():
    table = csv("latency").set_index(["model", "runtime", "precision", "which"])
    for model in table.index.unique("model"):
        fast = table.loc[(model, "ONNX Runtime", "int8", "cut")]
        yield f"{fast.cpu:.1f} times ({fast.cpu_low:.1f} to {fast.cpu_high:.1f}) for {model}"


def claims_about_servable():
    table = csv("servable").set_index(["model", "against"])
    for model, name in (("smollm2-135m", "SmolLM2-135M"), ("gemma3-270m", "Gemma3-270M")):
        cost = table.loc[(model, "all_dimensions")]
        yield f"{-cost.difference:.1f} points ({-cost.high:.1f} to {-cost.low:.1f}) for {name}"


def claims_of_the_serving_page():
    table = csv("differences").set_index(["model", "transform", "precision"]).min_cosine.sort_index()
    names = {"all-minilm-l6-v2": "all-MiniLM-L6-v2, layer 3", "gte-small": "gte-small, layer 8",
             "smollm2-135m": "SmolLM2-135M, layer 15"}  # fmt: skip
    for model, words in names.items():
        int8, q8 = (table[model, "none", precision].item() for precision in ("int8", "q8_0"))
        yield f"| {words} | {int8:.3f} | {q8:.4f} |"
    yield f"| all-mpnet-base-v2, layer 9 | **{table['all-mpnet-base-v2', 'none', 'int8'].item():.3f}** |"
    int8, q8 = (table["smollm2-135m", "remove_top:3", precision].item() for precision in ("int8", "q8_0"))
    yield f"| the same, with the map `remove_top:3` | **{int8:.3f}** | {q8:.4f} |"
    changes = csv("quantised")
    small = changes[changes.model.isin(["all-minilm-l6-v2", "gte-small"])]
    yield f"change by {small.change.min():+.1f} to {small.change.max():+.1f} points"
    large = changes[(changes.model == "all-mpnet-base-v2") & (changes.task == "WikiQA")].iloc[0]
    yield f"loses {-large.change:.1f} points ({-large.high:.1f} to {-large.low:.1f}) on WikiQA"
    yield from claims_about_servable()


def test_the_numbers_of_the_serving_page_are_in_the_csv_files():
    text = " ".join((ROOT / "docs" / "serve.md").read_text().split())
    missing = [claim for claim in claims_of_the_serving_page() if claim not in text]
    assert not missing, "\n".join(missing)


CLAIMS = [claims_about_runtimes, claims_about_int8, claims_about_speed, claims_about_servable]


@pytest.mark.parametrize("claims", CLAIMS)
def test_what_the_page_says_of_serving_is_in_the_csv_files(claims):
    text = page()
    missing = [claim for claim in claims() if claim not in text]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("name", ["certificates", "differences", "latency", "quantised", "servable"])
def test_the_tables_of_serving_are_those_of_the_csv_files(name):
    spec = importlib.util.spec_from_file_location("serve_table", SERVE / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.block(name) in (SERVE / "README.md").read_text()
