"""Losses on layers: equal to our metrics and to numpy, right gradients, and in a training exactly what they say."""

from functools import partial

import numpy as np
import pytest
import torch
from families import FAMILIES, make_model, make_tokenizer
from test_training import CHECKPOINTING, make_causal, make_trainer
from torch.utils.checkpoint import checkpoint
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import layerwise
from layerwise.core.errors import InputError
from layerwise.training import LayerLoss, entropy_loss, variance_covariance_loss

LOSSES = [
    partial(entropy_loss, over=over, alpha=alpha, rows=rows)
    for over in ("tokens", "texts")
    for alpha in (1.0, 2.0)
    for rows in ("raw", "centered")
] + [partial(variance_covariance_loss, over=over, target=2.0) for over in ("tokens", "texts")]


def batch(dtype=torch.float64):
    """Five texts of up to seven tokens; the last has only one."""
    hidden = torch.randn(5, 7, 6, dtype=dtype, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([7, 4, 6, 2, 1])
    return hidden, torch.arange(7) < lengths[:, None]


@pytest.mark.parametrize("loss", LOSSES, ids=[f"{f.func.__name__}-{f.keywords}" for f in LOSSES])
def test_the_gradient_is_that_of_finite_differences(loss):
    hidden, mask = batch()
    assert torch.autograd.gradcheck(lambda z: loss(z, mask), (hidden.requires_grad_(),), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("rows", ["raw", "unit", "centered"])
def test_the_entropy_over_tokens_is_our_prompt_entropy_and_over_texts_our_dataset_entropy(rows):
    hidden, mask = batch()
    prompts = layerwise.functional.prompt_entropy(hidden, mask, rows=rows)
    assert prompts.isnan().tolist() == [False] * 4 + [True]  # a single token has no entropy
    assert -entropy_loss(hidden, mask, alpha=1.0, rows=rows) == pytest.approx(float(prompts[:4].mean()), rel=1e-9)
    metric = layerwise.training.as_torchmetric("dataset_entropy", rows=rows)
    metric.update(hidden, mask)
    of_texts = -entropy_loss(hidden, mask, over="texts", alpha=1.0, rows=rows)
    assert float(of_texts) == pytest.approx(metric.compute().item(), rel=1e-9)


@pytest.mark.parametrize("over", ["tokens", "texts"])
def test_variance_and_covariance_are_those_of_numpy(over):
    hidden, mask = batch()
    texts = [text[kept].numpy() for text, kept in zip(hidden, mask, strict=True)]
    rows = np.concatenate(texts) if over == "tokens" else np.stack([text.mean(axis=0) for text in texts])
    covariance = np.cov(rows, rowvar=False)
    variance = np.maximum(0, 2.0 - np.sqrt(np.diag(covariance) + 1e-4)).mean()
    off_diagonal = covariance - np.diag(np.diag(covariance))
    expected = variance + 0.3 * (off_diagonal**2).sum() / 6
    found = variance_covariance_loss(hidden, mask, over=over, target=2.0, covariance_weight=0.3)
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_padding_and_texts_too_short_add_nothing():
    hidden, mask = batch()
    longer = torch.cat([hidden, torch.full((5, 3, 6), 1e6, dtype=torch.float64)], dim=1)
    padded = torch.cat([mask, torch.zeros(5, 3, dtype=torch.bool)], dim=1)
    for loss in LOSSES:
        assert float(loss(longer, padded)) == pytest.approx(float(loss(hidden, mask)), rel=1e-12)
        assert float(loss(hidden[4:], mask[4:])) == 0.0


def test_going_down_the_gradient_raises_the_effective_rank():
    hidden = torch.randn(4, 9, 8) * torch.tensor([10.0] + [0.1] * 7)
    mask = torch.ones(4, 9)
    for loss in (entropy_loss, variance_covariance_loss):
        moved = hidden.clone().requires_grad_()
        optimizer = torch.optim.Adam([moved], lr=0.05)
        for _ in range(30):
            optimizer.zero_grad()
            loss(moved, mask).backward()
            optimizer.step()
        before, after = (layerwise.functional.effective_rank(z.reshape(-1, 8)) for z in (hidden, moved.detach()))
        assert after > 1.5 * before, loss.__name__


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"mamba2", "t5"}))  # slow; a model with two stacks
def test_it_reads_the_layers_that_scan_reads(family):
    model, tokenizer = make_model(family), make_tokenizer()
    texts = ["w1 w2 w3 w4", "w5 w6", "w7 w8 w9"]
    table = layerwise.scan((model, tokenizer), texts, metrics="prompt_entropy")
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    tokens.pop("token_type_ids", None)
    model.training = True  # its blocks stay in evaluation mode, since dropout would change what they compute
    for layer in (0, 2):
        with LayerLoss(model, layers=[layer], loss=partial(entropy_loss, alpha=1.0), weight=1.0) as layer_loss:
            model(**tokens)
            found = -layer_loss.value().item()
        (score,) = table.where(layer=layer, norm="raw")
        assert found == pytest.approx(score.value, rel=1e-4), layer


@pytest.mark.parametrize("reentrant", [None, False, *([True] if CHECKPOINTING == "activation_checkpointing" else [])])
def test_a_step_adds_exactly_the_gradient_of_the_loss_on_that_layer(reentrant):
    """Without checkpointing, and with both kinds, as far as the installed transformers allows."""
    tokens = torch.randint(4, 90, (3, 6), generator=torch.Generator().manual_seed(1))

    def gradients(added):
        model = make_causal().train()
        if reentrant is not None:
            getattr(model, f"{CHECKPOINTING}_enable")({"use_reentrant": reentrant})
        with LayerLoss(model, layers=[2], weight=0.7) as layer_loss:
            output = model(input_ids=tokens, labels=tokens)
            added_loss = layer_loss.value()
        (output.loss + added_loss if added else output.loss).backward()
        return [weight.grad for weight in model.parameters()]

    model = make_causal().train()
    hidden = model(input_ids=tokens, output_hidden_states=True).hidden_states[2]
    (0.7 * entropy_loss(hidden, torch.ones(3, 6))).backward()
    for weight, plain, total in zip(model.parameters(), gradients(False), gradients(True), strict=True):
        assert torch.allclose(total, plain + (weight.grad if weight.grad is not None else 0.0), atol=1e-6)


def test_hooks_inside_of_reentrant_checkpointing_are_refused_with_the_fix(monkeypatch):
    def call(block, *args, **kwargs):  # as before transformers 5.23
        return checkpoint(partial(torch.nn.Module.__call__, block, **kwargs), *args, use_reentrant=True)

    monkeypatch.setattr(LlamaDecoderLayer, "__call__", call)
    model = make_causal().train()
    model.enable_input_require_grads()
    with LayerLoss(model, layers=[2]), pytest.raises(InputError, match="use_reentrant': False"):
        model(input_ids=torch.tensor([[5, 6, 7]]))


@pytest.mark.parametrize("steps", [1, 4])
def test_in_a_trainer_it_counts_the_same_however_many_batches_a_step_accumulates(tmp_path, word_texts, steps):
    """One step over eight equal rows: the weights must not depend on how they are split into batches."""
    row = [word_texts[5]] * 8
    trainer = make_trainer(
        tmp_path,
        row,
        max_steps=1,
        per_device_train_batch_size=8 // steps,
        gradient_accumulation_steps=steps,
        optim="sgd",
    )
    layer_loss = LayerLoss(trainer.model, layers="50%", weight=2.0).add_to(trainer)
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    moved = torch.cat(
        [(new - old).flatten() for new, old in zip(trainer.model.parameters(), before, strict=True)]
    ).detach()
    plain = make_trainer(tmp_path, row, max_steps=1, per_device_train_batch_size=8, optim="sgd")
    with LayerLoss(plain.model, layers="50%", weight=2.0) as other:
        ids = torch.tensor([plain.train_dataset[0]["input_ids"]] * 8)
        loss = plain.model.train()(input_ids=ids, labels=ids).loss + other.value()
    loss.backward()
    gradient = torch.cat(
        [w.grad.flatten() if w.grad is not None else torch.zeros(w.numel()) for w in plain.model.parameters()]
    )
    clipped = gradient / max(1.0, float(gradient.norm()))
    assert torch.allclose(moved, -1e-3 * clipped, atol=1e-7) and float(moved.norm()) > 1e-4
    assert "compute_loss" in vars(trainer)
    layer_loss.remove()
    assert "compute_loss" not in vars(trainer) and not trainer.model.model._forward_hooks


def test_evaluation_is_left_alone_and_a_missing_pass_is_an_error(tmp_path, word_texts):
    trainer = make_trainer(tmp_path, word_texts)
    plain = trainer.evaluate(trainer.train_dataset)["eval_loss"]
    layer_loss = LayerLoss(trainer.model, weight=100.0).add_to(trainer)
    assert trainer.evaluate(trainer.train_dataset)["eval_loss"] == plain
    with pytest.raises(InputError, match="training mode"):
        layer_loss.value()
    with pytest.raises(InputError, match="layer 9 does not exist"):
        LayerLoss(trainer.model, layers=[9])
