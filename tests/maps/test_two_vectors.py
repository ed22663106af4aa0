"""Recipes with two vectors and with fewer dimensions: plain NumPy gives the same numbers, in every command."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from families import WIDTH, make_model, make_tokenizer
from matrices import normal
from tokenizers.processors import TemplateProcessing

import layerwise
from layerwise.__main__ import main
from layerwise.core.checks import Transform, split_transform, with_dims
from layerwise.core.errors import InputError
from layerwise.core.recipe import Readout, Recipe
from layerwise.core.tensors import parse_tensors
from layerwise.inputs.source import Example
from layerwise.maps.fitted import RECIPE_KEY, FittedRecipe
from layerwise.maps.linear import combine_maps, fit_maps, fit_parts, reduce_dims
from layerwise.metrics.accumulators.second_moment import moments_of_rows
from layerwise.models.load import build_network
from layerwise.models.opening import open_network
from layerwise.passes.vectors import pooled_vectors
from layerwise.verbs.eval.data_root import write_task
from layerwise.verbs.eval.encoder import RecipeVectors
from layerwise.verbs.export.fitting import fit_recipe

st = pytest.importorskip("sentence_transformers")
TEXTS = ["w1 w2 w3 w4 w5", "w7", "w9 w10 w11 w12 w13 w14 w15 w16", "w3 w3 w3"]
TEMPLATE = "w5 {text} w6 w7"


# ---- names


@pytest.mark.parametrize(
    ("transform", "parts"),
    [
        ("none", ("none", "", None)),
        ("center", ("center", "", None)),
        ("center@7", ("center", "", 7)),
        ("remove_top:8+mean@256", ("remove_top:8", "+mean", 256)),
        ("zscore+mean", ("zscore", "+mean", None)),
        ("whiten:0.1:5+static", ("whiten:0.1:5", "+static", None)),
        ("whiten:1e-2+static@3", ("whiten:1e-2", "+static", 3)),
    ],
)
def test_a_transform_is_a_map_what_stands_beside_it_and_dimensions(transform, parts):
    assert split_transform(transform) == Transform(*parts)


@pytest.mark.parametrize(
    "transform",
    [
        "none@8", "none+mean", "center@0", "center@", "center@1.5", "center@-1", "center@8+mean", "center+mean+static",
        "center+static+mean", "+mean", "@8", "center+mean@ 8", "center+max", "whiten:1.5@3", "center@٣", None, 8,
    ],
)  # fmt: skip
def test_other_words_are_no_transforms(transform):
    with pytest.raises(InputError, match=r"is not one of none, center.*MAP\+mean, MAP\+static, MAP@DIMENSIONS"):
        split_transform(transform)


def test_dimensions_are_put_behind_a_transform_or_replace_those_it_has():
    assert with_dims("center", None) == "center" and with_dims("none", None) == "none"
    assert with_dims("center", 5) == with_dims("center@9", 5) == "center@5"
    assert with_dims("remove_top:8+mean", 5) == "remove_top:8+mean@5"
    with pytest.raises(InputError, match="dims needs a linear map: use at least the transform center"):
        with_dims("none", 5)
    with pytest.raises(InputError, match="dims must be at least 1, not 0"):
        with_dims("center", 0)


def test_the_parts_of_a_recipe():
    last, mean = Readout(2, "normed", "no_first", "last"), Readout(2, "normed", "no_first", "mean")
    recipe = Recipe(2, "normed", "no_first", "last", "remove_top:3+mean@9")
    assert recipe.parts == ((last, "remove_top:3"), (mean, "remove_top:3")) and recipe.dims == 9 and not recipe.static
    static = Recipe(2, "normed", "no_first", "last", "center+static")
    assert static.parts == ((last, "center"), (Readout(0, "raw", "no_first", "mean"), "whiten")) and static.static
    assert Recipe.from_json(recipe.to_json()) == recipe
    for pooling, norm in (("mean", "raw"), ("shipped", "shipped")):
        with pytest.raises(
            InputError, match=rf"center\+mean puts the mean beside .* last, first or max, not {pooling}"
        ):
            Recipe(1, norm, pooling=pooling, transform="center+mean")


# ---- the numbers, by NumPy


def by_hand(known, asked, removed, share=1.0):
    """The rows without the mean and the first principal directions of `known`, scaled to the same mean square."""
    mean = known.mean(axis=0)
    directions = np.linalg.svd(known - mean)[2][:removed]

    def mapped(rows):
        return (rows - mean) - (rows - mean) @ directions.T @ directions

    scale = np.sqrt(share * known.shape[1] / (mapped(known) ** 2).sum(axis=1).mean())
    return scale * mapped(known), scale * mapped(asked)


def two_by_hand(parts, removed):
    """Pairs of known and asked rows, mapped and concatenated; all parts have the same mean square."""
    mapped = [by_hand(*(rows.astype(np.float64) for rows in part), removed, 1 / len(parts)) for part in parts]
    return (np.concatenate(rows, axis=1) for rows in zip(*mapped, strict=True))


def principal(known, asked, dims):
    """The coordinates along the first principal directions of the known rows, whose mean is 0."""
    assert np.abs(known.mean(axis=0)).max() < 1e-5
    return asked @ np.linalg.svd(known)[2][:dims].T


def same_up_to_signs(found, expected, tolerance=1e-3):
    """Each direction may have either sign, so absolute values and inner products agree."""
    assert found.shape == expected.shape
    scale = np.abs(expected).max()
    assert np.abs(np.abs(found) - np.abs(expected)).max() <= tolerance * scale
    assert np.abs(found @ found.T - expected @ expected.T).max() <= tolerance * np.abs(expected @ expected.T).max()


ONE = (normal(200, 7) * torch.arange(1, 8) + 3).double()
OTHER = (normal(200, 5, seed=1) * torch.arange(5, 0, -1) - 2 + ONE[:, :5]).double()


@pytest.mark.parametrize("dims", [1, 4, 12])
def test_fewer_dimensions_are_the_principal_directions_and_the_maps_of_the_parts_add_up(dims):
    names = ["center", "remove_top:2"]
    first, second = fit_parts(list(zip(names, (ONE, OTHER), strict=True)), dims)
    combined = combine_maps((first, second), dims)
    found = combined(torch.cat([ONE, OTHER], dim=1))
    assert torch.allclose(first(ONE) + second(OTHER), found, atol=1e-12)
    one, two = by_hand(ONE.numpy(), ONE.numpy(), 0, 1 / 2)[0], by_hand(OTHER.numpy(), OTHER.numpy(), 2, 1 / 2)[0]
    both = np.concatenate([one, two], axis=1)
    rank = min(dims, 10)  # two of the twelve directions were removed: nothing is left along them
    same_up_to_signs(found[:, :rank].numpy(), principal(both, both, rank), 1e-9)
    assert dims == rank or found[:, rank:].abs().max() < 1e-9
    spread = found.var(dim=0)
    assert (spread[:-1] >= spread[1:]).all(), "the first directions have the largest variance"
    if dims == 12:
        assert np.allclose(found.numpy() @ found.numpy().T, both @ both.T), "all directions keep every inner product"


def test_one_part_with_fewer_dimensions_is_not_scaled():
    (alone,) = fit_parts([("center", ONE)], 3)
    centred = (ONE - ONE.mean(dim=0)).numpy()
    same_up_to_signs(alone(ONE).numpy(), principal(centred, centred, 3), 1e-9)


def test_dimensions_that_cannot_be_kept_are_refused():
    maps, joint = fit_maps([("center", moments_of_rows(ONE))]), moments_of_rows(ONE)
    with pytest.raises(InputError, match="cannot keep 8 dimensions of vectors that have 7; use 7 or fewer"):
        reduce_dims(maps, joint, 8)
    for count in (5, 4):
        few = moments_of_rows(ONE[:count])
        with pytest.raises(InputError, match=f"5 dimensions need more than 5 texts to fit, got {count}; use fewer"):
            reduce_dims(fit_maps([("center", few)]), few, 5)
    reduce_dims(maps, moments_of_rows(ONE[:6]), 5)


def vectors(network, texts, readout, template=""):
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    return pooled_vectors(network, examples, [readout], max_length=32, template=template)[readout].numpy()


def plain(folder, texts=TEXTS):
    """What someone without layerwise gets."""
    return st.SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)


@pytest.mark.parametrize(
    ("family", "options", "transform", "removed"),
    [
        ("llama", {"pooling": "last"}, "center+mean", 0),
        ("llama", {"pooling": "last", "norm": "normed"}, "remove_top:2+mean", 2),
        ("llama", {"pooling": "last", "template": TEMPLATE}, "remove_top:2+mean", 2),
        ("bert", {"pooling": "first"}, "center+mean", 0),
        ("bert", {"pooling": "max"}, "remove_top:1+mean", 1),
    ],
)
def test_an_exported_model_has_the_mean_beside_another_pooling(
    family, options, transform, removed, word_texts, tmp_path
):
    network = build_network(make_model(family), make_tokenizer(), family)
    network.tokenizer.backend_tokenizer.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    layer, template = (3 if "norm" in options else 2), options.get("template", "")
    layerwise.export(
        network, layer, tmp_path / "m", transform=transform, fit=word_texts, max_length=32, texts=TEXTS, **options
    )
    readout = Readout(layer, **{name: value for name, value in options.items() if name != "template"})
    readouts = readout, Readout(layer, readout.norm, readout.tokens, "mean")
    parts = [[vectors(network, texts, each, template) for texts in (word_texts, TEXTS)] for each in readouts]
    _, expected = two_by_hand(parts, removed)
    found = plain(tmp_path / "m")
    assert found.shape == (len(TEXTS), 2 * WIDTH)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


# ---- one recipe in every command


def test_file_eval_embed_and_export_have_the_same_vectors(tiny_llama, word_texts, tmp_path, monkeypatch):
    network = open_network(tiny_llama)
    recipe = Recipe(2, pooling="last", transform="remove_top:1+mean@5", template=TEMPLATE, max_length=32)
    fitted = fit_recipe(network, recipe, word_texts, lambda recipe: None)
    loaded = FittedRecipe.load(fitted.save(tmp_path / "run"))
    assert loaded == fitted and loaded.recipe == recipe
    assert torch.equal(loaded.combined_map.weight, fitted.combined_map.weight) and len(loaded.combined_map.bias) == 5
    header = json.loads(parse_tensors(RECIPE_KEY, fitted.to_bytes())[0])
    assert [(part["readout"]["pooling"], part["map"], part["rows"]) for part in header["parts"]] == [
        ("last", "remove_top:1", [0, 5]), ("mean", "remove_top:1", [0, 5])]  # fmt: skip

    layerwise.export(network, loaded, tmp_path / "m", texts=TEXTS)
    exported = plain(tmp_path / "m")
    parts = [
        [vectors(network, texts, Readout(2, pooling=pooling), TEMPLATE) for texts in (word_texts, TEXTS)]
        for pooling in ("last", "mean")
    ]
    same_up_to_signs(exported, principal(*two_by_hand(parts, 1), 5))
    embedded = np.stack(list(layerwise.embed(str(tmp_path / "m"), TEXTS, layers="last")["last"]))
    assert embedded == pytest.approx(exported, abs=1e-5)

    seen, read = {}, RecipeVectors.__call__

    def recorded(self, texts, *args):
        rows = read(self, texts, *args)
        seen.update(zip(texts, rows, strict=True))
        return rows

    monkeypatch.setattr(RecipeVectors, "__call__", recorded)
    pairs = {"sentence1": TEXTS, "sentence2": TEXTS[::-1], "score": [1.0, 2.0, 0.0, 3.0]}
    write_task(tmp_path / "root", "Mine", "STS", pd.DataFrame(pairs))
    for name, given in (("fitted", {"recipes": loaded}), ("again", {"recipes": recipe, "fit": word_texts})):
        seen.clear()
        layerwise.eval(network, "all", data_root=tmp_path / "root", out=tmp_path / name, **given)
        scored = np.stack([seen[text] for text in TEXTS])
        if name == "fitted":
            assert scored == pytest.approx(exported, abs=1e-5)
        same_up_to_signs(scored, exported)


def test_the_flags_of_export(tiny_llama, word_texts, tmp_path, capsys):
    (tmp_path / "t.txt").write_text("\n".join(word_texts))
    words = ["export", tiny_llama, "--layer", "2", "--pooling", "last"]
    fit = ["--fit", str(tmp_path / "t.txt")]
    assert main([*words, *fit, "--transform", "center+mean", "--dims", "5", "--out", str(tmp_path / "m")]) == 0
    record = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    assert record["recipe"]["transform"] == "center+mean@5" and plain(tmp_path / "m").shape == (len(TEXTS), 5)
    capsys.readouterr()
    refused = {
        "use at least the transform center": ["--dims", "5"],
        "43 dimensions need more than 43 texts to fit, got 43": [*fit, "--transform", "center+mean", "--dims", "43"],
        "cannot keep 33 dimensions of vectors that have 32": [*fit, "--transform", "center@33"],
        "dims must be at least 1": [*fit, "--transform", "center", "--dims", "0"],
        "last, first or max, not mean": [*fit, "--transform", "center+mean", "--pooling", "mean"],
    }
    for message, options in refused.items():
        assert main([*words, *options, "--out", str(tmp_path / "n")]) == 2
        assert message in capsys.readouterr().err, message
    assert not (tmp_path / "n").exists()


def test_a_scan_fits_two_vectors_or_fewer_dimensions_but_not_both(tiny_llama, word_texts, tmp_path):
    layerwise.scan(
        tiny_llama, word_texts, metrics="dataset_entropy", pooling="last,mean", max_length=32, out=tmp_path / "scan"
    )
    network = open_network(tiny_llama)
    for transform in ("remove_top:2+mean", "center@5"):
        recipe = Recipe(2, pooling="last", transform=transform, max_length=32)
        of_scan, of_texts = (
            fit_recipe(network, recipe, fit, lambda r: None) for fit in (tmp_path / "scan", word_texts)
        )
        assert of_scan.fitted_on.kind == "scan" and of_scan.fitted_on.count == len(word_texts)
        rows = torch.from_numpy(
            np.concatenate([vectors(network, TEXTS, readout) for readout, _ in recipe.parts], axis=1)
        ).double()
        same_up_to_signs(of_scan.combined_map(rows).numpy(), of_texts.combined_map(rows).numpy())
    both = Recipe(2, pooling="last", transform="center+mean@5", max_length=32)
    with pytest.raises(InputError, match=r"nothing of two vectors together, which center\+mean@5 needs; pass texts"):
        fit_recipe(network, both, tmp_path / "scan", lambda r: None)
