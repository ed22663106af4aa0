"""pick: probes measure what they say, the decision is cautious, the answer can be exported and read again."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.inputs.text import demo_sentences, demo_texts
from layerwise.maps.fitted import FittedOn, texts_fingerprint
from layerwise.models.opening import open_network
from layerwise.models.readouts import last_recipe
from layerwise.verbs.pick.candidates import ScoredRecipe, compute_probe_vectors, layer_candidates, score_candidates
from layerwise.verbs.pick.decision import decide, difference
from layerwise.verbs.pick.labels import label_probe, logistic_accuracy
from layerwise.verbs.pick.probes import (
    RIDGE,
    Probe,
    concordance,
    proxy_probes,
    reciprocal_ranks,
    ridge_accuracy,
)
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.run import Rulebook, default_rulebook, pick_recipe

RNG = np.random.default_rng(0)


def test_concordance_is_somers_d():
    from scipy.stats import somersd

    grades, values = RNG.integers(0, 4, 60), RNG.normal(size=60).round(1)
    pairs = sum(1 for i in range(60) for j in range(60) if grades[i] != grades[j])
    each = concordance(values, grades)
    weights = [(grades != g).sum() for g in grades]
    assert (each * weights).sum() / pairs == pytest.approx((somersd(grades, values).statistic + 1) / 2)


def test_reciprocal_ranks_by_a_loop():
    near, right = RNG.normal(size=(9, 12)), RNG.integers(0, 12, 9)
    naive = [1 / (1 + sum(near[i, j] > near[i, right[i]] for j in range(12))) for i in range(9)]
    assert reciprocal_ranks(near, right) == pytest.approx(naive)
    assert reciprocal_ranks(np.ones((2, 4)), np.array([0, 3])) == pytest.approx([0.25, 0.25]), "ties help nobody"


def test_the_classifier_is_scikit_learns_ridge():
    from sklearn.linear_model import Ridge

    rows, labels, folds = RNG.normal(size=(40, 60)) + 3, RNG.choice(list("abc"), 40), np.arange(40) % 4
    right = ridge_accuracy(rows, labels, folds)
    for fold in range(4):
        out = folds == fold
        x = rows[~out] - rows[~out].mean(axis=0)
        names = np.unique(labels)
        model = Ridge(alpha=RIDGE * np.trace(x @ x.T) / len(x), fit_intercept=False)
        model.fit(x, 2.0 * (labels[~out][:, None] == names) - 1)
        expected = names[model.predict(rows[out] - rows[~out].mean(axis=0)).argmax(axis=1)] == labels[out]
        assert (right[out] == expected).all()


def scored(layer, values, transform="none", **more):
    return ScoredRecipe(Recipe(layer, transform=transform), {"p": np.array(values), **more})


def test_the_last_layer_is_kept_unless_another_is_better_by_the_margin():
    sure, noise = np.full(50, 0.5) + 0.01 * RNG.normal(size=50), RNG.normal(size=50)
    last = scored(3, sure)
    weights = {"p": 1.0}
    found = decide([scored(1, sure + 0.1), last], last.recipe, weights)
    assert found.answer.recipe.layer == 1 and found.gain.mean == pytest.approx(10) and found.gain.low > 9
    found = decide([scored(1, sure + 0.01), last], last.recipe, weights, margin=2)
    assert found.answer is last and found.gain.mean == 0
    found = decide([scored(1, sure + 0.05 + noise - noise.mean()), last], last.recipe, weights, margin=2)
    assert found.answer.recipe.layer == 1 and found.gain.low < 0, "the interval shows how uncertain it is"
    assert decide([scored(1, sure + 0.1), last], last.recipe, weights, margin=20).answer is last
    near = scored(2, sure + 0.1 + 0.1 * (noise - noise.mean()))
    found = decide([scored(0, sure), scored(1, sure + 0.1), near, last], last.recipe, weights)
    best = found.answer.recipe.layer
    assert best in (1, 2) and set(found.layers_alike) == {1, 2} - {best}


def test_fast_takes_the_lowest_layer_that_scores_the_same_within_noise_with_the_same_map():
    noise = RNG.normal(size=50)
    noise -= noise.mean()
    even, better = np.full(50, 0.5), np.full(50, 0.7)
    near = better - 0.01 + 0.1 * noise
    last = scored(4, even)
    tried = [scored(0, near), scored(1, even, "center"), scored(2, near, "center"), scored(3, better, "center"), last]
    quality, fast = (decide(tried, last.recipe, {"p": 1.0}, prefer=prefer) for prefer in ("quality", "fast"))
    assert quality.answer is tried[3] and quality.layers_alike == (2,)
    assert fast.answer is tried[2] and fast.layers_alike == (3,), "layer 0 scores the same without the map only"
    assert fast.gain.mean == pytest.approx(19) and fast.cost_of_speed.mean == pytest.approx(-1)
    assert fast.cost_of_speed.low < 0 < fast.cost_of_speed.high and quality.cost_of_speed.mean == 0
    alone = decide([scored(1, even - 0.1), last], last.recipe, {"p": 1.0}, prefer="fast")
    assert alone.answer is last and alone.layers_alike == (), "a lower layer that is worse is never taken"
    tried = [scored(1, even + 0.001 * noise), scored(0, even - 0.1), last]
    kept = decide(tried, last.recipe, {"p": 1.0}, margin=2, prefer="fast")
    assert kept.quality is last and kept.answer.recipe.layer == 1, "also where quality keeps the last layer"


def test_differences_add_what_shares_units_and_keep_apart_what_does_not():
    a, b, c = RNG.normal(size=20), RNG.normal(size=20), RNG.normal(size=30)
    one, other = scored(1, a, q=b, r=c), scored(2, 0 * a, q=0 * b, r=0 * c)
    found = difference(one, other, {"p": 1, "q": 1, "r": 2})
    assert found.mean == pytest.approx(100 * (a.mean() + b.mean() + 2 * c.mean()) / 4)
    variance = (a + b).var(ddof=1) / 16 / 20 + c.var(ddof=1) / 4 / 30
    assert found.error == pytest.approx(100 * variance**0.5)


def test_probes_see_the_vectors_of_embed(tiny_llama, word_texts):
    network = open_network(tiny_llama)
    seen = []

    class Spy:
        name, texts = "spy", tuple(word_texts[:6])

        def score(self, rows):
            seen.append(rows)
            return rows[:, 0]

    candidates = layer_candidates(network)
    trial = compute_probe_vectors(network, candidates, [Spy()], word_texts, max_length=32)
    score_candidates(trial, candidates)
    expected = np.stack(layerwise.embed(network, word_texts[:6], layers="1", max_length=32).layer_1)
    assert seen[1] == pytest.approx(expected, abs=1e-6)
    assert len(seen) == network.depth + 1 and candidates[-1] == last_recipe(network)


def test_labels_of_both_forms_become_probes():
    table = pd.DataFrame({"text": [f"t{i}" for i in range(20)], "label": ["x", "y"] * 10})
    probe = label_probe(table)
    rows = np.where(np.arange(20)[:, None] % 2, 1.0, -1.0) * np.ones((20, 3)) + 0.01 * RNG.normal(size=(20, 3))
    assert probe.score(rows).mean() == 1.0 and len(probe.score(rows)) == 20
    angles = np.linspace(0, 3, 16)
    words = [f"w{i}" for i in range(16)]
    pairs = pd.DataFrame({"sentence1": words, "sentence2": words[::-1], "score": -angles})
    rows = np.concatenate([np.tile([1.0, 0.0], (16, 1)), np.stack([np.cos(angles), np.sin(angles)], axis=1)])
    assert label_probe(pairs).score(rows).mean() == pytest.approx(1.0)
    with pytest.raises(InputError, match="text,label"):
        label_probe(pd.DataFrame({"a": [1] * 16}))
    with pytest.raises(InputError, match="two classes"):
        label_probe(pd.DataFrame({"text": ["a", "b"] * 8, "label": [1] * 16}))
    with pytest.raises(InputError, match="too few"):
        label_probe(table[:8])


def test_logistic_accuracy_is_scikit_learns_on_the_vectors_themselves():
    rows, labels, folds = RNG.normal(size=(40, 60)), RNG.choice(list("abc"), 40), np.arange(40) % 4
    rows[:, :3] += labels[:, None] == np.array(list("abc"))
    expected = np.empty(40)
    for out in (folds == fold for fold in range(4)):
        model = LogisticRegression(max_iter=100).fit(rows[~out], labels[~out])
        expected[out] = model.predict(rows[out]) == labels[out]
    assert logistic_accuracy(rows, labels, folds) == pytest.approx(expected)


def test_labels_move_the_choice_only_by_more_than_their_error():
    last, low = Recipe(2), Recipe(1)
    even, better = np.full(72, 0.5), np.full(72, 0.9)

    def choice(one, other):
        """Labels say `one` of the lower layer and `other` of the last."""
        scored = [
            ScoredRecipe(low, {"pairs": even, "labels": one}),
            ScoredRecipe(last, {"pairs": even, "labels": other}),
        ]
        return decide(scored, last, {"pairs": 1.0, "labels": 2.0}, margin=2.0).answer.recipe

    noise = RNG.normal(size=64)
    assert choice(np.full(64, 0.6), np.full(64, 0.5)) == low
    assert choice(0.505 + noise - noise.mean(), np.full(64, 0.5)) == last
    both = [ScoredRecipe(low, {"pairs": better, "labels": even}), ScoredRecipe(last, {"pairs": even, "labels": better})]
    assert decide(both, last, {"pairs": 1.0}, margin=2.0).answer.recipe == low
    assert decide(both, last, {"pairs": 1.0, "labels": 2.0}, margin=2.0).answer.recipe == last


def test_what_is_chosen_is_used_in_its_deployed_form_and_the_last_layer_as_it_is():
    last, low = scored(3, np.full(50, 0.5)), scored(1, np.full(50, 0.7), "center")
    beside = scored(1, np.full(50, 0.6), "center+static")
    found = decide([low, last], last.recipe, {"p": 1.0}, margin=2, deployed=lambda best: beside)
    assert found.answer is beside and found.gain.mean == pytest.approx(10), "the gain is that of what is used"
    assert decide([low, last], last.recipe, {"p": 1.0}, margin=30, deployed=lambda best: beside).answer is last
    weights, worse, better = {"p": 1.0, "labels": 1.0}, np.full(40, 0.2), np.full(40, 0.9)
    for of_last, of_low, of_beside, expected in [(worse, worse, better, 2), (worse, better, worse, 1),
                                                 (better, worse, worse, 0)]:  # fmt: skip
        forms = [replace(s, unit_scores={**s.unit_scores, "labels": labels})
                 for s, labels in ((last, of_last), (low, of_low), (beside, of_beside))]  # fmt: skip
        found = decide(forms[:2], last.recipe, weights, deployed=lambda best, forms=forms: forms[2])
        assert found.answer is forms[expected], "labels judge every form"


def test_token_embeddings_stand_beside_a_layer_that_a_map_was_chosen_for(tiny_llama, word_texts, monkeypatch, tmp_path):
    network = open_network(tiny_llama)

    def score(rows):
        """Likes centred vectors, and long ones: a map of a deep layer."""
        return np.full(9, np.log(rows.var()) if np.abs(rows.mean(axis=0)).max() < 1e-6 else -20)

    monkeypatch.setattr(
        "layerwise.verbs.pick.run.proxy_probes", lambda **_: [Probe("deep", tuple(word_texts[:40]), score)]
    )
    book = Rulebook("test", {"deep": 1}, ("none", "remove_top:1"), -1000, static=True)
    found = pick_recipe(network, word_texts[:40], max_length=32, rulebook=book)
    assert found.recipe.layer > 0 and found.recipe.transform == "remove_top:1+static"
    assert any(f"{2 * network.width} dimensions" in reason for reason in found.why)
    plain = pick_recipe(network, word_texts[:40], max_length=32, rulebook=book, static=False)
    assert plain.recipe == replace(found.recipe, transform="remove_top:1")
    assert plain.gain == found.gain, "the bundled probes do not judge token embeddings"
    network = open_network(tiny_llama)
    saved = Pick.load(found.save(tmp_path).parent)
    without_map = replace(saved, fitted=None)
    ready, again = (
        layerwise.export(network, answer, tmp_path / name, fit=fit).encode(word_texts, show_progress_bar=False)
        for name, answer, fit in (("ready", found, None), ("again", without_map, word_texts[:40]))
    )
    with pytest.warns(UserWarning, match="the map saved with the pick is used; --fit is not needed"):
        kept = layerwise.export(network, saved, tmp_path / "kept", fit=word_texts[40:])
    assert np.array_equal(kept.encode(word_texts, show_progress_bar=False), ready), "saved with its map"
    assert ready == pytest.approx(again, abs=1e-5), "a fresh answer has the map that would be fitted"
    lower = replace(found, recipe=replace(found.recipe, layer=1 + found.recipe.layer % 2))
    for without_map in (replace(found, fitted=None), lower):
        with pytest.raises(InputError, match="--fit"):
            layerwise.export(network, without_map, tmp_path / "none")
    other = replace(found.fitted, model=replace(found.fitted.model, fingerprint="of other weights"))
    with pytest.raises(InputError, match="was fitted for .* with other weights, config or tokenizer"):
        layerwise.export(network, replace(found, fitted=other), tmp_path / "none")
    alone = pick_recipe(network, word_texts[:40], max_length=32, rulebook=book, layer_only=True)
    assert alone.recipe.transform == "none"


def test_pick_answers_and_its_answer_is_exported(reading_llama, word_texts, tmp_path, capsys, monkeypatch):
    bold = replace(default_rulebook(), margin=-1000)  # never keeps the last layer, which would not be exported
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: bold)
    longer = [" ".join(word_texts[i : i + 3]) for i in range(len(word_texts) - 3)]
    found = layerwise.pick(reading_llama, longer, max_length=32)
    assert not found.keep_last and found.rule == default_rulebook().name and found.why
    assert f"use layer {found.recipe.layer} of 3" in repr(found)
    assert "<table>" in found._repr_html_() and "&lt;b&gt;" in replace(found, why=("<b>: x",))._repr_html_()
    found.save(tmp_path)
    assert json.loads((tmp_path / "pick.json").read_text())["recipe"]["layer"] == found.recipe.layer
    assert Recipe.load(tmp_path / "pick.json") == found.recipe
    lower = replace(found, recipe=Recipe(2, max_length=32), fitted=None)
    layerwise.export(reading_llama, lower, tmp_path / "m", texts=word_texts)
    assert json.loads((tmp_path / "m" / "layerwise.json").read_text())["chosen_by"].startswith(found.rule)
    with pytest.raises(InputError, match="other weights, config or tokenizer"):
        elsewhere = replace(found.model, fingerprint="elsewhere")
        layerwise.export(reading_llama, replace(found, model=elsewhere), tmp_path / "n")
    with pytest.raises(InputError, match="--save"):
        Pick.load(tmp_path / "m")
    assert Pick.load(tmp_path).recipe == found.recipe
    pd.DataFrame({"text": longer}).to_csv(tmp_path / "t.csv", index=False)
    paths = ["--fit", str(tmp_path / "t.csv"), "--export", str(tmp_path / "e")]
    timid = replace(bold, margin=1000)  # always keeps the last layer
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: timid)
    assert main(["pick", reading_llama, *paths, "--max-length", "32"]) == 2
    printed = capsys.readouterr()
    assert "keep the last layer" in printed.out and "so nothing was exported" in printed.err
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: bold)
    assert main(["pick", reading_llama, *paths, "--max-length", "32"]) == 0
    assert json.loads((tmp_path / "e" / "layerwise.json").read_text())["recipe"] == json.loads(found.recipe.to_json())
    assert "SentenceTransformer" in capsys.readouterr().err


def test_pick_takes_the_options_of_loading_a_model(reading_llama, word_texts, tmp_path, capsys):
    assert main(["pick", reading_llama, "--dtype", "float64", "--max-length", "16", "--layer-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["dtype"] == "float64"
    layerwise.scan(reading_llama, word_texts, metrics="curvature", out=tmp_path / "run")
    words = ["pick", str(tmp_path / "run"), "--dtype", "float64", "--layer-only", "--max-length", "16"]
    assert main(words) == 2
    assert "--dtype is about loading a model, and a run names its own: add --model" in capsys.readouterr().err


def test_pick_by_a_rule_needs_no_model(tiny_llama, word_texts, tmp_path, capsys):
    layerwise.scan(tiny_llama, word_texts, metrics="dataset_entropy,curvature", out=tmp_path)
    table = layerwise.LayerTable.load(tmp_path)
    found = layerwise.pick(table, rule="depth:67%")
    assert found.recipe == Recipe(2) and found.saving == pytest.approx(1 / 3)
    assert layerwise.pick(tmp_path, rule="last").keep_last
    assert main(["pick", str(tmp_path), "--rule", "min:curvature", "--json"]) == 0
    curve = [r.value for r in table.where(metric="curvature", norm="raw")][:3]
    curve.append(table.where(metric="curvature", norm="normed").scores[0].value)
    known = [c if c == c else np.inf for c in curve]
    assert json.loads(capsys.readouterr().out)["recipe"]["layer"] == int(np.argmin(known))
    scanned = layerwise.scan(tiny_llama, word_texts, metrics="intrinsic_dimension")
    curve = [row.value for row in scanned.where(norm="raw")][:3]
    curve.append(scanned.where(norm="normed").scores[-1].value)
    assert np.isfinite(curve).all()
    assert layerwise.pick(scanned, rule="min:intrinsic_dimension").recipe.layer == int(np.argmin(curve))
    assert main(["pick", tiny_llama, "--rule", "last"]) == 2
    assert "a rule needs a run of scan" in capsys.readouterr().err


def test_the_audit_on_the_command_line(tmp_path, capsys):
    scores = [("f", "m", "t", k, s) for k, s in enumerate([1.0, 3.0, 2.0])]
    pd.DataFrame(scores, columns=["family", "model", "task", "layer", "score"]).to_csv(tmp_path / "s.csv", index=False)
    assert main(["lab", "audit", str(tmp_path / "s.csv"), "--rules", "last,depth:50%", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["recovered"] for row in rows] == [0.0, 1.0]
    assert main(["lab", "audit", str(tmp_path / "s.csv"), "--rules", "last,depth:50%"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80 and "+1.0  " in printed[2] and "100 % " in printed[2]


def test_maps_are_fitted_on_bundled_texts_unless_others_are_given(reading_llama, word_texts, monkeypatch):
    likes_maps = Probe("map", ("w1 w2", "w3"), lambda rows: np.full(9, -np.abs(rows).max()))
    monkeypatch.setattr("layerwise.verbs.pick.run.proxy_probes", lambda **_: [likes_maps])
    book = Rulebook("test", {"map": 1}, ("none", "remove_top:30"), -1e9)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: book)
    bundled, own = (layerwise.pick(reading_llama, fit, max_length=32) for fit in (None, word_texts))
    texts = demo_sentences()
    assert bundled.fitted.fitted_on == FittedOn("texts", "bundled", texts_fingerprint(texts), len(texts))
    assert own.fitted.fitted_on.count == len(word_texts) and "a list of" in own.fitted.fitted_on.name
    assert bundled.options["fit"] is None and own.options["fit"] is not None
    assert any(f"fitted on {len(texts)} texts (bundled)" in sentence for sentence in bundled.why)


def test_no_text_that_maps_are_fitted_on_is_scored_by_a_probe():
    texts = demo_sentences()
    assert len(texts) == len(set(texts)) > 700 and set(demo_texts()) < set(texts)
    assert not set(texts) & {text for probe in proxy_probes() for text in probe.texts}


def test_a_map_fitted_on_own_texts_comes_with_a_warning_about_texts_of_one_kind(tiny_llama, word_texts, monkeypatch):
    network, texts = open_network(tiny_llama), word_texts[:40]

    def score(rows):
        """Likes centred vectors: a map."""
        return np.full(9, 1.0 if np.abs(rows.mean(axis=0)).max() < 1e-6 else 0.0)

    monkeypatch.setattr("layerwise.verbs.pick.run.proxy_probes", lambda **_: [Probe("centred", tuple(texts), score)])
    for transforms, name, expected in (
        (("none", "remove_top:1"), "mine", True),
        (("none", "remove_top:1"), "demo", False),
        (("none",), "mine", False),
    ):
        book = Rulebook("test", {"centred": 1}, transforms, 0.1)
        found = pick_recipe(network, texts, max_length=32, name=name, rulebook=book)
        said = any("texts are all of one kind" in sentence for sentence in found.why)
        assert said is expected, (transforms, name, found.recipe)
