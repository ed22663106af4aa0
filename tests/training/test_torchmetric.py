"""as_torchmetric: the numbers of scan, in a MetricCollection; test_training.py has the sync over processes."""

import copy

import pytest
import torch
from families import make_model, make_tokenizer

import layerwise
from layerwise.core.errors import InputError
from layerwise.training import as_torchmetric
from layerwise.training import torchmetric as module

torchmetrics = pytest.importorskip("torchmetrics")
WITHOUT_VIEWS = [metric.name for metric in layerwise.CATALOG if not metric.reading(metric.rows[0]).views]


def test_a_collection_over_batches_gives_what_scan_gives(word_texts):
    model, tokenizer = make_model("llama"), make_tokenizer()
    table = layerwise.scan((model, tokenizer), word_texts, metrics=WITHOUT_VIEWS, layers=[2])
    collection = torchmetrics.MetricCollection({name: as_torchmetric(name) for name in WITHOUT_VIEWS})
    tokenizer.padding_side = "right"
    for start in range(0, len(word_texts), 11):
        batch = tokenizer(word_texts[start : start + 11], padding=True, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch, output_hidden_states=True).hidden_states[2]
        collection.update(hidden, batch["attention_mask"])
    found = collection.compute()
    assert len(found) >= 9
    for name, value in found.items():
        (score,) = table.where(metric=name, rows=next(m for m in layerwise.CATALOG if m.name == name).rows[0])
        assert value.item() == pytest.approx(score.value, rel=1e-4), name


def test_forward_reset_clone_and_state_dict_follow_torchmetrics():
    rows = torch.randn(12, 1, 5)
    metric = as_torchmetric("effective_rank", rows="centered")
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert metric.compute().isnan()
    metric.reset()
    one, two = metric(rows[:7]).item(), metric(rows[7:]).item()  # of each batch alone
    assert one == pytest.approx(layerwise.functional.effective_rank(rows[:7, 0], rows="centered").item(), rel=1e-5)
    assert two == pytest.approx(layerwise.functional.effective_rank(rows[7:, 0], rows="centered").item(), rel=1e-5)
    whole = layerwise.functional.effective_rank(rows[:, 0], rows="centered").item()
    assert metric.compute().item() == pytest.approx(whole, rel=1e-5)
    assert metric.clone().compute().item() == metric.compute().item()
    metric.reset()
    metric.update(rows[:7])
    assert metric.compute().item() == pytest.approx(one)


def test_updates_go_to_a_live_accumulator_and_bytes_are_made_only_when_asked_for(monkeypatch):
    made = []
    real = module.as_bytes
    monkeypatch.setattr(module, "as_bytes", lambda kept: made.append(1) or real(kept))
    metric, rows = as_torchmetric("effective_rank"), torch.randn(12, 1, 5)
    for row in rows:
        metric.update(row[None])
    value = metric.compute().item()
    assert not made, "nothing is gathered, copied or saved"
    copies = [metric.clone(), copy.deepcopy(metric)]
    assert len(made) == 1, "the bytes are those of the last update"
    metric.update(rows)
    for other in copies:
        assert other.compute().item() == pytest.approx(value), "a copy does not share the accumulator"
        other.update(rows)
        assert other.compute().item() == pytest.approx(metric.compute().item())
    metric.states = [*metric.states, *copies[0].states]  # what torchmetrics does with those of two processes
    assert metric.compute().item() == pytest.approx(copies[1].compute().item())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"metric": "lidar"}, "views"),
        ({"metric": "effectiv_rank"}, "did you mean effective_rank"),
        ({"metric": "effective_rank", "rows": "cnetered"}, "did you mean centered"),
    ],
)
def test_what_cannot_be_used_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        as_torchmetric(**options)
    with pytest.raises(InputError, match="shapes"):
        as_torchmetric("effective_rank").update(torch.zeros(2, 3))
