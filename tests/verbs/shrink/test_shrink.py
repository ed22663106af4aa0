"""shrink: which blocks are kept, the map to the whole model's vectors, and whether an index can be kept."""

import json
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from embedders import ship_model
from families import make_model, make_tokenizer
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import Ridge

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.inputs.pairs import read_pairs
from layerwise.maps.linear import LinearMap
from layerwise.maps.ridge import PENALTIES, fit_ridge
from layerwise.models.load import ModelSpec
from layerwise.models.opening import open_network
from layerwise.models.readouts import last_recipe
from layerwise.models.truncate import keep_blocks
from layerwise.verbs.export.backends.backend import ExportJob
from layerwise.verbs.export.certificate import expected_vectors
from layerwise.verbs.export.summary import mean_words, size_words
from layerwise.verbs.shrink.blocks import candidates, evenly_spaced, named_blocks, neighbours, search_blocks
from layerwise.verbs.shrink.index_advice import (
    Case,
    Cases,
    Mean,
    advise,
    check_compatibility,
    choose_test,
    closeness,
    grouped_agreement,
    halves,
    one_kind_hint,
    reciprocal_ranks,
)
from layerwise.verbs.shrink.linear import block_words
from layerwise.verbs.shrink.student import search_prompts
from layerwise.verbs.shrink.texts import GivenTexts, PromptedText, TextSplit, split_texts

TEXTS = [" ".join(f"w{(i * i + 7 * j + i // 90) % 89}" for j in range(6 + i % 9)) for i in range(150)]


def with_idle_block(number):
    """A decoder in which one block, counted from 0, adds nothing."""
    model = make_model("llama")
    with torch.no_grad():
        model.layers[number].self_attn.o_proj.weight.zero_()
        model.layers[number].mlp.down_proj.weight.zero_()
    return model


def certificate(folder):
    return json.loads((folder / "layerwise.json").read_text())


def vectors(folder, texts=TEXTS, **options):
    return SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False, **options)


# The linear map


def test_ridge_is_what_scikit_learn_fits_with_the_penalty_that_is_best_on_held_out_rows():
    generator = np.random.default_rng(3)
    rows, held = generator.normal(size=(60, 12)) * np.arange(1, 13), generator.normal(size=(30, 12)) * np.arange(1, 13)
    weights = generator.normal(size=(12, 5))
    targets, held_targets = (x @ weights + 8 * generator.normal(size=(len(x), 5)) + 3 for x in (rows, held))
    found = fit_ridge(*map(torch.from_numpy, (rows, targets, held, held_targets)))
    scale = np.linalg.eigvalsh(np.cov(rows.T, bias=True)).mean()
    fits = {p: Ridge(alpha=p * scale * len(rows)).fit(rows, targets) for p in PENALTIES}
    errors = {p: ((fit.predict(held) - held_targets) ** 2).sum() for p, fit in fits.items()}
    best = min(errors, key=errors.get)
    assert found.penalty == best and 0 < PENALTIES.index(best) < len(PENALTIES) - 1, "the choice matters here"
    np.testing.assert_allclose(found.linear(torch.from_numpy(held)).numpy(), fits[best].predict(held), rtol=1e-9)
    total = ((held_targets - targets.mean(axis=0)) ** 2).sum()
    assert found.unexplained == pytest.approx(errors[best] / total)


def test_rows_that_are_all_the_same_give_the_mean():
    found = fit_ridge(torch.ones(9, 4), torch.arange(9.0).view(9, 1), torch.ones(3, 4), torch.full((3, 1), 4.0))
    assert torch.allclose(found.linear(torch.zeros(1, 4)), torch.tensor([[4.0]])) and found.unexplained == 0


# Blocks


@pytest.mark.parametrize("family", ["bert", "llama", "gemma3_text", "gpt2"])
def test_a_model_of_some_blocks_runs_exactly_those(family, tmp_path):
    """Against the whole model with the other block skipped by a hook, and after saving and loading."""
    model = make_model(family)
    ids = torch.arange(5, 17).view(2, 6)
    small = keep_blocks(model, (0, 2))
    small.save_pretrained(tmp_path)
    loaded = type(small).from_pretrained(tmp_path)
    (blocks,) = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 3)
    whole = {name: weight.clone() for name, weight in model.state_dict().items()}

    def skip(block, arguments, output):
        return (arguments[0], *output[1:]) if isinstance(output, tuple) else arguments[0]

    with torch.inference_mode():
        handle = blocks[1].register_forward_hook(skip)
        expected = model(input_ids=ids, use_cache=False).last_hidden_state
        handle.remove()
        for found in (small, loaded):
            assert torch.equal(found(input_ids=ids, use_cache=False).last_hidden_state, expected)
        assert not torch.allclose(model(input_ids=ids, use_cache=False).last_hidden_state, expected, atol=1e-3)
    assert all(torch.equal(weight, whole[name]) for name, weight in model.state_dict().items())


def test_every_candidate_and_neighbour_has_the_right_number_of_blocks():
    for depth in range(2, 9):
        for count in range(1, depth):
            found = candidates(depth, count)
            assert len(set(found)) == len(found) and tuple(range(count)) in found
            for blocks in (*found, *neighbours(found[-1], depth), evenly_spaced(depth, count)):
                assert len(set(blocks)) == count and list(blocks) == sorted(blocks)
                assert set(blocks) <= set(range(depth))


def test_the_search_finds_the_best_set_where_each_block_has_its_own_worth():
    worth = [5, 1, 4, 2, 0, 3, 9]

    def error(blocks):
        return -sum(worth[block] for block in blocks)

    found = search_blocks(7, 3, error, lambda blocks, error: None)
    assert found.kept == min(combinations(range(7), 3), key=error)
    assert found.errors == {blocks: error(blocks) for blocks in found.errors}


def test_names_of_blocks():
    assert (named_blocks("1,6,2", 6, None), named_blocks("prefix", 6, 2)) == ((0, 1, 5), (0, 1))
    assert (evenly_spaced(12, 6), block_words((0, 1, 2, 5))) == ((0, 2, 4, 7, 9, 11), "1-3,6")
    for words, count in (
        ("1,1", None),
        ("0,1", None),
        ("1,9", None),
        ("best", None),
        ("1,2", 3),
        ("1,2,3,4,5,6", None),
    ):
        with pytest.raises(InputError, match="choose"):
            named_blocks(words, 6, count)


@pytest.mark.parametrize("idle", [0, 1, 2])
def test_a_block_that_adds_nothing_is_left_out_and_nothing_is_lost(tmp_path, idle, capsys):
    """The student then has the teacher's own states, so its map must recover the vectors: also for the index."""
    teacher = ship_model(tmp_path / "teacher", with_idle_block(idle))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = [
        "shrink",
        teacher,
        "--data",
        str(tmp_path / "texts.txt"),
        "--blocks",
        "2",
        "--out",
        str(tmp_path / "small"),
    ]
    assert main(words) == 0
    record = certificate(tmp_path / "small")
    assert record["shrunk"]["blocks"] == block_words(tuple(b for b in range(3) if b != idle))
    cosine = (vectors(tmp_path / "small") * vectors(teacher)).sum(axis=1)
    assert cosine.min() > 0.98
    assert record["shrunk"]["agreement"]["groups"][0]["mean_cosine"] > 0.99
    assert record["blocks"] == {"before": 3, "after": 2} and not record["whole_model"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "your index: not known: the texts are short" in printed and "2 of 3 blocks" in printed
    card = (tmp_path / "small" / "README.md").read_text()
    assert "teacher with 2 of 3 blocks" in card and "Your index: not known" in card and "Against" not in card
    assert not (tmp_path / "small.work").exists()


# The folder


@pytest.mark.parametrize("form", [
    {"pooling": "cls"}, {"dense": 8, "normalize": False}, {"pooling": "lasttoken", "dense": 48},
])  # fmt: skip
def test_the_folder_has_the_pooling_of_the_teacher_and_the_least_squares_map(tmp_path, form):
    """Its vectors are those of a map from the cut model's pooled vectors, and no other map of that kind is better."""
    teacher = ship_model(tmp_path / "teacher", make_model("bert"), **form)
    layerwise.shrink(teacher, TEXTS, tmp_path / "small", choose="1,3", work=tmp_path / "work")
    small, whole = SentenceTransformer(str(tmp_path / "small"), device="cpu"), vectors(teacher)
    assert [type(m).__name__ for m in small] == ["Transformer", "Pooling", "Dense"] + ["Normalize"] * form.get(
        "normalize", True
    )
    found = small.encode(TEXTS, show_progress_bar=False)
    assert found.shape == whole.shape and small.max_seq_length == 24
    pooled = SentenceTransformer(modules=[small[0], small[1]], device="cpu").encode(TEXTS, show_progress_bar=False)
    fitted = [i for i, text in enumerate(TEXTS) if text in {t.text for t in split_texts(TEXTS, [""], 0).fit}]
    extended = np.column_stack([pooled, np.ones(len(TEXTS))]).astype(float)
    best = extended @ np.linalg.lstsq(extended[fitted], whole[fitted].astype(float), rcond=None)[0]
    linear = pooled @ small[2].linear.weight.detach().numpy().T + small[2].linear.bias.detach().numpy()

    def left(predicted, rows):
        return ((predicted[rows] - whole[rows]) ** 2).mean()

    assert left(best, fitted) <= left(linear, fitted) < whole[fitted].var(axis=0).mean()
    expected = linear / np.linalg.norm(linear, axis=1, keepdims=True) if form.get("normalize", True) else linear
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_prompts_are_kept_and_each_is_fitted(tmp_path):
    prompts = {"query": "w80 w81 ", "document": "w82 "}
    teacher = ship_model(tmp_path / "teacher", with_idle_block(1), prompts=prompts, default="query")
    small = layerwise.shrink(teacher, TEXTS * 2, tmp_path / "small", blocks=2)
    assert small.prompts == prompts and small.default_prompt_name == "query"
    for name in (None, "document"):
        cosine = (vectors(tmp_path / "small", prompt_name=name) * vectors(teacher, prompt_name=name)).sum(axis=1)
        assert cosine.mean() > 0.99, name
    split = split_texts(TEXTS, ["a", "b"], 0)
    assert {item.prompt for item in split.fit} == {"a", "b"} == {item.prompt for item in split.held_out}


def test_an_exported_recipe_can_be_shrunk(tmp_path, tiny_llama):
    layerwise.export(tiny_llama, 2, tmp_path / "recipe", transform="whiten", fit=TEXTS)
    small = layerwise.shrink(tmp_path / "recipe", TEXTS, tmp_path / "small", blocks=1)
    assert small.encode(TEXTS[:2]).shape == (2, 32) and certificate(tmp_path / "small")["blocks"]["after"] == 1


def test_blocks_that_a_recipe_does_not_read_are_not_chosen_from(tmp_path, tiny_llama):
    layerwise.export(tiny_llama, 2, tmp_path / "recipe", transform="center", fit=TEXTS)  # portable: one block more
    assert certificate(tmp_path / "recipe")["blocks"]["after"] == 3
    with pytest.raises(InputError, match="need 2 blocks; keep fewer: --blocks 1 to 1"):
        layerwise.shrink(tmp_path / "recipe", TEXTS, tmp_path / "small", blocks=2)
    layerwise.shrink(tmp_path / "recipe", TEXTS, tmp_path / "small", method="linear")
    tried = certificate(tmp_path / "small")["shrunk"]["choice"]["unexplained"]
    assert set(tried) == {"1", "2"}


def test_a_map_in_the_model_is_allowed_the_noise_of_the_same_map_in_a_recipe(tmp_path):
    """A map that removes most of a vector leaves little but rounding noise of what it removed."""
    network = open_network(ship_model(tmp_path / "plain", make_model("llama"), normalize=False))
    job = ExportJob(network, last_recipe(network), None, 24)
    rows = expected_vectors(job).vectors
    weight = torch.eye(32) - torch.outer(rows[0], rows[0]) / rows[0].square().sum() * (1 - 1e-3)
    inside = open_network(ship_model(tmp_path / "inside", make_model("llama"), dense=32, normalize=False))
    linear = inside.head.modules[-1].linear
    with torch.no_grad():
        linear.weight.copy_(weight), linear.bias.zero_()
    inside.head.modules[-1].activation_function = torch.nn.Identity()
    same = replace(job, linear=LinearMap(linear.weight.detach().double(), linear.bias.detach().double()))
    expected, other = expected_vectors(same), expected_vectors(replace(job, network=inside))
    torch.testing.assert_close(expected.vectors, other.vectors, rtol=0, atol=0.01 * expected.largest)
    assert other.tolerance == pytest.approx(expected.tolerance, rel=1e-3) and other.tolerance > 1e-5 * other.largest
    assert not linear._forward_hooks, "the model is left as it was"


def test_texts_are_divided_by_seed_and_not_by_their_order():
    one, two, other = (split_texts(texts, [""], seed) for texts, seed in ((TEXTS, 0), (TEXTS[::-1], 0), (TEXTS, 1)))
    assert one == two != other
    parts = [item.text for part in (one.fit, one.held_out, one.check) for item in part]
    assert sorted(parts) == sorted(set(TEXTS)) and len(one.held_out) == len(one.check) == len(set(TEXTS)) // 10


def test_texts_that_differ_in_case_or_space_alone_are_one():
    twins = [twin for text in TEXTS for twin in (text, f"{text} ", text.upper(), text.replace(" ", "  "))]
    found, expected = split_texts(twins, [""], 0), split_texts(TEXTS, [""], 0)
    assert [len(part) for part in (found.fit, found.held_out, found.check)] == [
        len(part) for part in (expected.fit, expected.held_out, expected.check)
    ]
    assert split_texts(twins[::-1], [""], 0) == found


# The index


def test_ranks_by_hand():
    queries = torch.tensor([[1.0, 0.2, 0.1], [0.9, 0.5, 0.1], [1.0, 1.0, 1.0]])
    close = closeness(queries, torch.eye(3))
    # the second document is second for its query; equal cosines count as before it
    assert reciprocal_ranks(close, torch.eye(3).bool()).tolist() == [1.0, 0.5, 1 / 3]
    several = torch.tensor([[False, True, True], [True, True, False], [True, True, False]])
    assert reciprocal_ranks(close, several).tolist() == [0.5, 1.0, 0.5], "the first of several documents counts"


def numbered(count, words=24):
    """Long texts, both halves of which begin with the number of the text."""
    half = " ".join("abcdefghijklmnopqrstuvwxyz"[: words // 2 - 1])
    return tuple(PromptedText(f"{i} {half} {i} {half}") for i in range(count))


def by_number(items):
    return torch.from_numpy(
        np.stack([np.random.default_rng(int(item.text.split()[0])).normal(size=16) for item in items])
    )


def turned(items):
    return by_number(items).roll(1, dims=1)


def test_an_index_is_kept_by_the_same_model_and_not_by_a_turned_one():
    split = TextSplit((), (), numbered(60))
    same = check_compatibility(by_number, by_number, split)
    assert (same.test, same.searched, same.advice) == ("halves", 60, "keep") and same.cases.new_old.loss.mean == 0
    assert "new documents may be embedded with either model" in same.answer
    other = check_compatibility(by_number, turned, split)
    assert other.cases.new_new.loss.mean == pytest.approx(0) and other.cases.new_old.loss.mean > 0.5
    assert other.advice == "re-embed" and other.answer.startswith("re-embed")
    few = check_compatibility(by_number, by_number, TextSplit((), (), numbered(20)))
    assert few.advice == "unknown" and few.answer.startswith("not known: only 20 texts of 20 words or more")


def test_random_vectors_do_not_keep_an_index():
    def random_rows(seed):
        generator = torch.Generator().manual_seed(seed)
        return lambda items: torch.randn(len(items), 16, generator=generator)

    found = check_compatibility(random_rows(0), random_rows(100), TextSplit((), (), numbered(300)))
    assert found.cases.new_old.loss.mean < 0.02, "hardly anything can be lost"
    assert found.advice == "unknown" and found.answer.startswith("not known: the original itself hardly finds")


def test_a_mixed_index_prefers_documents_of_the_model_that_asks():
    """Turned vectors are near to one another only: in a mixed index a query finds its document where both are new."""
    found = check_compatibility(by_number, turned, TextSplit((), (), numbered(60))).cases
    assert found.mixed.mrr.mean == pytest.approx((found.new_new.mrr.mean + found.new_old.mrr.mean) / 2, abs=0.1)


def loses(mean, error=0.005):
    return Case(Mean(0.7 - mean, (0.65 - mean, 0.75 - mean)), Mean(mean, (mean - error, mean + error)))


KEEP, ORIGINAL = "you can keep your index and search it with the small model", "keep the original model"


@pytest.mark.parametrize(
    ("new_old", "new_new", "mixed", "gain", "action", "says"),
    [
        (loses(0.009), loses(0.134), loses(0.07), (-0.125, 0.03), "keep", [KEEP, "do not re-embed", "lose 0.125 more"]),
        (loses(0.009), loses(0.134), loses(0.07), (-0.125, 0.03), "keep", ["embed new documents with the original"]),
        (loses(0.001), loses(0.001), loses(0.001), (0.0, 0.01), "keep", [KEEP, "with either model"]),
        (loses(0.001), loses(0.001), loses(0.017), (0.0, 0.01), "keep", ["embed new documents with the original"]),
        (loses(0.01), loses(-0.05), loses(0.01), (0.06, 0.01), "keep", [KEEP, "would gain 0.060"]),
        (loses(0.015, 0.02), loses(0.1), loses(0.1), (-0.1, 0.2), "keep", ["you can probably keep", "use more texts"]),
        (loses(0.08), loses(0.01), loses(0.2), (0.07, 0.01), "re-embed", ["re-embed your documents", "loss is 0.010"]),
        (loses(0.08), loses(0.01, 0.03), loses(0.2), (0.07, 0.01), "re-embed", ["use more texts to be sure"]),
        (loses(0.08), loses(0.01), loses(0.2), (0.07, 0.08), "original", [ORIGINAL, "is not better", "more blocks"]),
        (loses(0.08), loses(0.08), loses(0.08), (0.0, 0.01), "original", [ORIGINAL, "is not better"]),
        (loses(0.08), loses(0.13), loses(0.08), (-0.05, 0.01), "original", [ORIGINAL, "loses 0.050 more"]),
        (loses(0.08), loses(0.05), loses(0.08), (0.03, 0.01), "original", [ORIGINAL, "0.050 would still be lost"]),
        (loses(0.03, 0.02), loses(0.05), loses(0.08), (-0.02, 0.01), "original", ["probably loses too much"]),
    ],
)  # fmt: skip
def test_the_advice_follows_from_the_losses_and_their_intervals(new_old, new_new, mixed, gain, action, says):
    mean, error = gain
    cases = Cases(loses(0, 0), new_old, new_old, new_new, mixed, Mean(mean, (mean - error, mean + error)))
    found = advise(cases, 0.02, "keep more blocks")
    assert found.action == action
    for words in says:
        assert words in found.answer
    if mean - error <= 0:
        assert not found.answer.startswith("re-embed"), "only where new/new is better beyond its interval"


def test_what_is_searched_depends_on_what_is_known_about_the_texts():
    """Pairs first, then queries and documents, then halves of long texts; halves of queries are never searched."""
    queries, documents = [f"what is {i}" for i in range(200)], [f"{i} " + "word " * 30 for i in range(300)]
    pairs = [(f"who is {i}", f"person {i}") for i in range(120)]
    found = choose_test(split_texts(GivenTexts("", documents, queries, documents[:50], pairs), [""], 0))
    assert found.kind == "pairs" and len(found.queries) == 60
    for query, (place, *others) in zip(found.queries, found.targets, strict=True):
        assert not others and found.documents[place].text.split()[-1] == query.text.split()[-1]
    assert {text.text for text in found.documents} >= set(documents), "other documents and long texts are in the way"
    found = choose_test(split_texts(GivenTexts("", [], queries, documents), [""], 0))
    assert found.kind == "first" and len(found.queries) == 20 and len(found.documents) == 300 and not found.targets
    found = choose_test(split_texts(documents, [""], 0))
    assert found.kind == "halves" and len(found.queries) == 30
    for texts in (GivenTexts("", queries), GivenTexts("", [], [f"{text} {documents[0]}" for text in queries])):
        assert "queries say nothing about documents; pass --queries" in choose_test(split_texts(texts, [""], 0))
    mostly_short = choose_test(split_texts([*queries, *queries[:1], *documents[:30]], [""], 0))
    assert isinstance(mostly_short, str), "a few long requests do not make documents"


def test_queries_search_for_the_document_that_the_original_finds_first():
    given = GivenTexts("", [], [f"{i} query" for i in range(600)], [f"{i} document" for i in range(600)])
    split = split_texts(given, [""], 0)
    found = check_compatibility(by_number, by_number, split)
    assert found.test == "first" and found.searched == 60 and found.cases.old_old.mrr == Mean(1.0, (1.0, 1.0))
    assert found.advice == "keep"
    found = check_compatibility(by_number, turned, split)
    assert found.cases.new_old.loss.mean > 0.5 and found.advice != "keep"


def test_texts_of_a_kind_have_its_prompt_and_none_is_both_fitted_on_and_checked():
    pairs = [(f"Question {i // 2}", f"answer {i}") for i in range(400)]  # two answers each
    given = GivenTexts(
        "", ["question 3", *(f"text {i}" for i in range(100))], ["QUESTION  4", *(f"query {i}" for i in range(100))],
        [f"document {i}" for i in range(100)], pairs,
    )  # fmt: skip
    split = split_texts(given, ["default "], 0, ("query: ", "passage: "))
    parts = [{item.text.casefold() for item in part} for part in (split.fit, split.held_out, split.check)]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    prompts = {"query": "query: ", "document": "passage: ", "other": "default "}
    assert all(item.prompt == prompts[item.kind] for part in (split.fit, split.held_out, split.check) for item in part)
    assert {item.kind for item in split.held_out} == {item.kind for item in split.check} == set(prompts)
    assert len(split.pairs) == 100 and all(len(pair.documents) == 2 for pair in split.pairs)
    assert {item.text.casefold() for pair in split.pairs for item in (pair.query, *pair.documents)} <= parts[2]


def test_pairs_are_read_from_tables_and_lists(tmp_path):
    import pandas as pd

    table = pd.DataFrame({"query": ["a", "b"], "document": ["c", "d"], "more": [1, 2]})
    table.to_csv(tmp_path / "pairs.csv", index=False)
    for given in (tmp_path / "pairs.csv", table, [("a", "c"), ["b", "d"]]):
        assert read_pairs(given)[1] == [("a", "c"), ("b", "d")]
    for given, message in (
        (
            table.rename(columns={"document": "documents"}),
            "no column 'document'; it has query, documents, more; rename",
        ),
        (table.rename(columns={"query": "question"}), "rename question to query"),
        (table.drop(columns="query"), "pairs need the columns query and document"),
        (table.assign(document=["c", None]), "row 2: document must be text, but is missing"),
        ([("a",)], "row 1: expected two texts"),
        (["ab"], "row 1: expected two texts"),
    ):
        with pytest.raises(InputError, match=message):
            read_pairs(given)


def test_agreement_is_reported_by_kind_and_length():
    """A student that does not know documents: a mean over all texts would hide that."""
    queries, documents = [f"{i} query" for i in range(300)], [f"{i} " + "word " * 45 for i in range(200)]
    split = split_texts(GivenTexts("", [], queries, documents), [""], 0)

    def student(items):
        rows = by_number(items)
        return torch.where(
            torch.tensor([item.kind == "query" for item in items]).unsqueeze(1), rows, rows.roll(1, dims=1)
        )

    found = grouped_agreement(by_number, student, split)
    groups = {group.name: group for group in found.groups}
    assert list(groups) == [
        "all", "queries", "documents", "texts of up to 8 words", "texts of more than 40 words",
    ]  # fmt: skip
    assert groups["queries"].mean_cosine == pytest.approx(1) and groups["documents"].mean_cosine < 0.5
    assert (groups["queries"].texts, groups["documents"].texts, groups["all"].texts) == (30, 20, 50)
    assert groups["documents"].worst_cosine < groups["documents"].mean_cosine
    (warning,) = found.warnings
    assert warning.startswith("documents agree much less with the original")


@pytest.mark.parametrize(
    ("texts", "hint"),
    [
        ([PromptedText("a b c")] * 9 + [PromptedText("a " * 30)], "90 % of the texts have fewer than 20 words"),
        ([PromptedText("a " * 30, kind="query")] * 9, "all texts are queries: if the model will also read documents"),
        ([PromptedText("a " * 30)] * 9, "100 % of the texts have 20 words or more"),
        (
            [PromptedText("a", kind="document")] * 9,
            "all texts are documents: if the model will also read short queries",
        ),
        ([PromptedText("a b c")] * 5 + [PromptedText("a " * 30)] * 5, ""),
        ([PromptedText("a", kind="query"), PromptedText("a", kind="document")], ""),
    ],
)
def test_texts_of_one_kind_give_a_hint(texts, hint):
    found = one_kind_hint(texts)
    assert hint in found if hint else not found


def test_the_index_is_searched_with_the_prompts_of_queries_and_documents(tmp_path):
    texts = [PromptedText("a b c d e f", prompt) for prompt in ("", "query: ", "passage: ")]
    queries, documents = halves(texts, ("query: ", "passage: "))
    assert {item.prompt for item in queries} == {"query: "} and {item.prompt for item in documents} == {"passage: "}
    assert [item.prompt for item in halves(texts)[0]] == ["", "query: ", "passage: "]
    prompts = {"query": "query: ", "passage": "passage: "}
    folder = ship_model(tmp_path / "teacher", make_model("bert"), prompts=prompts)
    assert search_prompts(open_network(folder)) == ("query: ", "passage: ")
    assert search_prompts(open_network(ship_model(tmp_path / "plain", make_model("bert")))) is None


def test_a_model_in_half_precision_keeps_its_length(tmp_path):
    folder = ship_model(tmp_path / "teacher", make_model("bert"))
    made = layerwise.shrink(ModelSpec(str(folder), dtype="bfloat16"), TEXTS, tmp_path / "small", blocks=1)
    assert np.linalg.norm(made.encode(TEXTS[:5]).astype(float), axis=1) == pytest.approx(1, abs=0.02)
    assert "Normalize" in (tmp_path / "small/modules.json").read_text()


def test_a_slash_after_the_folder_changes_nothing(tmp_path, tiny_bert):
    layerwise.shrink(tiny_bert, TEXTS, f"{tmp_path}/small/", blocks=1)
    assert (tmp_path / "small/layerwise.json").is_file() and not (tmp_path / "small.work").exists()


def test_blocks_are_named_as_they_are_printed():
    assert named_blocks("1-2,9-12", 16, None) == named_blocks("1,2,9,10,11,12", 16, None) == (0, 1, 8, 9, 10, 11)
    for words in ("2-", "2-1-3", "a-b", "2-1"):
        with pytest.raises(InputError, match="choose"):
            named_blocks(words, 16, None)


# What is refused


def test_what_cannot_be_done_is_refused_before_anything_is_computed(tmp_path, tiny_bert):
    for given, message in (
        ({"blocks": 3}, "need 3 blocks; keep fewer"),
        ({"method": "distill"}, "either minutes"),
        ({"method": "distill", "minutes": 1, "steps": 1}, "either minutes"),
        ({"steps": 3}, "add --method distill"),
        ({"blocks": 0}, "blocks must be at least 1"),
        ({"method": "distill", "minutes": -1}, "minutes must be a number above 0"),
        ({"choose": "1,7"}, "blocks 1 to 3"),
    ):
        with pytest.raises(InputError, match=message):
            layerwise.shrink(tiny_bert, TEXTS, tmp_path / "small", **given)
    with pytest.raises(InputError, match="at least 50 different texts .* got 2"):
        layerwise.shrink(tiny_bert, ["w1", "w2", "w1"] * 40, tmp_path / "small")
    with pytest.raises(InputError, match="shrink needs texts: pass --data, --queries, --documents or --pairs"):
        layerwise.shrink(tiny_bert, None, tmp_path / "small")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(RunError, match="is not empty"):
        layerwise.shrink(tiny_bert, TEXTS, tmp_path / "small", work=tmp_path / "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_shared_blocks_are_refused(tmp_path):
    make_model("albert").save_pretrained(tmp_path / "albert")
    make_tokenizer().save_pretrained(tmp_path / "albert")
    with pytest.raises(InputError, match="share their weights"):
        layerwise.shrink(tmp_path / "albert", TEXTS, tmp_path / "small", method="linear")


def test_a_language_model_without_a_pooling_is_refused_as_for_a_static_model(tmp_path):
    model = make_model("llama")
    model.config.architectures = ["LlamaForCausalLM"]
    for call in (
        lambda: layerwise.shrink((model, make_tokenizer()), TEXTS, tmp_path / "small"),
        lambda: layerwise.shrink((model, make_tokenizer()), TEXTS, tmp_path / "small", method="static", layer=0),
    ):
        with pytest.raises(InputError, match="no vectors to imitate. Make it an embedding model first .layerwise pick"):
            call()
    assert not list(tmp_path.iterdir())


def test_queries_documents_and_pairs_on_the_command_line(tmp_path, tiny_bert, capsys, monkeypatch):
    """A search with pairs is printed as five rows, and everything is in the record and in the card."""
    monkeypatch.chdir(tmp_path)
    lines = {"queries": TEXTS[:40], "documents": [f"{text} w5 w6 w7" for text in TEXTS[:60]]}
    for name, texts in lines.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(texts))
    rows = [{"query": f"w{i % 80} w{i // 2}", "document": f"w{i} w{i + 3} w{i % 80} w{i // 2}"} for i in range(110)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = [word for name in ("queries.txt", "documents.txt", "pairs.jsonl")
             for word in (f"--{name.partition('.')[0]}", name)]  # fmt: skip
    assert main(["shrink", tiny_bert, *words, "--choose", "1,3", "--out", "small"]) == 0
    shrunk = certificate(tmp_path / "small")["shrunk"]
    found, name = shrunk["compatibility"], shrunk["fitted_on"]["name"]
    assert all(part in name for part in ("queries.txt", "documents.txt", "pairs.jsonl"))
    assert found["test"] == "pairs" and found["searched"] == 55 and found["documents"] == 168
    printed = capsys.readouterr().out
    loss = found["cases"]["new_new"]["loss"]
    assert mean_words(loss) in printed
    assert len([line for line in printed.splitlines() if line.startswith(("  old ", "  new "))]) == 5
    flat = " ".join(printed.split())
    assert "search with 55 held-out pairs among 168 documents" in flat and f"your index: {found['answer']}" in flat
    assert "worst 5 % of the texts: below" in flat and "lowest for" in flat
    assert all(len(line) <= 80 for line in printed.splitlines() if "layerwise eval" not in line)
    card = (tmp_path / "small" / "README.md").read_text()
    assert "  - new queries, new documents: " in card and f"- Your index: {found['answer']}." in card


def test_without_the_check_of_the_index_there_is_no_answer(tmp_path, tiny_bert):
    layerwise.shrink(tiny_bert, TEXTS, tmp_path / "small", choose="prefix", compatible=False)
    record = certificate(tmp_path / "small")
    assert record["shrunk"]["compatibility"] is None and record["agreement"]["mean_cosine"] is not None


def test_a_second_call_reads_the_vectors_and_blocks_of_the_first(tmp_path, tiny_bert, monkeypatch):
    from layerwise.verbs.eval import encoding
    from layerwise.verbs.shrink import api as verb

    layerwise.shrink(tiny_bert, TEXTS, tmp_path / "one", blocks=2, work=tmp_path / "work")
    assert certificate(tmp_path / "one")["shrunk"]["choice"]["tried"] >= 2
    for module, name in ((encoding, "pooled_vectors"), (verb, "choose_blocks")):
        monkeypatch.setattr(module, name, lambda *args, **options: pytest.fail("computed again"))
    layerwise.shrink(tiny_bert, TEXTS, tmp_path / "two", blocks=2, work=tmp_path / "work")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two and np.array_equal(vectors(tmp_path / "one"), vectors(tmp_path / "two"))


def test_late_blocks_of_a_real_model_are_worth_more_than_its_middle(real_model, shared):
    """On all-MiniLM-L6-v2, blocks 1, 5 and 6 leave far less of its vectors unexplained than the first three."""
    from layerwise.models.opening import open_network
    from layerwise.verbs.shrink.student import Teacher, own_vectors, pooled_student, pooling_modules

    network = open_network(real_model("all-minilm-l6-v2"))
    source = layerwise.texts(shared("data/wikitext2/test.parquet"), only="wikitext", sample=240)
    texts = [PromptedText(" ".join(example.text.split()[:20])) for example in source]
    whole = own_vectors(network, texts, 64)
    teacher = Teacher(network, pooling_modules(network), ("",), 64, lambda items: whole, True)
    left = {}
    for blocks in ((0, 1, 2), (0, 4, 5)):
        rows = own_vectors(pooled_student(teacher, blocks), texts, 64)
        left[blocks] = fit_ridge(rows[60:], whole[60:], rows[:60], whole[:60]).unexplained
    assert left[0, 4, 5] < left[0, 1, 2] - 0.1


def test_the_advice_on_an_index_is_what_plain_vectors_and_a_search_show(real_model, shared, tmp_path):
    """Two blocks of all-MiniLM-L6-v2: their queries lose in the old index, and in re-embedded documents as well.

    Against sentence-transformers and NumPy, on questions and documents that shrink has not seen.
    """
    import pandas as pd

    model = real_model("all-minilm-l6-v2")
    requests = pd.read_parquet(shared("data/banking77/train.parquet")).text[::10].tolist()
    given, others = (
        pd.read_parquet(shared(f"data/wikiqa_reranking/{part}.parquet")) for part in ("test", "validation")
    )
    layerwise.shrink(
        model, requests, tmp_path / "small", choose="1,6",
        pairs=[(row.query, text) for row in given.itertuples() for text in row.positive],
        documents=[text for row in given.itertuples() for text in row.negative[:2]],
    )  # fmt: skip
    found = certificate(tmp_path / "small")["shrunk"]["compatibility"]
    assert found["test"] == "pairs" and found["searched"] == 118
    rows = list(others.itertuples())
    documents = list(dict.fromkeys(text for row in rows for text in (*row.positive, *row.negative[:2])))
    right = [[documents.index(text) for text in row.positive] for row in rows]
    old, new = (
        [vectors(folder, texts) for texts in ([row.query for row in rows], documents)]
        for folder in (model, tmp_path / "small")
    )

    def ranks(queries, documents):
        scores = queries @ documents.T
        return np.array([1 / (1 + (row > row[places].max()).sum()) for row, places in zip(scores, right, strict=True)])

    whole = ranks(*old)
    by_hand = {"new_old": ranks(new[0], old[1]), "old_new": ranks(old[0], new[1]), "new_new": ranks(*new)}
    assert by_hand["new_old"].mean() < whole.mean() - 0.02, "the index cannot be kept"
    assert by_hand["new_new"].mean() < whole.mean() - 0.02, "and re-embedding is no way out"
    assert found["advice"] == "original" and found["answer"].startswith("keep the original model")
    for name, values in by_hand.items():
        low, high = found["cases"][name]["loss"]["interval"]
        assert low - 0.05 <= (whole - values).mean() <= high + 0.05, name


def test_short_requests_of_a_real_model_do_not_answer_for_documents(real_model, shared, tmp_path):
    """The mean cosine on short requests hides that documents agree less; their halves say nothing about an index."""
    import pandas as pd

    requests = pd.read_parquet(shared("data/banking77/train.parquet")).text[::20].tolist()
    model = real_model("all-minilm-l6-v2")
    layerwise.shrink(model, requests, tmp_path / "small", choose="1,5,6")
    found = certificate(tmp_path / "small")["shrunk"]
    assert found["compatibility"]["answer"].startswith("not known: the texts are short")
    everything, *_, demo = found["agreement"]["groups"]
    assert demo["name"] == "English demo texts of 20 words or more"
    assert demo["mean_cosine"] < everything["mean_cosine"] - 0.1
    assert "--documents FILE" in found["agreement"]["warnings"][-1]


def test_tradeoff_sets_a_shrunk_model_beside_the_layers(tmp_path, tiny_bert, capsys):
    import pandas as pd

    pairs = pd.DataFrame({"sentence1": TEXTS[:20], "sentence2": TEXTS[20:40], "score": range(20)})
    layerwise.lab.data(tmp_path / "tasks", "Mine", type="STS", test=pairs)
    layerwise.lab.data(tmp_path / "more", "Other", type="STS", test=pairs)
    layerwise.shrink(tiny_bert, TEXTS, tmp_path / "small", choose="1,3", compatible=False)
    for model, out, tasks in ((tiny_bert, "whole", "tasks"), (tmp_path / "small", "shrunk", "tasks")):
        layerwise.eval(str(model), "all", data_root=tmp_path / tasks, out=tmp_path / out, workers=0)
    words = ["lab", "tradeoff", str(tmp_path / "whole"), "--repeats", "1", "--others", str(tmp_path / "shrunk")]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    *layers, small = rows
    assert {row["model"] for row in layers} == {"bert"} and (small["model"], small["layer"]) == ("small", 2)
    (expected,) = layerwise.LayerTable.load(tmp_path / "shrunk").where(norm="shipped")
    assert small["score"] == pytest.approx(expected.value) and 0 < small["latency"] < 5
    whole = max(row["parameters"] for row in layers)
    assert 0 < small["parameters"] < whole
    record = json.loads((tmp_path / "whole" / "tradeoff.json").read_text())
    assert [row["model"] for row in record["others"]] == ["small"] and len(record["layers"]) == 4
    assert main(words) == 0 and "small" in capsys.readouterr().out
    layerwise.eval(str(tmp_path / "small"), "all", data_root=tmp_path / "more", out=tmp_path / "x", workers=0)
    with pytest.raises(InputError, match="scores of other tasks .Mine, Other"):
        layerwise.lab.tradeoff(tmp_path / "whole", others=str(tmp_path / "x"))


def test_a_bar_counts_the_texts_whose_vectors_are_computed(tmp_path, monkeypatch):
    bars = []

    @contextmanager
    def bar(shown, total, unit):
        bars.append([shown, total, 0])
        yield lambda items, tokens=0: bars[-1].__setitem__(2, bars[-1][2] + items)

    monkeypatch.setattr("layerwise.verbs.eval.encoding.progress_bar", bar)
    folder = ship_model(tmp_path / "m", make_model("bert"))
    for name in ("one", "two"):
        layerwise.shrink(folder, TEXTS, tmp_path / name, choose="prefix", work=tmp_path / "work", progress=True)
    computed = [total for _, total, _ in bars]
    assert sum(computed[:2]) > 0.8 * len(set(TEXTS)) and len(computed) == 4, "the second call reads all of them"
    assert all(shown and done == total for shown, total, done in bars)


def test_a_model_that_is_larger_with_its_map_is_not_called_a_part_of_the_original():
    record = {"blocks": {"before": 6, "after": 5}, "parameters": {"before": 17_400_000, "after": 17_500_000}}
    assert size_words(record) == "5 of 6 blocks, 17.5 million parameters with its map (17.4 million in the original)"
    assert size_words(record | {"parameters": {"before": 99, "after": 100}}).endswith(
        "100 parameters with its map (99 in the original)"
    )
    smaller = {"before": 33_400_000, "after": 28_000_000}
    assert size_words(record | {"parameters": smaller}) == "5 of 6 blocks, 28.0 of 33.4 million parameters"
