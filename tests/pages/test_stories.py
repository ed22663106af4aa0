"""What it takes to add a thing. No story changes the package; others have tests of their own:

a metric (test_own_metrics.py), a family (test_family_catalog.py), a modality (test_modalities.py), an export format
(test_backends.py), a verb (test_options.py).
"""

import pytest
from made_runs import eval_table, scan_table

import layerwise
from layerwise.inputs import text_processor
from layerwise.inputs.perturbations.base import perturb


def steepest(metric):
    """A rule of one's own: the layer after which a curve falls most."""

    def choose(curves, depth):
        falls = [curves[metric][k] - curves[metric][k + 1] for k in range(depth)]
        return falls.index(max(falls))

    return layerwise.Rule(f"steepest fall of {metric}", choose, frozenset([metric]))


def test_a_rule_is_one_object_that_a_user_passes():
    table = scan_table("m", depth=7)
    found = layerwise.pick(table, rule=steepest("curvature"))
    curve = [row.value for row in table.where(metric="curvature", rows="raw", norm="raw")]
    falls = [one - two for one, two in zip(curve, curve[1:], strict=False)]
    assert found.recipe.layer == falls.index(max(falls)) and found.rule == "steepest fall of curvature"
    with pytest.raises(layerwise.LayerwiseError, match="steepest fall of dime: no metric 'dime'"):
        layerwise.pick(table, rule=steepest("dime"))


def test_a_rule_of_ones_own_is_audited_beside_those_that_ship():
    scores = eval_table("m", depth=7).where(norm="raw").to_pandas()
    scores = scores.rename(columns={"metric": "task", "value": "score"})
    metrics = scan_table("m", depth=7).where(norm="raw", rows="raw").to_pandas().assign(task="")
    frame = layerwise.lab.audit(scores.assign(family="f"), metrics, rules=["last", steepest("curvature")])
    assert list(frame.rule) == ["last", "steepest fall of curvature"]


def test_a_view_is_one_function(tiny_llama, word_texts, monkeypatch):
    """Drawn from the seed and the example's id, so it is the same in every process."""

    def reversed_words(given, random, amount):
        return " ".join(reversed(given.split()))

    assert perturb("a b", reversed_words, 0.3, seed=0, example_id="x", name=1) == "b a"
    usual = layerwise.scan(tiny_llama, word_texts, metrics="infonce")
    monkeypatch.setattr(text_processor, "perturb_text", reversed_words)
    other = layerwise.scan(tiny_llama, word_texts, metrics="infonce")
    assert [row.value for row in other] != [row.value for row in usual]
