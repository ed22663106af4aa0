"""Agreement: how much an export is like the original model is measured, by numbers that NumPy and plain loops give."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig

import layerwise
from layerwise.core.errors import InputError
from layerwise.verbs.export.agreement import mean_cosine, neighbour_count, neighbour_overlap

st = pytest.importorskip("sentence_transformers")


def vectors_of(folder, texts):
    return st.SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False).astype(np.float64)


def expected_cosine(one, two):
    pairs = zip(one, two, strict=True)
    return np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs])


def expected_overlap(one, two, count):
    """By loops: the nearest others of each text in each model, and how many are the same."""

    def nearest(rows, i):
        others = [j for j in range(len(rows)) if j != i]
        cosine = {j: rows[i] @ rows[j] / np.linalg.norm(rows[i]) / np.linalg.norm(rows[j]) for j in others}
        return set(sorted(others, key=lambda j: -cosine[j])[:count])

    return np.mean([len(nearest(one, i) & nearest(two, i)) / count for i in range(len(one))])


def certificate(folder):
    return json.loads((folder / "layerwise.json").read_text())


def test_agreement_is_that_of_the_two_models_as_plain_sentence_transformers_runs_them(tiny_llama, word_texts, tmp_path):
    layerwise.export(tiny_llama, 1, tmp_path / "m", texts=word_texts)
    before, after = vectors_of(tiny_llama, word_texts), vectors_of(tmp_path / "m", word_texts)
    found = certificate(tmp_path / "m")
    assert found["schema_version"] == 1
    agreement = found["agreement"]
    assert agreement["mean_cosine"] == pytest.approx(expected_cosine(before, after), abs=1e-5)
    assert agreement["neighbour_overlap"] == pytest.approx(expected_overlap(before, after, 10), abs=1e-9)
    assert agreement["neighbour_overlap"] < 0.9, "the two models differ"
    assert (agreement["texts"], agreement["neighbours"], agreement["note"]) == (len(word_texts), 10, "")
    assert agreement["source"] == f"a list of {len(word_texts)} texts"


def test_a_copy_of_the_model_agrees_with_it_completely(tiny_llama, word_texts, tmp_path):
    layerwise.export(tiny_llama, "last", tmp_path / "m", texts=word_texts)
    agreement = certificate(tmp_path / "m")["agreement"]
    assert agreement["mean_cosine"] == pytest.approx(1, abs=1e-6) and agreement["neighbour_overlap"] == 1


@pytest.mark.parametrize(("transform", "note"), [
    ("remove_top:2", "no cosine: the map remove_top:2 gives vectors in other coordinates"),
    ("center+static", "no cosine: 64 dimensions, 32 in the original"),
])  # fmt: skip
def test_with_a_map_there_is_no_cosine_and_the_reason_is_named(tiny_llama, word_texts, tmp_path, transform, note):
    layerwise.export(tiny_llama, 2, tmp_path / "m", transform=transform, fit=word_texts, texts=word_texts)
    agreement = certificate(tmp_path / "m")["agreement"]
    assert agreement["mean_cosine"] is None and agreement["note"].startswith(note)
    before, after = vectors_of(tiny_llama, word_texts), vectors_of(tmp_path / "m", word_texts)
    assert agreement["neighbour_overlap"] == pytest.approx(expected_overlap(before, after, 10), abs=1e-9)


def test_fewer_neighbours_are_compared_where_there_are_few_texts(tiny_llama, word_texts, tmp_path):
    assert [neighbour_count(n) for n in (1, 2, 3, 5, 20, 21, 400)] == [0, 0, 1, 2, 9, 10, 10]
    layerwise.export(tiny_llama, 1, tmp_path / "few", texts=word_texts[:7])
    assert certificate(tmp_path / "few")["agreement"]["neighbours"] == 3
    layerwise.export(tiny_llama, 1, tmp_path / "two", texts=word_texts[:2])
    found = certificate(tmp_path / "two")["agreement"]
    assert found["neighbour_overlap"] is None and found["note"] == "2 texts are too few to compare neighbours"
    assert "(2 texts are too few to compare neighbours)" in (tmp_path / "two" / "README.md").read_text()


def test_the_demo_texts_are_the_default_and_at_most_500_of_ones_own_are_used(real_model, tiny_llama, tmp_path):
    layerwise.export(real_model("stories260k"), 2, tmp_path / "demo")
    found = certificate(tmp_path / "demo")["agreement"]
    assert (found["texts"], found["source"]) == (120, "demo") and found["mean_cosine"] is not None
    layerwise.export(tiny_llama, 1, tmp_path / "many", texts=[f"w{i % 89} w{i // 89}" for i in range(523)])
    assert certificate(tmp_path / "many")["agreement"]["texts"] == 500


def test_what_cannot_be_compared_is_exported_all_the_same(broken_llama, tiny_llama, word_texts, tmp_path):
    layerwise.export(broken_llama, 1, tmp_path / "nan", texts=word_texts)  # its second block gives NaN
    found = certificate(tmp_path / "nan")["agreement"]
    assert found["mean_cosine"] is None is found["neighbour_overlap"] and "NaN or infinity" in found["note"]
    layerwise.export(tiny_llama, 1, tmp_path / "unknown", texts=[f"x{i}" for i in range(40)])
    assert "40 different texts get the same tokens" in certificate(tmp_path / "unknown")["agreement"]["note"]


def test_a_file_without_texts_is_refused_before_weights_load(tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    BertConfig().save_pretrained(tmp_path / "no_weights")
    with pytest.raises(InputError, match="empty.txt"):
        layerwise.export(tmp_path / "no_weights", 1, tmp_path / "m", texts=tmp_path / "empty.txt")


def test_agreement_does_not_depend_on_the_length_of_vectors_or_a_rotation():
    rows, other = torch.randn(29, 7), torch.randn(29, 7)
    turned = torch.linalg.qr(torch.randn(7, 7)).Q
    scaled = other * torch.rand(29, 1).add(0.1)
    assert mean_cosine(rows, scaled) == pytest.approx(mean_cosine(rows, other))
    for changed in (scaled, other @ turned):
        assert neighbour_overlap(rows, changed, 5) == neighbour_overlap(rows, other, 5)
    assert neighbour_overlap(rows, rows @ turned, 5) == 1


def test_a_map_that_ships_with_the_original_has_other_coordinates_too():
    from layerwise.verbs.export.agreement import reason_without_cosine

    dense = SimpleNamespace(shipped=SimpleNamespace(modules=[SimpleNamespace(kind=k) for k in ("Pooling", "Dense")]))
    rows = torch.ones(3, 4)
    reason = reason_without_cosine(dense, layerwise.Recipe(2), rows, rows)
    assert reason == "no cosine: the original's Dense module gives vectors in other coordinates"
    shipped = layerwise.Recipe(3, "shipped", "all", "shipped")
    assert reason_without_cosine(dense, shipped, rows, rows) == ""
