"""shrink --method static: token vectors and their means, how they are fitted, and who reads them."""

import json
import re

import numpy as np
import pytest
import torch
from families import make_model, make_tokenizer, save_byte_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding, Transformer
from snapshots import write_root
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, ModelError
from layerwise.core.recipe import Readout
from layerwise.inputs.text import demo_sentences
from layerwise.models.load import network_from_object
from layerwise.models.static import made_static
from layerwise.verbs.export.agreement import neighbour_overlap
from layerwise.verbs.pick.probes import proxy_probes
from layerwise.verbs.pick.run import default_rulebook
from layerwise.verbs.shrink.bags import add_words, frequent_words, token_bags, token_weights
from layerwise.verbs.shrink.static import fit_rows, fit_static, token_rows
from layerwise.verbs.shrink.static_backend import quantized_rows, rounded_rows

TEXTS = [" ".join(f"w{(i * i + 7 * j + i // 90) % 89}" for j in range(6 + i % 9)) for i in range(150)]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """An embedding model: mean pooling, length 1."""
    folder = tmp_path_factory.mktemp("teacher")
    make_model("bert").save_pretrained(folder / "inner")
    make_tokenizer().save_pretrained(folder / "inner")
    modules = [Transformer(str(folder / "inner"), max_seq_length=24), Pooling(32, "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


@pytest.fixture(scope="module")
def static(teacher, tmp_path_factory):
    folder = tmp_path_factory.mktemp("static") / "small"
    layerwise.shrink(teacher, TEXTS, folder, method="static")
    return folder


def certificate(folder):
    return json.loads((folder / "layerwise.json").read_text())


def encode(folder, texts):
    return SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)


def random_bags(texts=60, vocabulary=23, seed=1):
    """Bags of tokens of different lengths, one of them empty; some tokens occur in no text."""
    generator = np.random.default_rng(seed)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocabulary)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    lists = [generator.integers(0, vocabulary - 4, size=i % 7) for i in range(texts)]
    return token_bags(words, [" ".join(f"t{i}" for i in one) for one in lists]), lists


# Bags of tokens, and how much each token counts


def test_the_vector_of_a_bag_is_the_mean_of_its_rows():
    bags, lists = random_bags()
    rows = torch.randn(23, 5)
    expected = torch.stack([rows[list(one)].mean(dim=0) if len(one) else torch.zeros(5) for one in lists])
    torch.testing.assert_close(bags.means(rows), expected)
    assert bags.token_counts().tolist() == np.bincount(np.concatenate(lists).astype(int), minlength=23).tolist()
    assert bags.text_counts().tolist() == [sum(i in one for one in lists) for i in range(23)]


def test_weights_follow_frequencies():
    bags, lists = random_bags()
    counts = np.bincount(np.concatenate(lists).astype(int), minlength=23) + 0.5
    np.testing.assert_allclose(token_weights("sif", 23, bags), 1e-3 / (1e-3 + counts / counts.sum()), rtol=1e-6)
    in_texts = np.array([sum(i in one for one in lists) for i in range(23)])
    np.testing.assert_allclose(token_weights("idf", 23, bags), np.log(61 / (1 + in_texts)) + 1, rtol=1e-6)
    zipf = token_weights("zipf", 23)
    assert (zipf.diff() > 0).all() and token_weights("none", 23).tolist() == [1.0] * 23


def test_words_that_are_added_become_one_token_each_within_their_borders_only():
    vocabulary = {"[UNK]": 0, "un": 1, "##known": 2, "known": 3, "the": 4, "##ing": 5}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    words = frequent_words(tokenizer, ["Unknown unknown the known", "the unknown the 12", "known knowning"], 5)
    assert words == ["unknown"], "divided by the tokenizer, and used three times; the others are whole, rare or numbers"
    add_words(tokenizer, words)
    again = Tokenizer.from_str(tokenizer.to_str())
    assert again.encode("the Unknown known").tokens == ["the", "unknown", "known"]
    assert again.encode("unknowning").tokens == ["un", "##known", "##ing"], "a part of another word is not the word"


# The vectors of tokens


def test_a_row_is_the_hidden_state_of_its_token_alone():
    model, tokenizer = make_model("bert"), make_tokenizer()
    network = network_from_object((model, tokenizer))
    rows = token_rows(network, [(9,), (5,), (7, 8)], Readout(2, tokens="no_special"))
    for ids, row in zip([[9], [5], [7, 8]], rows, strict=True):
        states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[2][0]
        torch.testing.assert_close(row, states.mean(dim=0).detach(), rtol=1e-4, atol=1e-5)


# How they are fitted


def test_fitted_rows_are_the_solution_of_the_normal_equations():
    bags, _ = random_bags()
    near, targets, penalty = torch.randn(23, 3), torch.randn(60, 3), 0.3
    shares, weight = bags.shares.to_dense().double(), penalty * 60 / 23
    left = shares.mT @ shares + weight * torch.eye(23, dtype=torch.float64)
    expected = torch.linalg.solve(left, shares.mT @ targets.double() + weight * near.double())
    found = fit_rows(near, bags, targets, penalty, torch.zeros(23, 3))
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.01)
    assert torch.equal(fit_rows(near, bags, targets, penalty, near)[-4:], near[-4:]), "tokens that no text has stay"


def test_a_teacher_that_is_a_bag_of_tokens_is_recovered_and_noise_is_not_fitted():
    (bags, _), (held, _) = random_bags(600), random_bags(200, seed=2)
    own, true = torch.randn(23, 6), torch.randn(23, 40)
    good = fit_static(own, bags, bags.means(true), held, held.means(true))
    assert good.unexplained < 0.01 < 0.3 < good.map_unexplained, "a map from 6 dimensions cannot do that"
    noise = fit_static(own, bags, torch.randn(600, 40), held, torch.randn(200, 40))
    assert noise.row_penalty == float("inf") or noise.row_penalty > good.row_penalty
    assert good.row_penalty == 0.01 and noise.unexplained < 1.05


def test_quantized_rows_are_off_by_half_a_step_at_most():
    rows = torch.randn(23, 40) * torch.logspace(-3, 3, 23).unsqueeze(1)
    whole, scales = quantized_rows(rows)
    assert whole.dtype == torch.int8 and whole.abs().max() == 127
    assert ((rounded_rows(rows) - rows).abs() <= 0.5001 * scales.unsqueeze(1)).all()


# The folder


def test_plain_sentence_transformers_loads_it_and_gives_the_mean_of_its_rows(static):
    model = SentenceTransformer(str(static), device="cpu")
    first, last = model.children()
    assert isinstance(first, StaticEmbedding) and isinstance(last, Normalize)
    rows, tokenizer = first.embedding.weight.detach().double(), make_tokenizer()
    for text in ("w1 w2 w2", "w80", " ".join(["w3 w4"] * 30)):
        mean = rows[tokenizer(text, add_special_tokens=False)["input_ids"]].mean(dim=0)
        torch.testing.assert_close(
            torch.from_numpy(model.encode([text])[0]).double(), mean / mean.norm(), rtol=0, atol=1e-5
        )
    assert not model.encode([""]).any(), "an empty text has no tokens"


def test_the_certificate_says_how_it_was_made(static):
    record = certificate(static)
    made = record["static"]
    assert record["checksum"] and record["max_difference"] < 2e-5 and record["texts"] == 26
    assert (made["layer"], made["rows"], made["dimensions"], made["words"]) == (3, 97, 32, 0)
    assert (made["map"], made["space"], made["weights"], made["dtype"]) == ("teacher", "teacher", "zipf", "float32")
    assert made["fitted_on"]["count"] == 112 and made["agreement"]["groups"][0]["texts"] == 13
    assert made["unexplained"] <= made["map_unexplained"] + 1e-6
    card = (static / "README.md").read_text()
    assert (
        "# Static model from" in card
        and "has no transformer" in card
        and "are in the space of" in card
        and "mean subtracted" in card
    )
    assert record["serving"] == [
        {"program": "sentence-transformers", "vectors": "exact", "note": "", "known": "run on this export"}
    ]


def test_queries_documents_and_pairs_are_fitted_on_and_pairs_are_searched(teacher, tmp_path):
    pairs = [(f"w{i % 80} w{i // 2}", f"w{i % 88} w{i % 80} w{i // 2}") for i in range(110)]
    layerwise.shrink(
        teacher, None, tmp_path / "small", method="static", queries=TEXTS[:40], documents=TEXTS[40:90], pairs=pairs
    )
    made = certificate(tmp_path / "small")["static"]
    assert made["compatibility"]["test"] == "pairs" and made["compatibility"]["searched"] == 55
    assert {group["name"] for group in made["agreement"]["groups"]} >= {"all", "queries", "documents"}
    assert "a list of 40 texts, a list of 50 texts, a list of 110 pairs" == made["fitted_on"]["name"]
    cases = made["compatibility"]["cases"]
    assert set(cases) == {"old_old", "new_old", "old_new", "new_new", "mixed", "gain"}
    assert "- new queries, new documents: " in (tmp_path / "small" / "README.md").read_text()


def test_it_is_more_like_its_teacher_than_token_embeddings_are(teacher, static, tmp_path):
    layerwise.shrink(teacher, None, tmp_path / "rows", method="static", layer=0, normalize=True)
    fitted, plain = (certificate(folder)["agreement"] for folder in (static, tmp_path / "rows"))
    assert fitted["texts"] == 13 and plain["texts"] == 120, "held-out texts of the user; without texts, demo texts"
    texts = [text.replace("w1", "w2") for text in TEXTS[:60]]
    wanted = encode(teacher, texts)
    alike = [
        neighbour_overlap(*map(torch.from_numpy, (wanted, encode(folder, texts))), 5)
        for folder in (static, tmp_path / "rows")
    ]
    assert alike[0] > alike[1]
    assert abs(encode(static, TEXTS).mean()) < 0.05, "the mean is subtracted"
    assert certificate(tmp_path / "rows")["static"]["fitted_on"] is None
    assert "other coordinates" in certificate(tmp_path / "rows")["agreement"]["note"]


def test_a_map_fewer_dimensions_and_int8(teacher, tmp_path):
    layerwise.shrink(
        teacher, TEXTS, tmp_path / "white", method="static", layer=0, transform="whiten", weights="idf", dims=7
    )
    assert encode(tmp_path / "white", ["w1 w2"]).shape == (1, 7)
    assert certificate(tmp_path / "white")["static"]["map"] == "whiten@7"
    layerwise.shrink(teacher, TEXTS, tmp_path / "few", method="static", layer=1, dims=7)
    assert certificate(tmp_path / "few")["static"]["space"] == "own", "the index of the teacher has more dimensions"
    if not hasattr(StaticEmbedding, "_fold_model2vec_weights"):
        pytest.skip("this version of sentence-transformers reads no 8-bit rows")
    layerwise.shrink(teacher, TEXTS, tmp_path / "whole", method="static", layer=1)
    layerwise.shrink(teacher, TEXTS, tmp_path / "small", method="static", layer=1, int8=True)
    large, small = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "small"))
    assert small < 0.45 * large, "a byte per number, a scale per row, and the header"
    both = [encode(tmp_path / name, TEXTS[:20]) for name in ("whole", "small")]
    assert (
        0.999 < (both[0] * both[1]).sum(axis=1).min() < 1
        and certificate(tmp_path / "small")["static"]["int8_cosine"] > 0.99
    )


def test_the_command_line_prints_what_was_gained_and_lost(teacher, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    out = str(tmp_path / "small")
    texts = str(tmp_path / "texts.txt")
    assert main(["shrink", teacher, "--method", "static", "--data", texts, "--words", "5", "--out", out]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "97 token vectors from layer 3 of model, fitted to give its vectors" in printed
    assert "your index:" in printed and f"layerwise eval {out} --tasks STSBenchmark" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 2}, "method static has no --blocks: leave out --blocks"),
        ({"steps": 5, "work": "here"}, "method static has no --steps, --work"),
        ({"transform": "whiten"}, "--transform needs texts"),
        ({"words": 5}, "--words needs texts"),
        ({"weights": "idf"}, "--weights needs texts"),
        ({"dims": 8}, "--dims needs texts"),
        ({"transform": "center+static", "data": TEXTS}, r"leave out \+"),
        ({"dims": 33, "data": TEXTS}, "cannot keep 33 dimensions of vectors that have 32"),
        ({"data": TEXTS[:20]}, "at least 50 different texts"),
        ({"weights": "often", "data": TEXTS}, "sif, idf, zipf, none"),
    ],
)
def test_what_makes_no_sense_is_refused(teacher, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        layerwise.shrink(teacher, options.pop("data", None), tmp_path / "small", method="static", layer=1, **options)
    assert not (tmp_path / "small").exists()


def test_token_vectors_of_a_model_with_blocks_and_a_bare_language_model_are_refused(teacher, tmp_path):
    with pytest.raises(InputError, match="method linear has no --words: leave out --words"):
        layerwise.shrink(teacher, TEXTS, tmp_path / "small", method="linear", words=5)
    model = make_model("llama")
    model.config.architectures = ["LlamaForCausalLM"]
    with pytest.raises(InputError, match="no vectors to imitate"):
        layerwise.shrink((model, make_tokenizer()), TEXTS, tmp_path / "small", method="static", layer=0)


# Reading it again


def test_eval_embed_and_tradeoff_read_a_static_model(static, teacher, tmp_path):
    root = write_root(tmp_path / "root")
    (row,), (again,) = (
        layerwise.eval(model, "Mine", data_root=root, out=tmp_path / out)
        for model, out in ((static, "scores"), (SentenceTransformer(str(static)), "again"))
    )
    assert row.layer == 0 and row.norm == "shipped" and row.value == again.value
    vectors = layerwise.embed(static, TEXTS[:5], layers="all")
    assert list(vectors.columns) == ["id", "text", "last"]
    np.testing.assert_allclose(np.stack(vectors["last"]), encode(static, TEXTS[:5]), atol=1e-6)
    layerwise.eval(teacher, "Mine", data_root=root, layers="2,last", out=tmp_path / "whole")
    costs = layerwise.lab.tradeoff(tmp_path / "whole", data=TEXTS, others=tmp_path / "scores", repeats=1)
    small = costs[costs.model == "small"].iloc[0]
    assert small.parameters == 97 * 32 and small.score == pytest.approx(row.value)


def save_word_encoder(folder):
    """A random encoder whose vocabulary has all words of the sentences that pick scores, so that they differ."""
    words = sorted(
        {word for probe in proxy_probes() for text in probe.texts for word in re.findall(r"\w+|[^\w\s]+", text)}
    )
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<pad>", "<unk>", *words])}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", unk_token="<unk>").save_pretrained(folder)
    config = AutoConfig.for_model(
        "bert", vocab_size=len(words) + 2, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=128,
    )  # fmt: skip
    AutoModel.from_config(config).save_pretrained(folder)
    return str(folder)


def test_pick_scores_the_static_model_that_export_writes(tmp_path):
    """Its scores are those of the exported folder, in plain sentence-transformers; the answer stays the same."""
    teacher, static = save_word_encoder(tmp_path / "teacher"), tmp_path / "static"
    texts = list(demo_sentences())
    layerwise.shrink(teacher, texts, static, method="static")
    found = layerwise.pick(teacher, texts, compare_static=True)
    row = found.static_model
    assert (row.layer, row.transform) == (3, "none")  # the last layer of the teacher; no map but the fit
    weights = default_rulebook().weights
    for probe in proxy_probes():
        if weights.get(probe.name):
            vectors = encode(static, list(probe.texts)).astype(np.float64)
            assert row.scores[probe.name] == pytest.approx(100 * probe.score(vectors).mean(), abs=1e-6)
    plain = layerwise.pick(teacher, texts)
    assert plain.recipe == found.recipe and plain.layers[0].scores == found.layers[0].scores
    assert plain.static_model is None and "static" not in plain.describe()
    last = found.layers[-1]
    gap = {name: row.scores[name] - last.scores[name] for name in row.scores}
    assert row.gain.mean == pytest.approx(sum(weights[n] * gap[n] for n in gap) / sum(weights[n] for n in gap))
    found.save(tmp_path / "picked")
    assert type(found).load(tmp_path / "picked").static_model == row


def test_pick_compares_whitened_embeddings_of_a_language_model_and_prints_how_to_export_them(tmp_path, capsys):
    model = save_byte_model(tmp_path / "model", depth=2)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = ["--fit", str(tmp_path / "texts.txt"), "--max-length", "24"]
    assert main(["pick", model, *words, "--compare-static"]) == 0
    printed = capsys.readouterr().out
    assert "a static model, which runs no block" in printed and "\nstatic " in printed
    *_, command = printed.strip().splitlines()
    assert command.split()[:3] == ["layerwise", "shrink", model] and "--layer 0 --transform whiten" in command
    out = tmp_path / "made"
    assert main([*command.split()[1:-1], str(out)]) == 0 and certificate(out)["static"]["map"] == "whiten"


def test_a_rule_runs_no_model_and_so_no_static_one(tiny_llama, tmp_path):
    layerwise.scan(tiny_llama, TEXTS[:8], out=tmp_path / "run")
    with pytest.raises(InputError, match="makes no use of compare_static"):
        layerwise.pick(tmp_path / "run", rule="last", compare_static=True)


def test_other_commands_say_that_it_has_no_layers(static, tmp_path):
    for call in (
        lambda: layerwise.scan(static, TEXTS, out=tmp_path / "run"),
        lambda: layerwise.export(static, 0, tmp_path / "new"),
        lambda: layerwise.pick(static, TEXTS),
        lambda: layerwise.doctor(static),
        lambda: layerwise.shrink(static, TEXTS, tmp_path / "new"),
        lambda: layerwise.scan(SentenceTransformer(str(static)), TEXTS, out=tmp_path / "run"),
    ):
        with pytest.raises(ModelError, match="no layers to read"):
            call()
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="no layers, tokens or pooling to choose"):
        layerwise.embed(static, TEXTS, layers="0")
    with pytest.raises(InputError, match="leave out dtype"):
        layerwise.embed(layerwise.ModelSpec(str(static), dtype="bfloat16"), TEXTS)


def test_two_static_models_are_two_models(static, teacher):
    one = made_static("a", torch.ones(97, 3), make_tokenizer().backend_tokenizer, unit=False)
    two = made_static("a", torch.ones(97, 3) * 2, make_tokenizer().backend_tokenizer, unit=False)
    assert (
        one.fingerprint()
        == made_static("b", torch.ones(97, 3), one.tokenizer.backend_tokenizer, unit=False).fingerprint()
    )
    assert one.fingerprint() != two.fingerprint()


@pytest.mark.real
def test_a_static_model_of_a_real_encoder_is_like_it_on_texts_that_it_was_not_fitted_on(real_model, tmp_path):
    layerwise.shrink(real_model("all-minilm-l6-v2"), "demo", tmp_path / "small", method="static", layer=0)
    record = certificate(tmp_path / "small")
    assert record["static"]["unexplained"] < 0.9 and record["static"]["agreement"]["groups"][0]["mean_cosine"] > 0.3
    assert all(found["ratio"] < 0.1 for found in record["encoding_times"]) and record["max_difference"] < 2e-5
