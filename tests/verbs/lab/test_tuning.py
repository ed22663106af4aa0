"""The short trainings of the figures: their losses against other computations, and what a call leaves behind."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from families import make_config, make_tokenizer
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM

from layerwise.core.errors import InputError
from layerwise.models.spec import ModelSpec
from layerwise.verbs.lab.reproduce.tuning import (
    TEMPERATURE,
    Tuning,
    contrastive_loss,
    next_token_loss,
    rate_share,
    tune_once,
    two_parts,
)  # fmt: skip

HOW = Tuning("next_token", steps=12, batch_size=4, tokens=8, learning_rate=3e-3)
TEXTS = [" ".join(f"w{(5 * i + j) % 30}" for j in range(20)) for i in range(60)]


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    """A tiny decoder whose head is its embeddings."""
    folder = tmp_path_factory.mktemp("models") / "tied"
    torch.manual_seed(0)
    config = make_config("llama")
    config.tie_word_embeddings = True
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def test_the_loss_by_next_tokens_is_that_of_transformers_and_padding_does_not_count(tied):
    model = AutoModelForCausalLM.from_pretrained(tied).eval()
    rows = [[5, 6, 7, 8, 9, 10], [11, 12, 13]]
    with torch.no_grad():
        ours = next_token_loss(model, rows, 5, torch.Generator())
        kept = [torch.tensor([row[:5]]) for row in rows]
        sums = [float(model(input_ids=row, labels=row).loss) * (row.shape[1] - 1) for row in kept]
    assert float(ours) == pytest.approx(sum(sums) / sum(row.shape[1] - 1 for row in kept), rel=1e-5)


def test_the_contrastive_loss_is_that_of_numpy(tied):
    model = AutoModel.from_pretrained(tied).eval()
    rows = [[3 + (7 * i + j) % 60 for j in range(10 + i)] for i in range(4)]
    ours = contrastive_loss(model, rows, 4, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    parts = [two_parts(row, 4, generator) for row in rows]
    with torch.no_grad():
        means = [[model(torch.tensor([side])).last_hidden_state[0].double().mean(0).numpy() for side in pair]
                 for pair in parts]  # fmt: skip
    left, right = (np.stack([pair[k] / np.linalg.norm(pair[k]) for pair in means]) for k in (0, 1))
    scores = left @ right.T / TEMPERATURE
    losses = [np.log(np.exp(scores).sum(axis)) - np.diag(scores) for axis in (0, 1)]
    assert ours.item() == pytest.approx(np.mean(losses), rel=1e-4)


def test_two_parts_are_whole_and_do_not_overlap_and_every_start_is_possible():
    generator = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(300):
        left, right = two_parts(list(range(11)), 4, generator)
        assert left == list(range(left[0], left[0] + 4)) and right == list(range(right[0], right[0] + 4))
        assert left[-1] < right[0]
        seen.add((left[0], right[0]))
    assert {start for start, _ in seen} == {0, 1, 2, 3} and {start for _, start in seen} == {4, 5, 6, 7}


def test_the_rate_rises_and_falls():
    shares = [rate_share(step, 20) for step in range(20)]
    assert shares[0] == 0.5 and max(shares) == 1 and shares[-1] == pytest.approx(1 / 18)
    assert rate_share(0, 1) == 1


@pytest.mark.parametrize("objective", ["next_token", "contrastive"])
def test_training_lowers_the_loss_on_texts_that_it_did_not_see_and_is_repeatable(tied, tmp_path, objective):
    how = replace(HOW, objective=objective)
    first = tune_once(ModelSpec(str(tied)), TEXTS, how, tmp_path / "a")
    assert first.after < first.before and first.texts == len(TEXTS) - 8 * how.batch_size
    assert tune_once(ModelSpec(str(tied)), TEXTS, how, tmp_path / "b") == first
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("a", "b")]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert AutoModel.from_pretrained(tmp_path / "a")


def test_a_finished_training_is_read_and_a_changed_one_is_made_again(tied, tmp_path):
    spec, file = ModelSpec(str(tied)), tmp_path / "a" / "model.safetensors"
    made = tune_once(spec, TEXTS, HOW, tmp_path / "a")
    changed = file.stat().st_mtime_ns
    assert tune_once(spec, TEXTS, HOW, tmp_path / "a") == made and file.stat().st_mtime_ns == changed
    for texts, how in ((TEXTS[1:], HOW), (TEXTS, replace(HOW, seed=1))):
        tune_once(spec, texts, how, tmp_path / "a")
        assert file.stat().st_mtime_ns > changed
        changed = file.stat().st_mtime_ns
    assert json.loads((tmp_path / "a" / "tuning.json").read_text())["made_from"]["seed"] == 1


def test_a_model_without_its_head_and_too_few_texts_are_refused(tied, tmp_path):
    config = make_config("llama")
    config.tie_word_embeddings = False
    AutoModel.from_config(config).save_pretrained(tmp_path / "headless")
    make_tokenizer().save_pretrained(tmp_path / "headless")
    with pytest.raises(InputError, match="lacks weights that training by next_token needs: lm_head.weight"):
        tune_once(ModelSpec(str(tmp_path / "headless")), TEXTS, HOW, tmp_path / "out")
    with pytest.raises(InputError, match="33 long enough texts are too few to train on with batches of 4"):
        tune_once(ModelSpec(str(tied)), TEXTS[:33], HOW, tmp_path / "out")
    assert not (tmp_path / "out" / "tuning.json").exists()
