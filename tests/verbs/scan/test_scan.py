"""scan: the same numbers whatever the batches, the padding, the order, the shards and the interruptions."""

import dataclasses
import json
import math
import re
from functools import partial
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
import torch
from families import DEPTH, WIDTH, adding_tokenizer, make_model, make_tokenizer
from tokenizers.processors import TemplateProcessing

import layerwise
from layerwise import functional as F
from layerwise.core import files
from layerwise.core.checks import require_state
from layerwise.core.errors import InputError, NotFiniteError, RunError, TooLarge
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example
from layerwise.metrics.base import Metric
from layerwise.metrics.readings import mean_over_prompts
from layerwise.metrics.scores import mean_score
from layerwise.models.load import ModelSpec, build_network, load_network
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.table import LayerTable
from layerwise.verbs.scan import worker

PROMPT_LEVEL = {"prompt_entropy", "prompt_entropy_normalized", "curvature", "mean_norm"}
ASKED = {"rows": "raw,unit,centered_unit", "tokens": "all,no_first,no_sinks", "norm": "raw,normed"}


def same(one, other, prompt=1e-5, dataset=1e-4):
    """All values alike: prompt-level metrics within `prompt`, data-set ones within `dataset`, relative."""
    a, b = one.to_pandas(), other.to_pandas()
    keys = ["layer", "norm", "tokens", "pooling", "rows", "metric"]
    both = a.merge(b, on=keys, suffixes=("", "_other"))
    assert len(both) == len(a) == len(b)
    for row in both.itertuples():
        tolerance = prompt if row.metric in PROMPT_LEVEL else dataset
        assert row.value == pytest.approx(row.value_other, rel=tolerance, abs=1e-9, nan_ok=True), row
        assert (row.n, row.skipped) == (row.n_other, row.skipped_other)


def identical(one, other):
    pd.testing.assert_frame_equal(one.to_pandas(), other.to_pandas(), check_exact=True)


def test_every_layer_has_every_metric_and_the_last_one_also_normed(tiny_llama, word_texts):
    table = layerwise.scan(tiny_llama, word_texts).to_pandas()
    raw = table[table.norm == "raw"]
    assert sorted(raw.layer.unique()) == list(range(DEPTH + 1))
    assert set(table[table.norm == "normed"].layer) == {DEPTH}
    assert raw.groupby("layer").metric.nunique().eq(10).all()
    assert table.value.notna().all() and (table.n == len(word_texts)).all()
    assert raw[raw.layer == 1].depth.unique() == pytest.approx(1 / DEPTH)


def test_scan_is_the_functions_applied_to_the_hidden_states_of_each_text_alone(tiny_llama, word_texts):
    """An independent way: transformers' own hidden_states, one text at a time, no taps, no batches, no states."""
    module, tokenizer = make_model("llama"), make_tokenizer()
    entropy, rows = [], []
    with torch.inference_mode():
        for text in word_texts:
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            hidden = module(input_ids=ids, output_hidden_states=True).hidden_states[1]
            entropy.append(F.matrix_entropy(hidden[0].double()))
            rows.append(hidden[0].mean(dim=0).double())
    table = layerwise.scan(tiny_llama, word_texts).where(layer=1)
    value = {s.metric: s.value for s in table}
    assert value["prompt_entropy"] == pytest.approx(float(torch.stack(entropy).mean()), rel=1e-5)
    assert value["dataset_entropy"] == pytest.approx(float(F.matrix_entropy(torch.stack(rows))), rel=1e-4)
    assert value["anisotropy"] == pytest.approx(float(F.anisotropy(torch.stack(rows))), rel=1e-4)
    assert value["intrinsic_dimension"] == pytest.approx(float(F.intrinsic_dimension(torch.stack(rows))), rel=1e-3)


def test_batch_size_and_padding_do_not_matter(tiny_llama, word_texts):
    same(
        layerwise.scan(tiny_llama, word_texts, batch_tokens=1, **ASKED),
        layerwise.scan(tiny_llama, word_texts, batch_tokens=500, **ASKED),
    )


def test_order_does_not_matter(tiny_llama, word_texts):
    same(layerwise.scan(tiny_llama, word_texts, **ASKED), layerwise.scan(tiny_llama, word_texts[::-1], **ASKED))


def test_sharding_does_not_matter(tiny_llama, word_texts):
    whole, parts = (layerwise.scan(tiny_llama, word_texts, shard_size=n, **ASKED) for n in (99, 7))
    same(whole, parts)
    assert whole.run["data"] == parts.run["data"], "texts, tokens and cut texts are counted"


def test_given_the_same_hidden_states_shards_merge_to_1e_10(tiny_llama, word_texts):
    alone = {"batch_tokens": 1, **ASKED}  # each text by itself: its hidden states do not depend on the shard
    whole = layerwise.scan(tiny_llama, word_texts, **alone)
    same(whole, layerwise.scan(tiny_llama, word_texts, shard_size=6, **alone), prompt=1e-10, dataset=1e-10)


@pytest.mark.parametrize(
    "stop_after", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long), 6]
)
def test_an_interrupted_scan_goes_on_and_gives_the_same_bits(tiny_llama, word_texts, tmp_path, monkeypatch, stop_after):
    monkeypatch.setattr("layerwise.verbs.scan.execute.SECONDS_BETWEEN_CHECKPOINTS", 0)
    whole = layerwise.scan(tiny_llama, word_texts, shard_size=6, out=tmp_path / "whole", **ASKED)
    calls = []

    def failing(network, plan, origin, examples, on_batch):
        if len(calls) == stop_after:
            raise KeyboardInterrupt
        calls.append(1)
        return worker.scan_shard(network, plan, origin, examples, on_batch)

    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", failing)
    with pytest.raises(KeyboardInterrupt):
        layerwise.scan(tiny_llama, word_texts, shard_size=6, out=tmp_path / "run", **ASKED)
    assert not (tmp_path / "run" / "table.parquet").exists()
    resumed_with = []
    monkeypatch.setattr(
        "layerwise.verbs.scan.shards.scan_shard", lambda *args: (resumed_with.append(1), worker.scan_shard(*args))[1]
    )
    resumed = layerwise.scan(tiny_llama, word_texts, shard_size=6, out=tmp_path / "run", **ASKED)
    identical(whole, resumed)
    assert len(resumed_with) == 8 - stop_after, "finished shards are not computed again"
    state = lambda folder: next((tmp_path / folder).glob("state-*.safetensors")).read_bytes()  # noqa: E731
    assert state("whole") == state("run")


def test_a_finished_run_is_read_again_without_a_forward_pass(tiny_llama, word_texts, tmp_path, monkeypatch):
    first = layerwise.scan(tiny_llama, word_texts, out=tmp_path)
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", None)
    identical(first, layerwise.scan(tiny_llama, word_texts, out=tmp_path))
    identical(first, LayerTable.load(tmp_path))


def test_a_damaged_state_is_noticed_and_computed_again(tiny_llama, word_texts, tmp_path):
    first = layerwise.scan(tiny_llama, word_texts, out=tmp_path)
    state = next(tmp_path.glob("state-*"))
    state.write_bytes(state.read_bytes()[:-100])
    identical(first, layerwise.scan(tiny_llama, word_texts, out=tmp_path))


def test_a_folder_of_another_scan_is_refused_and_the_difference_named(tiny_llama, tiny_bert, word_texts, tmp_path):
    layerwise.scan(tiny_llama, word_texts, out=tmp_path)
    with pytest.raises(RunError, match="max_length: 64 there, 32 asked for"):
        layerwise.scan(tiny_llama, word_texts, out=tmp_path, max_length=32)
    with pytest.raises(RunError, match="model: "):
        layerwise.scan(tiny_bert, word_texts, out=tmp_path)
    with pytest.raises(RunError, match="data differ"):
        layerwise.scan(tiny_llama, word_texts[1:], out=tmp_path)
    with pytest.raises(RunError, match="data differ"):
        layerwise.scan(tiny_llama, [*word_texts, "w1 w2"], out=tmp_path)


def test_a_batch_that_does_not_fit_is_halved_and_counted_once(tiny_llama, word_texts, monkeypatch):
    """No device here runs out of memory on demand, so the consumer pretends to, half way through the layers."""
    whole = layerwise.scan(tiny_llama, word_texts)
    layer = worker.ReadingConsumer.on_layer
    failures = []

    def tight(self, number, hidden, batch, point=""):
        if number == 2 and len(batch.examples) > 2:
            failures.append(len(batch.examples))
            raise torch.OutOfMemoryError("out of memory")
        layer(self, number, hidden, batch, point)

    monkeypatch.setattr(worker.ReadingConsumer, "on_layer", tight)
    same(whole, layerwise.scan(tiny_llama, word_texts))
    assert failures
    monkeypatch.setattr(
        worker.ReadingConsumer, "on_layer", lambda *a: (_ for _ in ()).throw(torch.OutOfMemoryError("x"))
    )
    with pytest.raises(TooLarge, match="--max-length"):
        layerwise.scan(tiny_llama, word_texts)


def test_other_runtime_errors_are_not_taken_for_full_memory(tiny_llama, word_texts, monkeypatch):
    monkeypatch.setattr(worker.ReadingConsumer, "on_layer", lambda *a: (_ for _ in ()).throw(RuntimeError("shape")))
    with pytest.raises(RuntimeError, match="shape"):
        layerwise.scan(tiny_llama, word_texts)


def test_token_choices_are_what_they_say(tiny_llama):
    """no_first against a hand-made mean."""
    network = load_network(ModelSpec(tiny_llama))
    example = Example("a", "w1 </s> w2 w3")

    def pooled(tokens, pooling="mean", max_length=60):
        readout = Readout(2, "raw", tokens, pooling)
        return pooled_vectors(network, [example], [readout], max_length=max_length)[readout][0]

    each = [pooled("all", "last", n) for n in (1, 2, 3, 4)]
    torch.testing.assert_close(pooled("all"), torch.stack(each).mean(dim=0))
    torch.testing.assert_close(pooled("no_first"), torch.stack(each[1:]).mean(dim=0))
    torch.testing.assert_close(pooled("no_special"), pooled("all"))  # this tokenizer adds nothing
    torch.testing.assert_close(pooled("no_sinks"), pooled("all"))
    torch.testing.assert_close(pooled("no_first", "first"), each[1])


def test_no_special_leaves_out_what_the_tokenizer_adds_and_keeps_unknown_words():
    tokenizer, model = make_tokenizer(), make_model("llama")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    ids = tokenizer("w1 never-seen w3", return_tensors="pt").input_ids
    assert ids[0, 0] == 1 and ids[0, -1] == 2 and tokenizer.unk_token_id in ids[0]
    with torch.no_grad():
        state = model(ids, output_hidden_states=True).hidden_states[2][0]
    found = layerwise.embed((model, tokenizer), ["w1 never-seen w3"], layers="2", tokens="no_special").layer_2[0]
    torch.testing.assert_close(torch.from_numpy(found), state[1:-1].mean(dim=0))


def states_of(model, tokenizer, text, layer=2):
    with torch.no_grad():
        return model(tokenizer(text, return_tensors="pt").input_ids, output_hidden_states=True).hidden_states[layer][0]


@pytest.mark.parametrize("given", [{"pad_token": "</s>"}, {"pad_token": None, "eos_token": None}])
def test_the_padding_token_inside_a_text_is_a_token_of_the_text(given):
    """Chat texts of SmolLM2 contain its padding token; a tokenizer without one is padded with token 0."""
    tokenizer, model = make_tokenizer(), make_model("llama")
    for name, token in given.items():
        setattr(tokenizer, name, token)
    text = "w1 </s> w2 <pad> w3"
    table = layerwise.scan((model, tokenizer), [text, "w7"], metrics="mean_norm", layers=2, tokens="no_special")
    states = states_of(model, tokenizer, text)
    assert len(states) == 5
    vectors = layerwise.embed((model, tokenizer), [text, "w7"], layers="2", tokens="no_special").layer_2
    torch.testing.assert_close(torch.from_numpy(vectors[0]), states.mean(dim=0))
    norms = [states.norm(dim=-1).mean(), states_of(model, tokenizer, "w7").norm(dim=-1).mean()]
    assert table.scores[0].value == pytest.approx(float(sum(norms) / 2), rel=1e-5)


def test_added_tokens_are_left_out_wherever_they_stand_in_a_text():
    """By id, as an exported model does it, which cannot know which of them the tokenizer has added."""
    tokenizer, model, text = adding_tokenizer(), make_model("llama"), "<s> w1 </s> w2"
    assert tokenizer(text).input_ids == [1, 1, 5, 2, 6, 2]
    states = states_of(model, tokenizer, text)
    for tokens, kept in (("no_special", [2, 4]), ("no_first", [2, 3, 4, 5])):
        found = layerwise.embed((model, tokenizer), [text], layers="2", tokens=tokens).layer_2[0]
        torch.testing.assert_close(torch.from_numpy(found), states[kept].mean(dim=0))


@pytest.mark.parametrize("pooling", ["mean", "last", "first", "max"])
def test_the_vector_of_a_text_in_which_no_token_counts_is_zero(pooling):
    tokenizer, model = adding_tokenizer(), make_model("llama")
    found = layerwise.embed((model, tokenizer), ["x", "w1"], layers="2", tokens="no_special", pooling=pooling).layer_2
    assert not found[0].any() and found[1].any()
    tokenizer.backend_tokenizer.post_processor = None
    assert tokenizer("x").input_ids == []
    found = layerwise.embed((model, tokenizer), ["x", "w1 w2"], layers="2", pooling=pooling).layer_2
    assert not found[0].any() and found[1].any()
    row = layerwise.scan((model, tokenizer), ["x", "w1 w2"], metrics="mean_norm", layers=2).scores[0]
    assert (row.n, row.skipped) == (1, 1)


def test_the_median_of_an_even_number_of_norms_is_the_mean_of_the_two_in_the_middle():
    from layerwise.metrics.ops.tokens import counted_tokens

    hidden, real = torch.tensor([[[1.0], [2.0], [25.0], [26.0], [999.0]]]), torch.tensor([[True] * 4 + [False]])
    assert counted_tokens(hidden, real, torch.zeros_like(real), "no_sinks").tolist() == [[True] * 4 + [False]]


def test_a_sink_is_a_token_ten_times_longer_than_the_median():
    from layerwise.metrics.ops.tokens import counted_tokens

    hidden = torch.ones(1, 6, 3)
    hidden[0, 1] *= 9.9
    hidden[0, 2] *= 10.1
    hidden[0, 5] *= 99
    real = torch.tensor([[True] * 5 + [False]])
    kept = counted_tokens(hidden, real, torch.zeros_like(real), "no_sinks")
    assert kept.tolist() == [[True, True, False, True, True, False]]


def test_one_token_prompts_are_skipped_and_shown(tiny_llama, word_texts):
    table = layerwise.scan(tiny_llama, [*word_texts, "w5", "w6"], tokens="all,no_first")
    entropy = table.where(metric="prompt_entropy", layer=1, tokens="all").scores[0]
    assert (entropy.n, entropy.skipped) == (len(word_texts), 2)
    rank = table.where(metric="effective_rank", layer=1, tokens="no_first").scores[0]
    assert (rank.n, rank.skipped) == (len(word_texts), 2)
    assert math.isfinite(rank.value)


def test_long_texts_are_cut_and_counted(tiny_llama, word_texts):
    run = layerwise.scan(tiny_llama, word_texts, max_length=10).run
    lengths = [len(text.split()) for text in word_texts]
    assert run["data"]["cut"] == sum(n > 10 for n in lengths)
    assert run["data"]["tokens"] == sum(min(n, 10) for n in lengths)


def test_a_hidden_state_that_is_not_finite_is_named(tiny_llama, word_texts):
    network = load_network(ModelSpec(tiny_llama))
    with torch.no_grad():
        network.module.layers[1].mlp.down_proj.weight[:] = 1e38
    with pytest.raises(NotFiniteError, match=r"layer 2 contains NaN or infinity in torch.float32 for example"):
        layerwise.scan(network, word_texts)


def test_all_problems_of_a_call_are_told_at_once(tiny_bert, word_texts):
    with pytest.raises(InputError) as refused:
        layerwise.scan(tiny_bert, word_texts, rows="row", tokens="some", threads=0, batch_tokens=0)
    for word in ("'row' is not one of raw", "'some' is not one of all", "threads must be", "batch_tokens must be"):
        assert word in str(refused.value)
    with pytest.raises(InputError, match="no final norm"):  # which only the model tells
        layerwise.scan(tiny_bert, word_texts, norm="normed")
    with pytest.raises(InputError, match="prompt_entropy, "):
        layerwise.scan(tiny_bert, word_texts, metrics="entropy")
    with pytest.raises(InputError, match="layers 0 .embeddings. to 3"):
        layerwise.scan(tiny_bert, word_texts, layers="4")
    with pytest.raises(InputError, match="use at most 64"):
        layerwise.scan(tiny_bert, word_texts, max_length=65)
    with pytest.raises(InputError, match="empty"):
        layerwise.scan(tiny_bert, [])


def test_a_users_own_metric_is_scanned_like_the_others(tiny_llama, word_texts):
    longest = Metric(
        "longest_token", "scale", "a longer longest token",
        mean_over_prompts("longest_token", lambda t, m: (t.norm(dim=-1) * m).amax(dim=-1)), mean_score(), "this test",
    )  # fmt: skip
    table = layerwise.scan(tiny_llama, word_texts, metrics=[longest, "mean_norm"])
    by = {(s.metric, s.layer): s.value for s in table.where(norm="raw")}
    assert all(by["longest_token", k] > by["mean_norm", k] for k in range(DEPTH + 1))


def test_objects_are_accepted_as_well_as_names(tiny_llama, word_texts):
    from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

    named = layerwise.scan(tiny_llama, word_texts)
    module, tokenizer = AutoModel.from_pretrained(tiny_llama), AutoTokenizer.from_pretrained(tiny_llama)
    for model in (module, (module, tokenizer), AutoModelForCausalLM.from_pretrained(tiny_llama)):
        pd.testing.assert_series_equal(layerwise.scan(model, word_texts).to_pandas().value, named.to_pandas().value)
    with pytest.raises(InputError, match="SentenceTransformer"):
        layerwise.scan(42, word_texts)


def test_a_model_in_training_is_read_without_dropout_and_left_in_training(tiny_llama, word_texts):
    from transformers import AutoModel

    module = AutoModel.from_pretrained(tiny_llama, attention_dropout=0.5).train()
    trained = layerwise.scan(module, word_texts, metrics="prompt_entropy").to_pandas()
    assert module.training
    still = layerwise.scan(tiny_llama, word_texts, metrics="prompt_entropy").to_pandas()
    pd.testing.assert_series_equal(trained.value, still.value)


def test_a_sentence_transformer_is_accepted(tiny_bert, word_texts):
    st = pytest.importorskip("sentence_transformers")
    model = st.SentenceTransformer(tiny_bert, device="cpu")
    table, named = layerwise.scan(model, word_texts), layerwise.scan(tiny_bert, word_texts)
    pd.testing.assert_series_equal(table.to_pandas().value, named.to_pandas().value)
    embedded = layerwise.embed(model, word_texts[:3], layers="last")
    assert np.stack(embedded["last"]) == pytest.approx(model.encode(word_texts[:3]), abs=1e-5)


def test_an_adapter_is_merged_in(tiny_llama, word_texts, tmp_path):
    peft = pytest.importorskip("peft")
    from transformers import AutoModel

    adapted = peft.get_peft_model(
        AutoModel.from_pretrained(tiny_llama), peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    )
    adapted.save_pretrained(tmp_path / "adapter")
    plain = layerwise.scan(tiny_llama, word_texts)
    merged = layerwise.scan(ModelSpec(tiny_llama, adapter=str(tmp_path / "adapter")), word_texts)
    tokenizer = make_tokenizer()
    active = layerwise.scan((adapted, tokenizer), word_texts)
    same(merged, active)
    assert merged.where(layer=3, metric="dataset_entropy").scores[0].value != pytest.approx(
        plain.where(layer=3, metric="dataset_entropy").scores[0].value, rel=1e-4
    )


def test_weights_that_are_not_safetensors_are_refused(tiny_llama, tmp_path):
    from layerwise.core.errors import ModelError

    model = make_model("llama")
    model.config.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        load_network(ModelSpec(str(tmp_path)))
    with pytest.raises(ModelError, match="no such folder"):
        load_network(ModelSpec(str(tmp_path / "nothing")))


def test_half_precision_is_close_to_single(tiny_llama, word_texts):
    single = layerwise.scan(tiny_llama, word_texts)
    half = layerwise.scan(ModelSpec(tiny_llama, dtype="bfloat16"), word_texts)
    assert {s.dtype for s in half} == {"bfloat16"}
    same(single, half, prompt=0.05, dataset=0.2)


def test_fingerprints_tell_models_apart(tiny_llama):
    network = load_network(ModelSpec(tiny_llama))
    before = network.fingerprint()
    assert before == load_network(ModelSpec(tiny_llama)).fingerprint()
    with torch.no_grad():
        network.module.layers[2].mlp.up_proj.weight[3, 5] += 1e-3
    assert network.fingerprint() != before
    used = load_network(ModelSpec(tiny_llama))
    used.tokenizer("w1 w2 w3", truncation=True, max_length=2)
    assert used.fingerprint() == before, "what was done with a tokenizer before does not count"
    other = build_network(make_model("llama"), make_tokenizer(), "x")
    other.tokenizer.add_tokens(["new"])
    assert other.fingerprint() != before


def test_the_plan_is_told_before_weights_are_loaded(tiny_llama, word_texts, monkeypatch):
    monkeypatch.setattr("layerwise.models.opening.load_network", None)
    forecast = layerwise.plan(tiny_llama, word_texts)
    assert forecast.forwards == forecast.prompts == len(word_texts)
    exact = sum(len(t.split()) for t in word_texts)
    assert forecast.tokens == exact
    parameters = sum(p.numel() for p in make_model("llama").parameters())
    assert forecast.weight_bytes == 4 * parameters


def test_the_state_is_as_large_as_the_plan_says(tiny_llama, word_texts, tmp_path):
    for n in (20, 43):  # fewer and more prompts than the model is wide
        result = layerwise.plan(tiny_llama, word_texts[:n], rows="raw,unit").state_bytes
        layerwise.scan(tiny_llama, word_texts[:n], out=tmp_path / str(n), rows="raw,unit")
        written = next((tmp_path / str(n)).glob("state-*")).stat().st_size
        assert 0.5 * result < written < 1.3 * result + 30_000, (n, result, written)  # the header alone takes some 20 KB
    assert WIDTH < 43


@pytest.mark.parametrize("verb", [layerwise.scan, partial(layerwise.lab.stress, kind="random", levels=[0, 1])])
def test_a_plan_that_cannot_fit_is_refused_with_what_to_type(verb, tiny_llama, word_texts, monkeypatch):
    class Small:
        available = 10_000

    monkeypatch.setattr("psutil.virtual_memory", lambda: Small)
    monkeypatch.setattr("layerwise.models.load.load_located", lambda *given: pytest.fail("loaded"))
    with pytest.raises(TooLarge, match="--layers 25%"):
        verb(tiny_llama, word_texts)


@pytest.mark.parametrize("state", ["sketch:512 (or another number)", "sketch:0", "sketch", "exakt", 512])
def test_a_state_is_one_of_the_words_or_a_sketch_of_a_size(state):
    with pytest.raises(InputError, match=r"is not one of auto, exact, float32, sketch:512 \(or another number\)"):
        require_state(state)
    assert require_state("sketch:512") == "sketch:512"


def test_prompt_level_values_are_kept_and_average_to_the_score(tiny_llama, word_texts, tmp_path):
    table = layerwise.scan(tiny_llama, word_texts, out=tmp_path, shard_size=20, rows="raw,unit")
    parts = [pd.read_parquet(path) for path in sorted((tmp_path / "prompts").iterdir())]
    prompts = pd.concat(parts)
    assert len(parts) == 3
    keys = ["layer", "norm", "tokens", "rows", "metric"]
    means = prompts.groupby(keys).value.mean()
    for s in table:
        if s.metric in PROMPT_LEVEL:
            assert means[s.layer, s.norm, s.tokens, s.rows, s.metric] == pytest.approx(s.value, rel=1e-9)
    layerwise.scan(tiny_llama, word_texts, out=tmp_path / "none", keep_prompts="none")
    assert not (tmp_path / "none" / "prompts").exists()


def test_provenance_says_how_the_table_was_made(tiny_llama, word_texts, tmp_path):
    layerwise.scan(tiny_llama, word_texts, out=tmp_path, seed=3)
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["plan"]["seed"] == 3 and run["plan"]["max_length"] == 64
    assert run["environment"]["torch"] == version("torch")
    assert run["data"]["prompts"] == len(word_texts) and run["data"]["fingerprint"].startswith("43-")
    assert run["model"]["depth"] == DEPTH and re.fullmatch("files-[0-9a-f]{32}", run["model"]["fingerprint"])


def test_a_full_disk_leaves_no_half_table(tiny_llama, word_texts, tmp_path, monkeypatch):
    real = files.write_atomically

    def full(path, data):
        if path.name.startswith("state-"):
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(files, "write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        layerwise.scan(tiny_llama, word_texts, out=tmp_path)
    with pytest.raises(RunError, match="no finished run"):
        LayerTable.load(tmp_path)


def test_embed_gives_the_vectors_that_scan_measures(tiny_llama, word_texts):
    vectors = layerwise.embed(tiny_llama, word_texts, layers="0,2,last", pooling="mean")
    assert list(vectors.columns) == ["id", "text", "layer_0", "layer_2", "last"]
    rows = torch.from_numpy(np.stack(vectors.layer_2)).double()
    scanned = layerwise.scan(tiny_llama, word_texts).where(layer=2, metric="dataset_entropy").scores[0].value
    assert float(F.matrix_entropy(rows)) == pytest.approx(scanned, rel=1e-5)


def test_a_model_spec_is_plain_data():
    assert dataclasses.asdict(ModelSpec("x"))["trust_remote_code"] is False


def test_sums_can_be_kept_smaller_and_rows_say_how_exact_they_are(tiny_llama, tmp_path):
    texts = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 7)) for i in range(200)]
    exact = layerwise.scan(tiny_llama, texts, shard_size=50, metrics="dataset_entropy,top_share,curvature")
    assert {s.note for s in exact} == {""} and exact.run["plan"]["state"] == "exact"
    for state, within in (("float32", 1e-5), ("sketch:12", 0.2)):
        table = layerwise.scan(
            tiny_llama, texts, shard_size=50, metrics="dataset_entropy,top_share,curvature", state=state
        )
        for one, other in zip(exact, table, strict=True):
            assert other.value == pytest.approx(one.value, rel=within)
            assert bool(other.note) == (other.metric != "curvature")
    few = layerwise.scan(tiny_llama, texts[:20], metrics="dataset_entropy", state="sketch:12")
    assert {s.note for s in few} == {""}, "as many rows as these are kept as they are"
    with pytest.raises(InputError, match="use --state float32"):
        layerwise.scan(tiny_llama, texts, metrics="lidar", state="sketch:12")
    with pytest.raises(InputError, match="'tiny' is not one of auto, exact"):
        layerwise.scan(tiny_llama, texts, state="tiny")


def test_auto_keeps_sums_as_exactly_as_eight_gigabytes_allow(tiny_llama, monkeypatch):
    from layerwise.verbs.scan import plan

    texts = [f"w{i} w{j} w3" for i in range(40) for j in range(5)]
    sizes = {s: layerwise.plan(tiny_llama, texts, state=s).state_bytes for s in ("exact", "float32", "sketch:4")}
    assert sizes["exact"] > sizes["float32"] > sizes["sketch:4"]
    for allowed, chosen in ((sizes["exact"], "exact"), (sizes["float32"], "float32"), (sizes["sketch:4"], "sketch:4")):
        monkeypatch.setattr(plan, "MAX_STATE_BYTES", allowed)
        assert layerwise.plan(tiny_llama, texts).state == chosen
    monkeypatch.setattr(plan, "MAX_STATE_BYTES", 0)
    assert layerwise.plan(tiny_llama, texts).state == "sketch:1"
    assert layerwise.plan(tiny_llama, texts, metrics="lidar").state == "float32"
