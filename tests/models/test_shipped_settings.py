"""What a model ships besides its weights: each setting changes its vectors, and belongs to its identity."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from embedders import ship
from families import make_tokenizer
from peft import LoraConfig, get_peft_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import CNN, Dropout, Pooling, Transformer
from test_as_shipped import TEXTS, close
from tokenizers.normalizers import NFC, NFD, BertNormalizer, Lowercase, Sequence
from transformers import AutoModel, OPTConfig, OPTModel

import layerwise
from layerwise.core.errors import ModelError
from layerwise.core.templates import template_of_prompt
from layerwise.inputs.source import Example
from layerwise.models.fingerprint import weight_files_hash
from layerwise.models.opening import is_recorded_model, open_network
from layerwise.models.preprocessing import lowercasing
from layerwise.models.readouts import last_recipe
from layerwise.models.shipped import ShippedModule, read_shipped
from layerwise.passes.vectors import pooled_vectors
from layerwise.verbs.eval.data_root import write_task
from layerwise.verbs.shrink.index_advice import closeness, reciprocal_ranks
from layerwise.verbs.shrink.student import blocks_read, pooling_modules


@pytest.fixture
def recipe_folder(tiny_llama, tmp_path, word_texts):
    """An exported recipe: it pools hidden state 2, so it encodes texts itself."""
    layerwise.export(tiny_llama, 2, tmp_path / "recipe", transform="center", fit=word_texts)
    return tmp_path / "recipe"


def with_transformer_settings(folder, copy, change):
    """A copy of a model with other settings of its transformer module."""
    shutil.copytree(folder, copy)
    path = copy / "sentence_bert_config.json"
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))
    return copy


def test_two_recipes_that_differ_in_the_state_they_pool_are_two_models(recipe_folder, tmp_path):
    def pool_state_1(settings):
        settings["modality_config"]["text"]["method_output_name"] = ["hidden_states", 1]

    other = with_transformer_settings(recipe_folder, tmp_path / "other", pool_state_1)
    one, two = (layerwise.embed(folder, ["a text"])["last"][0] for folder in (recipe_folder, other))
    assert not np.allclose(one, two)
    assert open_network(recipe_folder).fingerprint() != open_network(other).fingerprint()


def test_the_maps_of_models_in_memory_that_encode_themselves_belong_to_them(recipe_folder):
    one, same, other = (SentenceTransformer(str(recipe_folder), device="cpu") for _ in range(3))
    with torch.no_grad():
        other[-1].linear.bias.add_(1)
    network = open_network(one)
    assert network.fingerprint() == open_network(same).fingerprint() != open_network(other).fingerprint()
    assert is_recorded_model(open_network(recipe_folder), network.identity())
    assert not is_recorded_model(open_network(recipe_folder), open_network(other).identity())
    with torch.no_grad():
        one[-1].linear.bias.add_(1)
    assert network.fingerprint() == open_network(other).fingerprint()


def test_weights_in_folders_that_are_not_listed_are_hashed_in_memory(recipe_folder):
    shipped = read_shipped(str(recipe_folder))
    router = ShippedModule("Router", "sentence_transformers.models.Router", "3_Router")
    assert weight_files_hash(str(recipe_folder), None, shipped, None)
    assert (
        weight_files_hash(str(recipe_folder), None, replace(shipped, modules=(*shipped.modules, router)), None) is None
    )


UNUSUAL = {
    "two tokens of each text": {"processing_kwargs": {"text": {"max_length": 2}}},
    "the end of long texts": {"max_seq_length": 3, "tokenizer_args": {"truncation_side": "left"}},
    "another activation": {"config_args": {"hidden_act": "relu"}},
    "more tokens than its tokenizer": {"max_seq_length": 20},
}


NOT_FOLLOWED = "the model as shipped .last. follows that, layers by number do not"


@pytest.mark.filterwarnings(f"ignore:.*{NOT_FOLLOWED}")
@pytest.mark.parametrize("settings", UNUSUAL.values(), ids=lambda settings: "-".join(settings))
def test_settings_of_the_transformer_module_are_honoured(tmp_path, settings):
    folder = ship(tmp_path / "model", "bert", "mean")
    other = with_transformer_settings(folder, tmp_path / "other", lambda s: s.update(settings))
    expected, usual = (SentenceTransformer(str(f), device="cpu").encode(TEXTS) for f in (other, folder))
    assert not np.allclose(expected, usual, atol=1e-3)
    for model in (str(other), SentenceTransformer(str(other), device="cpu")):
        close(layerwise.embed(model, TEXTS)["last"], expected)
    if set(settings) != {"max_seq_length"}:  # the length is part of a run's settings
        assert open_network(other).fingerprint() != open_network(folder).fingerprint()


def test_every_layer_of_a_model_that_lowercases_reads_lowercased_texts(tmp_path):
    folder = ship(tmp_path / "model", "bert", "mean")
    other = with_transformer_settings(folder, tmp_path / "other", lambda s: s.update(do_lower_case=True))
    upper, own = [text.upper() for text in TEXTS], SentenceTransformer(str(other), device="cpu")
    usual = layerwise.embed(folder, TEXTS, layers="1,last")
    for model in (str(other), own):
        found = layerwise.embed(model, upper, layers="1,last")
        for column in found.columns[2:]:
            close(found[column], np.stack(list(usual[column])))
    close(layerwise.embed(other, upper)["last"], own.encode(upper))
    assert open_network(other).fingerprint() != open_network(folder).fingerprint()
    close(layerwise.export(other, "last", tmp_path / "out").encode(upper), own.encode(upper))


def test_a_tokenizer_that_lowercases_is_left_as_it_is():
    for own in (BertNormalizer(lowercase=True), Lowercase(), Sequence([NFD(), Sequence([Lowercase(), NFC()])])):
        tokenizer = make_tokenizer()
        tokenizer.backend_tokenizer.normalizer = own
        before = tokenizer.backend_tokenizer.to_str()
        assert lowercasing(tokenizer).backend_tokenizer.to_str() == before
    for own in (None, BertNormalizer(lowercase=False), Sequence([NFD()])):
        tokenizer = make_tokenizer()
        tokenizer.backend_tokenizer.normalizer = own
        assert lowercasing(tokenizer).backend_tokenizer.normalizer.normalize_str("W1") == "w1"


@pytest.mark.filterwarnings(f"ignore:.*{NOT_FOLLOWED}")
def test_a_model_with_settings_for_its_tokenizer_is_not_shrunk(tmp_path):
    folder = ship(tmp_path / "model", "bert", "mean")
    other = with_transformer_settings(
        folder, tmp_path / "other", lambda s: s.update(processing_kwargs={"text": {"max_length": 2}})
    )
    with pytest.raises(ModelError, match="cannot be shrunk: it sets processing_kwargs"):
        pooling_modules(open_network(other))


def test_settings_that_are_layerwise_s_own_choice_change_nothing(tmp_path):
    folder = ship(tmp_path / "model", "bert", "mean")
    own = {"model_args": {"attn_implementation": "eager", "torch_dtype": "float32"}, "config_args": {}}
    other = with_transformer_settings(folder, tmp_path / "other", lambda s: s.update(own))
    assert open_network(other).shipped.own_encode_reason == ""
    assert open_network(other).fingerprint() == open_network(folder).fingerprint()


def test_a_model_that_keeps_some_dimensions_of_its_vectors(tmp_path):
    model = SentenceTransformer(ship(tmp_path / "model", "bert", "mean"), device="cpu", truncate_dim=8)
    model.save(str(tmp_path / "short"), create_model_card=False)
    path = tmp_path / "short/config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncate_dim": 8}))
    expected = model.encode(TEXTS)
    assert expected.shape == (len(TEXTS), 8)
    assert np.array_equal(SentenceTransformer(str(tmp_path / "short"), device="cpu").encode(TEXTS), expected)
    for given in (str(tmp_path / "short"), model):
        close(layerwise.embed(given, TEXTS)["last"], expected)
    assert open_network(tmp_path / "short").fingerprint() != open_network(tmp_path / "model").fingerprint()
    close(layerwise.export(tmp_path / "short", "last", tmp_path / "out").encode(TEXTS), expected)


@pytest.mark.parametrize("name", ["dot", "euclidean", "manhattan"])
def test_vectors_are_compared_as_the_model_ships(name, tmp_path):
    folder = ship(tmp_path / "model", "bert", "mean")
    SentenceTransformer(folder, device="cpu", similarity_fn_name=name).save(
        str(tmp_path / name), create_model_card=False
    )
    network = open_network(tmp_path / name)
    assert network.shipped.similarity == name and network.fingerprint() != open_network(folder).fingerprint()
    exported = layerwise.export(tmp_path / name, "last", tmp_path / "out")
    assert exported.similarity_fn_name == name
    rows = [torch.randn(20, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    expected = [1 / (1 + (row > row[i]).sum().item()) for i, row in enumerate(exported.similarity(*rows))]
    own = torch.eye(20, dtype=torch.bool)
    assert reciprocal_ranks(closeness(*rows, name), own).tolist() == pytest.approx(expected)
    assert reciprocal_ranks(closeness(*rows), own).tolist() != pytest.approx(expected)


def test_eval_compares_vectors_as_the_model_ships(tmp_path):
    """Three documents of different lengths, so that dot products and cosines rank them in another order."""
    folder = ship(tmp_path / "model", "bert", "mean")
    model = SentenceTransformer(folder, device="cpu", similarity_fn_name="dot")
    model.save(str(tmp_path / "dot"), create_model_card=False)
    texts = [" ".join(f"w{(7 * i + 3 * j) % 80}" for j in range(1 + i % 7)) for i in range(60)]
    pairs = pd.DataFrame({"query": texts[:30], "positive": [[t] for t in texts[30:]], "negative": [[]] * 30})
    write_task(tmp_path / "tasks", "Mine", "Retrieval", pairs)
    scores = {
        name: layerwise.eval(
            tmp_path / name, "Mine", data_root=tmp_path / "tasks", layers="0,last", out=tmp_path / f"{name}-run",
            workers=0,
        )
        for name in ("model", "dot")
    }  # fmt: skip
    cosine, dot = ({score.norm: score.value for score in table} for table in scores.values())
    vectors = model.encode(texts)
    ranks = [(vectors[:30] @ vectors[30:].T >= np.diag(vectors[:30] @ vectors[30:].T)[:, None]).sum(axis=1)]
    expected = 100 * np.mean([1 / np.log2(1 + rank) if rank <= 10 else 0 for rank in ranks[0]])
    assert dot["shipped"] == pytest.approx(expected, abs=0.01) and dot["shipped"] != cosine["shipped"]
    assert dot["raw"] == cosine["raw"], "layers by number are compared by cosine"


def test_layers_of_a_model_with_an_unknown_similarity_can_be_read_but_it_is_not_searched(
    tmp_path, word_texts, monkeypatch
):
    """As a model with a vector per token has."""
    folder = ship(tmp_path / "model", "bert", "mean")
    path = tmp_path / "model/config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"similarity_fn_name": "MaxSim"}))
    assert len(layerwise.embed(folder, TEXTS, layers="1")) == len(TEXTS)
    with pytest.raises(ModelError, match="vectors are compared by 'MaxSim', and layerwise knows cosine, dot"):
        layerwise.shrink(folder, word_texts, tmp_path / "small")
    layerwise.shrink(folder, None, tmp_path / "embeddings", method="static", layer=0)
    monkeypatch.setattr("layerwise.verbs.shrink.static_models.make_static", lambda *_: pytest.fail("fitted first"))
    with pytest.raises(ModelError, match="vectors are compared by 'MaxSim'"):
        layerwise.shrink(folder, word_texts, tmp_path / "static", method="static")


def test_tokens_of_any_prompt_are_left_out_if_the_model_says_so(tmp_path):
    folder = ship(tmp_path / "model", "llama", "mean", prompt="w90 w91 ", include_prompt=False)
    own, network = SentenceTransformer(folder, device="cpu"), open_network(folder)
    readout = last_recipe(network).readout
    for prompt in ("w90 w91 ", "w70 w71 w72 ", ""):
        found = pooled_vectors(
            network, [Example(str(i), text) for i, text in enumerate(TEXTS)], [readout],
            max_length=10, template=template_of_prompt(prompt),
        )  # fmt: skip
        close(found[readout], own.encode(TEXTS, prompt=prompt))


def test_a_head_in_training_mode_drops_nothing(tmp_path):
    model = SentenceTransformer(ship(tmp_path / "model", "bert", "mean"), device="cpu")
    model.append(Dropout(0.5))
    expected = model.encode(TEXTS)
    model.train()
    close(layerwise.embed(model, TEXTS)["last"], expected)
    assert all(module.training for module in model.modules())


def test_a_model_that_encodes_itself_does_so_in_single_precision(tmp_path):
    folder = ship(tmp_path / "model", "bert", "mean")
    other = with_transformer_settings(
        folder, tmp_path / "other", lambda s: s.update(processing_kwargs={"text": {"max_length": 2}})
    )
    half = AutoModel.from_pretrained(other).half()
    half.save_pretrained(other)
    expected = SentenceTransformer(str(other), device="cpu", model_kwargs={"dtype": torch.float32}).encode(TEXTS)
    with pytest.warns(UserWarning, match=f"sets processing_kwargs: {NOT_FOLLOWED}"):
        close(layerwise.embed(other, TEXTS)["last"], expected)


def test_an_adapter_next_to_the_weights_belongs_to_the_model(tmp_path):
    ship(tmp_path / "model", "bert", "mean")
    folder, seen = tmp_path / "model-inner", []
    plain = open_network(folder).fingerprint()
    for seed in (1, 2):
        torch.manual_seed(seed)
        settings = LoraConfig(r=2, init_lora_weights=False, target_modules=["query"])
        base = AutoModel.from_pretrained(tmp_path / "model")
        get_peft_model(base, settings).save_pretrained(folder)
        seen.append(open_network(folder).fingerprint())
    assert len({plain, *seen}) == 3


def test_modules_with_files_of_their_own_belong_to_the_model(tmp_path):
    if "stride_sizes" not in CNN.config_keys:
        pytest.skip("this version of sentence-transformers does not save the stride")
    base = SentenceTransformer(ship(tmp_path / "model", "bert", "mean"), device="cpu")
    seen = []
    for stride in (1, 2):
        torch.manual_seed(0)
        convolution = CNN(32, out_channels=8, kernel_sizes=[1], stride_sizes=[stride])
        model = SentenceTransformer(modules=[base[0], convolution, Pooling(8, "mean")], device="cpu")
        model.save(str(tmp_path / f"stride-{stride}"), create_model_card=False)
        seen.append(open_network(tmp_path / f"stride-{stride}").fingerprint())
    assert seen[0] != seen[1]


def test_a_model_that_changes_its_states_after_its_last_block_is_not_taken_for_one_that_does_not(tmp_path):
    """As opt-350m does: a projection follows its blocks, to another width."""
    config = OPTConfig(
        vocab_size=100, hidden_size=32, word_embed_proj_dim=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32,
        max_position_embeddings=64, do_layer_norm_before=False,
    )  # fmt: skip
    OPTModel(config).save_pretrained(tmp_path / "opt")
    make_tokenizer().save_pretrained(tmp_path / "opt")
    with pytest.warns(UserWarning, match="the last layer is not the model's output"):
        layerwise.embed(tmp_path / "opt", TEXTS, layers="last")
    first = Transformer(str(tmp_path / "opt"), max_seq_length=10)
    model = SentenceTransformer(modules=[first, Pooling(16, "mean")], device="cpu")
    model.save(str(tmp_path / "shipped"), create_model_card=False)
    with pytest.raises(ModelError, match="the model as shipped cannot be read"):
        layerwise.embed(tmp_path / "shipped", TEXTS, layers="last")
    assert len(layerwise.embed(tmp_path / "shipped", TEXTS, layers="1")) == len(TEXTS)


def test_damaged_settings_are_refused(tmp_path):
    folder = with_transformer_settings(
        ship(tmp_path / "model", "bert", "mean"), tmp_path / "damaged", lambda s: s.update(modality_config=["text"])
    )
    with pytest.raises(ModelError, match="modality_config of the transformer module is damaged"):
        open_network(folder)
    path = tmp_path / "model/config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncate_dim": "8"}))
    with pytest.raises(ModelError, match="truncate_dim is damaged: it needs a number, not '8'"):
        open_network(tmp_path / "model")


def test_a_recipe_that_pools_a_state_it_does_not_have_is_not_shrunk(recipe_folder, tmp_path):
    def pool_state_99(settings):
        settings["modality_config"]["text"]["method_output_name"] = ["hidden_states", 99]

    network = open_network(with_transformer_settings(recipe_folder, tmp_path / "other", pool_state_99))
    with pytest.raises(ModelError, match="pools hidden state 99, but has 0 to"):
        blocks_read(network)
