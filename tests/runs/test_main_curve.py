"""Which rows of a table stand for a metric where only one curve can be used, and that every place takes the same."""

from dataclasses import replace

import pytest
from made_runs import eval_table, scan_table

import layerwise
from layerwise.core.errors import InputError
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable
from layerwise.verbs.compare.comparison import describe_ranges
from layerwise.verbs.lab.tradeoff.measured import mean_scores
from layerwise.verbs.report.api import select_one_recipe
from layerwise.verbs.report.content import page_data
from layerwise.verbs.report.figures import chosen_curves
from layerwise.verbs.report.overview import lines_of


def raw_rows(table):
    """The curve of the first metric in the first setting."""
    first = table.scores[0]
    return [s for s in table if (s.metric, s.norm, s.setting) == (first.metric, first.norm, first.setting)]


def changed(curve, **columns):
    return [replace(s, **columns, value=99.0) for s in curve]


@pytest.mark.parametrize(
    "other",
    [
        {"point": "mlp_output"},
        {"condition": "repeat_one", "level": 1.0},
        {"norm": "shipped", "pooling": "shipped"},
        {"transform": "whiten", "fit": "task"},
    ],
)
def test_the_main_curve_is_the_plain_one_wherever_it_stands(other):
    plain = raw_rows(scan_table(depth=5))
    another = changed(plain, **other)
    for scores in ([*plain, *another], [*another, *plain]):
        table = LayerTable(tuple(scores))
        assert table.main_curve() == plain and table.main_curves() == {plain[0].metric: plain}
        name, value = next(iter(other.items()))
        assert table.main_curve(where={name: value}) == another  # the same rows: a NaN in them equals no other


def test_of_curves_that_are_equally_plain_the_first_counts():
    plain = raw_rows(scan_table(depth=5))
    table = LayerTable((*changed(plain, rows="unit"), *plain))
    assert {s.rows for s in table.main_curve()} == {"unit"}
    assert table.main_curve(where={"rows": plain[0].rows}) == plain


def test_a_curve_over_layers_comes_before_a_single_layer_even_if_it_is_mapped():
    """An eval of one map at every layer also scores the last layer as it is."""
    plain = raw_rows(eval_table(depth=5))
    mapped = changed(plain, transform="center")
    assert LayerTable((*plain[-1:], *mapped)).main_curve() == mapped


def test_a_metric_or_a_value_that_the_table_lacks_is_an_error_that_lists_what_it_has():
    table = scan_table()
    with pytest.raises(InputError, match="no metric 'beauty' in this run; choose from prompt_entropy"):
        table.main_curve("beauty")
    with pytest.raises(InputError, match="has no rows 'other'; choose from"):
        table.main_curve(where={"rows": "other"})
    with pytest.raises(InputError, match="unknown column colour"):
        table.main_curve(where={"colour": "red"})
    tokens = LayerTable(tuple(changed(raw_rows(table), pooling="-")))
    assert tokens.main_curve(where={"pooling": "max"}) == tokens.main_curve(), "a metric of tokens has no pooling"


def test_figures_do_not_take_an_inner_point_or_the_shipped_output_for_the_curve():
    """They took the first row, whatever it was."""
    plain = raw_rows(scan_table(depth=5))
    for other in ({"point": "mlp_output"}, {"norm": "shipped"}, {"transform": "whiten"}):
        table = LayerTable((*changed(plain, **other), *plain))
        assert [curve for _, curve, _ in chosen_curves(table, plain[0].metric)] == [plain]


def test_the_ring_of_a_figure_is_the_last_layer_where_every_layer_was_normed():
    """It was the first row of the normed curve, drawn at layer 0."""
    plain = raw_rows(scan_table(depth=5))
    both = LayerTable((*plain, *changed(plain, norm="normed")))
    ((_, curve, ring),) = chosen_curves(both, None)
    assert curve == plain and (ring.layer, ring.norm) == (5, "normed")
    line = page_data([Run.open(both)])["scan"][0]
    assert line["normed"]["layer"] == 5, "the page and the figure show the same ring"


def test_a_normed_curve_does_not_repeat_its_last_value_as_the_normed_one():
    table = LayerTable(tuple(changed(raw_rows(scan_table(depth=5)), norm="normed")))
    assert " normed " not in repr(table).splitlines()[-2] and not lines_of(Run.open(table), "m")[0]["last, normed"]


def test_a_summary_table_has_the_rows_and_tokens_of_the_main_curve():
    """It took those of the first row, which may be a point inside a block."""
    plain = raw_rows(scan_table(depth=5))
    table = LayerTable((*changed(plain, point="mlp_output", rows="unit"), *plain))
    assert [line["rows"] for line in lines_of(Run.open(table), "m")] == [plain[0].rows]


def test_the_scores_of_a_tradeoff_leave_out_points_inside_blocks():
    plain = raw_rows(scan_table(depth=5))
    table = LayerTable((*changed(plain, point="mlp_output"), *plain))
    assert [row.value for row in mean_scores(table, plain[0].metric)] == [row.value for row in plain]


def test_correlations_with_several_maps_use_the_main_one():
    plain = list(eval_table(depth=5))
    table = LayerTable((*changed(plain, transform="whiten"), *plain))
    assert list(select_one_recipe(table)) == plain


def test_ranges_of_runs_are_of_one_setting():
    """Each run had its own main curve: centered rows of one were shown beside raw rows of the other."""
    plain = raw_rows(scan_table("a", depth=5))
    first = LayerTable((*changed(plain, rows="centered"), *plain))
    second = LayerTable(tuple(replace(s, model="b") for s in plain))
    text = describe_ranges(LayerTable.join([first, second]))
    assert "99" not in text and len(text.splitlines()) == 3
    compared = layerwise.compare([first, second])
    assert set(compared.pairs[0].changes.query("main").rows) == {plain[0].rows}
    alone = LayerTable(tuple(replace(s, model="b", metric="curvature") for s in plain))
    assert "99" in describe_ranges(LayerTable.join([first, alone])), "without a common setting, each has its own"
