"""The examples of training run, in a setting that is smaller still."""

import json
import sys

import pandas as pd
import pytest
from places import ROOT

import layerwise

sys.path.insert(0, str(ROOT / "examples" / "training"))
TINY = {"layers": 2, "width": 16, "vocabulary": 300, "block": 24, "batch": 4, "steps": 3, "texts": 6, "paragraphs": 50}


@pytest.fixture(scope="module")
def wikitext_like(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wikitext")
    rows = [" = Heading = ", ""] + [" ".join(f"word{(i * j) % 37} and" for j in range(40)) for i in range(30)]
    for split in ("train", "validation"):
        pd.DataFrame({"text": rows}).to_parquet(folder / f"{split}.parquet")
    return folder


@pytest.mark.parametrize(
    "family, layer_loss", [("gpt_neox", 0.0), ("gpt_neox", 1.0), ("modernbert", 0.0), ("mamba", 0.0)]
)
def test_a_language_model_trains_and_its_layers_are_kept(tmp_path, wikitext_like, family, layer_loss):
    pytest.importorskip("tensorboard")
    import wikitext

    result = wikitext.train(family, wikitext_like, tmp_path, size=TINY, layer_loss=layer_loss)
    assert json.loads((tmp_path / "result.json").read_text()) == result and result["validation_loss"] > 0
    assert [p.name for p in sorted((tmp_path / "layers").iterdir())] == [f"step{i:06d}" for i in (0, 1, 2, 3)]
    table = layerwise.Run.open(tmp_path / "layers" / "step000003").table
    assert {score.layer for score in table} == {0, 1, 2}
    again = layerwise.scan(tmp_path / "model", ["word1 and word2 and word3", "word4 and word7"], metrics="curvature")
    assert len(again) > 0 and [*(tmp_path / "board").rglob("events*")]


def test_scans_are_dense_early_in_a_training():
    import wikitext

    assert wikitext.scan_steps(64) == [1, 2, 4, 8, 16, 32, 40, 48, 56, 64]


def test_a_fine_tune_ends_with_the_comparison_of_its_layers(tmp_path, tiny_bert, word_texts):
    pytest.importorskip("sentence_transformers")
    import finetune

    rows = {"sentence1": word_texts[:20], "sentence2": word_texts[20:40], "score": [i / 20 for i in range(20)]}
    pd.DataFrame(rows).to_parquet(tmp_path / "pairs.parquet")
    (tmp_path / "texts.txt").write_text("\n".join(word_texts))
    said = finetune.fine_tune(tiny_bert, tmp_path / "pairs.parquet", tmp_path / "texts.txt", tmp_path / "out", 2, 4)
    assert "step000000" in said and "prompt" in said
    assert (tmp_path / "out" / "model" / "modules.json").exists()
