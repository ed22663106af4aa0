"""Taps over every text family: layer k from the tap is that tensor read in another way."""

import shutil

import pytest
import torch
from families import DEPTH, FAMILIES, VOCABULARY, WIDTH, make_model, make_reader, make_tokenizer
from safetensors.torch import load_file, save_file
from torch import nn

import layerwise
from layerwise.core.errors import ModelError
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example
from layerwise.models.doctor import run_checks
from layerwise.models.find_blocks import find_structure
from layerwise.models.load import ModelSpec, build_network, load_network, read_model_info
from layerwise.models.taps import apply_final_norm, tapped
from layerwise.passes.vectors import pooled_vectors

NORMED = {
    "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma3_text", "phi", "opt", "falcon", "mamba",
    "mamba2", "modernbert", "t5",
}  # fmt: skip


@pytest.fixture(params=sorted(FAMILIES))
def family(request):
    return request.param


def network_of(family):
    return build_network(make_model(family), make_tokenizer(), family, part="encoder" if family == "t5" else None)


def tap_all(network, ids, mask):
    seen = {}
    with torch.inference_mode(), tapped(network.structure, range(DEPTH + 1), lambda k, h: seen.update({k: h.clone()})):
        network.forward({"input_ids": ids, "attention_mask": mask.long()})
    return seen


def read_otherwise(network, family, ids, mask):
    """Every layer without taps: from hidden_states where they are what they claim, else by taking the norm out."""
    module = network.module
    with torch.inference_mode():
        out = module(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True)
        states = list(out.hidden_states)
        if family in ("mamba", "mamba2"):  # hidden_states begin after block 1 there
            states = [module.embeddings(ids), *states]
        layers = dict(enumerate(states[:DEPTH]))
        norm = network.structure.final_norm
        if norm is None:
            return layers | {DEPTH: out.last_hidden_state}, None
        name = next(name for name, part in module.named_modules() if part is norm)
        module.set_submodule(name, nn.Identity())
        raw = module(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        module.set_submodule(name, norm)
    return layers | {DEPTH: raw}, out.last_hidden_state


def inputs():
    ids = torch.randint(4, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 5:] = False
    return ids.masked_fill(~mask, 0), mask


def test_layer_k_is_the_output_of_block_k(family):
    network, (ids, mask) = network_of(family), inputs()
    tapped_layers = tap_all(network, ids, mask)
    expected, last = read_otherwise(network, family, ids, mask)
    assert sorted(tapped_layers) == list(range(DEPTH + 1))
    for k in range(DEPTH + 1):
        torch.testing.assert_close(tapped_layers[k], expected[k], rtol=1e-5, atol=1e-5, msg=f"{family}, layer {k}")
    different = [not torch.allclose(tapped_layers[k], tapped_layers[k + 1], atol=1e-3) for k in range(DEPTH)]
    assert all(different), "layers must differ, or this test proves nothing"
    assert (network.structure.final_norm is not None) == (family in NORMED)
    if last is not None:
        with torch.inference_mode():
            torch.testing.assert_close(
                apply_final_norm(network.structure, tapped_layers[DEPTH]), last, rtol=1e-5, atol=1e-5
            )
        assert not torch.allclose(tapped_layers[DEPTH], last, atol=1e-2), "the norm must matter here"


def test_a_pass_gives_the_same_vectors_alone_and_padded_in_a_batch(family):
    network = network_of(family)
    examples = [Example(str(i), " ".join(f"w{(7 * i + j) % 90}" for j in range(2 + 3 * i))) for i in range(5)]
    readouts = [Readout(k) for k in range(DEPTH + 1)]
    many = pooled_vectors(network, examples, readouts, max_length=60, batch_tokens=1000)
    alone = pooled_vectors(network, examples, readouts, max_length=60, batch_tokens=1)
    for readout in readouts:
        assert many[readout].shape == (5, WIDTH)
        torch.testing.assert_close(many[readout], alone[readout], rtol=1e-4, atol=1e-4)


def test_stopping_early_changes_nothing(family):
    network, examples = network_of(family), [Example("a", "w1 w2 w3")]
    whole = pooled_vectors(network, examples, [Readout(1), Readout(DEPTH)], max_length=60)[Readout(1)]
    early = pooled_vectors(network, examples, [Readout(1)], max_length=60)[Readout(1)]
    assert torch.equal(whole, early)


def test_the_doctor_finds_nothing_wrong(family):
    findings = list(run_checks(network_of(family)))
    assert [f for f in findings if f.verdict == "wrong"] == []
    assert {"layers", "final norm", "padding", "batch size"} <= {f.subject for f in findings}


def test_hooks_are_gone_after_a_pass_and_after_a_failure(family):
    network, (ids, mask) = network_of(family), inputs()
    tap_all(network, ids, mask)

    def fail(layer, hidden):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tapped(network.structure, [1], fail):
        network.forward({"input_ids": ids, "attention_mask": mask.long()})
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.module.modules())


def test_two_stacks_are_refused_with_the_candidates_named():
    model = make_model("t5")
    with pytest.raises(ModelError, match=r"decoder\.block\. Choose one: --part encoder or --part decoder"):
        find_structure(model, model.config)


def test_of_a_text_model_with_encoder_and_decoder_the_encoder_is_read(tmp_path):
    (model, tokenizer), texts = make_reader("t5"), [f"w{i} w{i + 1} w{90 - i}" for i in range(40)]
    model.save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    assert build_network(model, tokenizer, "t5").part == "encoder"
    with torch.no_grad():
        ids = tokenizer(texts[:1], return_tensors="pt").input_ids
        states = model.encoder(ids, output_hidden_states=True).hidden_states
    found = layerwise.embed(str(tmp_path / "t5"), texts, layers="1").layer_1[0]
    assert found == pytest.approx(states[1][0].mean(dim=0).numpy(), abs=1e-5)
    assert layerwise.pick(str(tmp_path / "t5"), texts).recipe is not None
    assert read_model_info(ModelSpec(str(tmp_path / "t5"))).depth == DEPTH


def test_a_model_without_such_a_list_is_refused_with_the_lists_named():
    model = make_model("bert")
    model.config.num_hidden_layers = 5
    with pytest.raises(ModelError, match=r"no ModuleList of 5 blocks.*; lists found: encoder\.layer \(3\)"):
        find_structure(model, model.config)


def test_a_family_that_cannot_be_read_is_refused_with_the_reason():
    model = make_model("bert")
    model.config.model_type = "xlnet"
    with pytest.raises(ModelError, match="tokens, batch, width"):
        find_structure(model, model.config)


def test_an_unknown_part_is_answered_with_the_parts_there_are():
    with pytest.raises(ValueError, match="encoder"):
        build_network(make_model("t5"), make_tokenizer(), "t5", part="middle")


def test_the_doctor_notices_a_norm_that_is_not_the_models_own():
    network = network_of("llama")
    with torch.no_grad():
        network.structure.final_norm.weight.mul_(2)
    from dataclasses import replace

    wrong = nn.LayerNorm(WIDTH)
    network.structure = replace(network.structure, final_norm=wrong)
    assert any(f.verdict == "wrong" and f.subject == "final norm" for f in run_checks(network))


def test_a_checkpoint_without_a_pooler_is_the_same_model_at_every_load(tiny_bert, tmp_path):
    """What a checkpoint lacks is made up at random by transformers; a run could then never be taken up again."""
    folder = shutil.copytree(tiny_bert, tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "pooler" not in k}, folder / "model.safetensors", {"format": "pt"})
    assert len(weights) > len(load_file(folder / "model.safetensors"))
    first, second = (load_network(ModelSpec(str(folder))) for _ in range(2))
    assert first.fingerprint() == second.fingerprint()


@pytest.mark.parametrize("lost", ["layer.1.attention", "position_embeddings"])
def test_a_checkpoint_that_lacks_weights_of_its_layers_is_refused(tiny_bert, tmp_path, lost):
    folder = shutil.copytree(tiny_bert, tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    assert any(lost in name for name in weights)
    save_file({k: v for k, v in weights.items() if lost not in k}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=f"weights? of its layers, such as .*{lost}"):
        load_network(ModelSpec(str(folder)))
