"""Selection: rules choose what they say, and the audit gives the figures that are known."""

import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from places import ROOT

import layerwise
from layerwise.core.errors import InputError, RunError
from layerwise.metrics.block_influence import block_influence, block_influence_curve
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.lab.audit.regret import audit
from layerwise.verbs.pick.cases import Case, cases_from_frames, cases_from_runs, metric_curves
from layerwise.verbs.pick.rules import Ranker, parse_rule, ranks
from layerwise.verbs.pick.run import pick_by_rule

NAN = math.nan
CURVES = {"dime": [3.0, 1.0, 2.0, NAN, 0.5], "infonce": [0.0, 5.0, 4.0, 3.0, 1.0]}


@pytest.mark.parametrize(
    ("word", "layer"),
    [
        ("last", 4), ("second_to_last", 3), ("depth:0%", 0), ("depth:80%", 3), ("min:dime", 4), ("max:dime", 0),
        ("min:dime@0%-75%", 1), ("max:infonce@50%-100%", 2), ("ranks:min:dime@0%-75%+max:infonce", 1),
        ("min:unknown", 4), ("ranks:min:unknown+max:unknown", 4), ("ranks:max:unknown+max:infonce", 1),
    ],
)  # fmt: skip
def test_a_rule_chooses_the_layer_it_names(word, layer):
    assert parse_rule(word)(CURVES, 4) == layer


@pytest.mark.parametrize("word", ["dime", "min", "depth:eighty", "ranks:dime", "smallest:dime", "none.json"])
def test_a_rule_without_a_direction_or_meaning_is_refused(word):
    with pytest.raises(InputError):
        parse_rule(word)


def test_ranks_are_scipys():
    from scipy.stats import rankdata

    values = [3.0, 1.0, 1.0, 2.0, 3.0, 0.0]
    assert ranks(values) == pytest.approx(list(rankdata(values) - 1))


CASES = [
    Case("a", "a1", "t1", (10.0, 20.0, 15.0), {"m": (0.0, 1.0, 2.0)}),
    Case("a", "a1", "t2", (30.0, 10.0, 25.0), {"m": (2.0, 1.0, 0.0)}),
    Case("a", "a2", "t1", (10.0, NAN, 12.0), {"m": (1.0, 2.0, 0.0)}),
    Case("b", "b1", "t1", (50.0, 60.0, 70.0)),
]


def test_the_audit_is_the_formula_by_hand():
    table = audit(CASES, [parse_rule("max:m")], draws=50)
    whole = table[table.family == "all"].iloc[0]
    # a1 chooses layers 2 and 0; a2 layer 1, which has no score: of the nearest two the later one, 2; b1 keeps the last
    chosen = np.mean([np.mean([np.mean([15.0, 30.0]), 12.0]), 70.0])
    last = np.mean([np.mean([np.mean([15.0, 25.0]), 12.0]), 70.0])
    best = np.mean([np.mean([np.mean([20.0, 30.0]), 12.0]), 70.0])
    assert (whole.chosen, whole["last"], whole.best) == pytest.approx((chosen, last, best))
    assert whole.recovered == pytest.approx((chosen - last) / (best - last))
    assert (whole.pairs, whole.models, whole.below_last, whole.worst_loss) == (4, 3, 0.0, 0.0)
    second = audit(CASES, [parse_rule("depth:50%")], draws=0).set_index("family").loc["all"]
    assert second.below_last == 0.5 and second.worst_loss == -15.0 and second.loses_a_point == 0.5
    assert second.models_below_last == 2
    assert table.attrs["rules_tried"] == 1
    assert dict(zip(table.family, table.unseen, strict=True)) == {"a": 0.0, "b": 1.0, "all": 0.25}, "b1 has no curve"
    assert set(audit(CASES, [parse_rule("depth:50%")], draws=0).unseen) == {0.0}


def test_a_gap_of_nothing_recovers_nothing_that_has_a_number():
    (row,) = audit([Case("b", "b1", "t", (1.0, 2.0))], [parse_rule("last")], draws=0).itertuples()
    assert math.isnan(row.recovered)


def test_a_ranker_survives_as_json(tmp_path):
    ranker = Ranker({"dime": -0.5, "depth": 1.0}, ["a model"])
    (tmp_path / "r.json").write_text(ranker.to_json())
    assert Ranker.load(tmp_path / "r.json") == ranker
    assert parse_rule(str(tmp_path / "r.json"))(CURVES, 4) == 4


def rows(metric, values, normed, **more):
    made = [LayerScore("m", k, k / 2, "raw", "all", "mean", "raw", metric, v, 1, **more) for k, v in enumerate(values)]
    return [*made, LayerScore("m", 2, 1.0, "normed", "all", "mean", "raw", metric, normed, 1, **more)]


def test_curves_of_a_table_end_with_the_normed_layer():
    table = LayerTable((*rows("dime", [1.0, 2.0, 3.0], 9.0), *rows("STS", [5.0, 6.0, 7.0], 8.0)))
    assert metric_curves(table) == {"dime": (1.0, 2.0, 9.0), "STS": (5.0, 6.0, 8.0)}
    scan = LayerTable(tuple(rows("dime", [1.0, 2.0, 3.0], 9.0)))
    scores = LayerTable(tuple(rows("STS", [5.0, 9.0, 7.0], 8.0)))
    (case,) = cases_from_runs([("f", scores, [scan])])
    assert case == Case("f", "m", "STS", (5.0, 9.0, 8.0), {"dime": (1.0, 2.0, 9.0)})


def test_a_rule_reads_the_rows_of_a_scan_after_the_final_norm():
    rows = [
        LayerScore("m", k, k / 4, "normed", "all", "mean", "raw", "dime", v, 1) for k, v in enumerate([5, 1, 2, 3, 4])
    ]
    found = layerwise.pick(LayerTable(tuple(rows)), rule="min:dime")
    assert (found.recipe.layer, found.recipe.norm, found.last.layer, found.last.norm) == (1, "normed", 4, "normed")
    inside = [replace(row, point="mlp_output", value=-row.layer) for row in rows]
    stressed = [replace(row, condition="repeat_one", level=1.0, value=-row.layer) for row in rows]
    more = LayerTable((*inside, *stressed, *rows))
    assert metric_curves(more) == {"dime": (5, 1, 2, 3, 4)} == metric_curves(LayerTable((*rows, *inside)))


def test_a_row_at_depth_zero_is_refused_by_its_layer(tmp_path):
    rows = [LayerScore("m", k, 0.0, "raw", "all", "mean", "raw", "dime", 1.0, 1) for k in range(3)]
    with pytest.raises(InputError, match="layer 1 has depth 0"):
        layerwise.pick(LayerTable(tuple(rows)), rule="min:dime")
    LayerTable(tuple(rows)).save(tmp_path)
    with pytest.raises(RunError, match="row 1 is of layer 1 at depth 0"):
        LayerTable.load(tmp_path)


def test_the_lowest_intrinsic_dimension_is_a_rule_on_the_table_of_a_scan():
    """Where it is undefined (nan) a layer is passed over; with equal values the lower layer is chosen."""
    for values, normed, chosen in (([5.0, 3.0, 9.0], 4.0, 1), ([5.0, 3.0, 9.0], 2.0, 2), ([NAN, 3.0, 9.0], 3.0, 1)):
        table = LayerTable(tuple(rows("intrinsic_dimension", values, normed)))
        assert pick_by_rule(table, "min:intrinsic_dimension").recipe.layer == chosen


def test_block_influence_is_a_curve_that_rules_read():
    angles = torch.tensor([0.0, 1.0, 1.1, 1.8])
    layers = [torch.stack([angle.cos(), angle.sin()])[None].repeat(5, 1) for angle in angles]
    curve = block_influence_curve(layers)
    expected = [1 - math.cos(step) for step in (1.0, 0.1, 0.7)]
    assert math.isnan(curve[0]) and curve[1:] == pytest.approx(expected, abs=1e-6)
    assert parse_rule("min:block_influence")({"block_influence": curve}, 3) == 2
    with pytest.raises(InputError, match="one shape"):
        block_influence_curve([torch.ones(2, 3), torch.ones(2, 4)])
    halved = block_influence(torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    assert float(halved) == 0, "a zero vector has no direction and is left out"


def test_tables_that_lack_a_column_are_refused():
    with pytest.raises(InputError, match="lacks score"):
        cases_from_frames(pd.DataFrame({"family": [], "model": [], "task": [], "layer": []}))


def test_the_released_results_give_the_known_figures(shared):
    """The spec's section 5: exactly on Pythia-410M, and within a few points over four families."""
    sys.path.insert(0, str(ROOT / "studies" / "selection"))
    from released import read

    cases = read(shared("data/released"))
    assert len(cases) == 190
    words = ["last", "min:dime", "min:infonce", "max:infonce", "min:entropy_dataset", "depth:80%", "second_to_last"]
    rules = [parse_rule(word) for word in words]
    pythia = audit([case for case in cases if case.model == "Pythia 410m"], rules, draws=0)
    assert list(pythia.chosen.round(2))[:5] == [46.53, 49.71, 46.19, 49.37, 49.43] and set(pythia.pairs) == {29}
    table = audit(cases, rules, draws=200).set_index(["family", "rule"]).loc["all"]
    assert (table["last"].iloc[0], table.best.iloc[0]) == pytest.approx((52.84, 56.86), abs=0.005)
    for word, known in {"depth:80%": 0.30, "second_to_last": 0.20, "min:dime": 0.0, "min:infonce": -0.07}.items():
        assert table.recovered[word] == pytest.approx(known, abs=0.025), word
        assert table.low_tasks[word] < known < table.high_tasks[word]
    assert table.low_tasks["min:entropy_dataset"] < -0.78 < table.high_tasks["min:entropy_dataset"]
    assert (table.low_tasks["depth:80%"], table.high_tasks["depth:80%"]) == pytest.approx((0.21, 0.38), abs=0.03)
