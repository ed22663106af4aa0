"""compare: layers at equal depth, differences paired over prompts, CKA of two runs, and words before pictures."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from families import DEPTH
from made_runs import eval_table, scan_table, stress_table

import layerwise
from layerwise.__main__ import main
from layerwise.core.columns import in_columns, short_number
from layerwise.core.errors import InputError, RunError
from layerwise.metrics.catalog import DEPENDS_ON_COUNT
from layerwise.metrics.linear_cka import cka_matrix, linear_cka
from layerwise.runs.folder import Run
from layerwise.runs.labels import training_step
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.alignment import alignment, load_samples, row_samples
from layerwise.verbs.report.content import pair_data


def naive_cka(x: np.ndarray, y: np.ndarray) -> float:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) with the centring matrix written out (Kornblith et al. 2019)."""
    n = len(x)
    center = np.eye(n) - np.ones((n, n)) / n
    hsic = lambda k, m: np.trace(k @ center @ m @ center) / (n - 1) ** 2  # noqa: E731
    k, m = x @ x.T, y @ y.T
    return float(hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m)))


@pytest.mark.parametrize("n", [5, 41])
def test_cka_of_all_layers_is_the_naive_one(n):
    a = [torch.randn(n, 7, dtype=torch.float64) + layer for layer in range(2)]
    b = [torch.randn(n, 11, dtype=torch.float64) for _ in range(3)] + [a[0] @ torch.randn(7, 11, dtype=torch.float64)]
    found = cka_matrix(a, b)
    assert found.shape == (2, 4)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            assert found[i, j] == pytest.approx(naive_cka(x.numpy(), y.numpy()), abs=1e-10)
            assert found[i, j] == pytest.approx(float(linear_cka(x, y)), abs=1e-10)


def test_cka_sees_through_rotation_and_is_undefined_without_spread():
    rows = torch.randn(13, 5)
    turned = 3 * rows @ torch.linalg.qr(torch.randn(5, 5)).Q + 2
    found = cka_matrix([rows, torch.ones(13, 5)], [turned])
    assert float(found[0, 0]) == pytest.approx(1, abs=1e-6) and math.isnan(found[1, 0])
    with pytest.raises(InputError, match="same examples"):
        cka_matrix([rows], [turned[:4]])


@pytest.fixture(scope="module")
def two_runs(tiny_llama, tiny_bert, tmp_path_factory):
    """Scans of two tiny models; the second saw only some of the texts of the first, in another order."""
    texts = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 27)) for i in range(43)]
    folder = tmp_path_factory.mktemp("runs")
    options = {"metrics": "prompt_entropy,intrinsic_dimension", "rows": "raw,centered_unit"}
    layerwise.scan(tiny_llama, texts, out=folder / "llama", **options)
    layerwise.scan(tiny_bert, texts[30:2:-1], out=folder / "bert", **options)
    return folder / "llama", folder / "bert"


def test_cka_of_two_runs_is_that_of_the_vectors_of_the_same_texts(two_runs, tiny_llama, tiny_bert):
    texts = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 27)) for i in range(3, 31)]
    found = alignment(*two_runs)
    assert found.n == 28 and found.values.shape == (DEPTH + 1, DEPTH + 1)
    one, two = (layerwise.embed(model, texts, layers="all") for model in (tiny_llama, tiny_bert))
    for i in range(DEPTH + 1):
        for j in range(DEPTH + 1):
            x, y = np.stack(one[f"layer_{i}"]).astype(float), np.stack(two[f"layer_{j}"]).astype(float)
            assert found.at(i, j) == pytest.approx(naive_cka(x, y), abs=1e-5)


def test_cka_needs_kept_rows_of_the_same_texts(two_runs, tiny_llama, tmp_path):
    layerwise.scan(tiny_llama, ["w1 w2 w3", "w4 w5 w6"], metrics="prompt_entropy", out=tmp_path / "a")
    assert row_samples(load_samples(Run.open(tmp_path / "a")), "all", "mean") == {}
    with pytest.raises(
        RunError, match="/a has no stored rows with tokens all and pooling mean; .* intrinsic_dimension"
    ):
        alignment(two_runs[0], tmp_path / "a")
    layerwise.scan(tiny_llama, ["w1 w2 w3", "w4 w5 w6"], metrics="intrinsic_dimension", out=tmp_path / "b")
    with pytest.raises(RunError, match="share 0 examples"):
        alignment(two_runs[0], tmp_path / "b")


def test_differences_are_paired_over_the_prompts_that_both_saw(two_runs):
    (pair,) = layerwise.compare(two_runs).pairs
    row = pair.changes.query("metric == 'prompt_entropy' and rows == 'raw' and norm == 'raw' and layer == 2").iloc[0]
    same = layerwise.difference(two_runs[0], "prompt_entropy", 2, 2, other_run=two_runs[1])
    assert (row.difference, row.ci_low, row.ci_high, row.p, row.n) == pytest.approx(
        (same.mean, same.ci_low, same.ci_high, same.p, 28)
    )
    assert (row.before, row.after) != pytest.approx((0, 0)) and row.after - row.before == pytest.approx(row.difference)
    paired = pair.changes[pair.changes.paired & pair.changes.difference.notna()]
    assert len(paired) > 2 and (paired.after - paired.before).to_numpy() == pytest.approx(paired.difference.to_numpy())
    assert row.paired and not pair.changes.query("metric == 'intrinsic_dimension'").paired.any()


def changed_rows(table, **changes):
    return LayerTable(tuple(replace(s, **changes) for s in table), table.run)


def with_other_curves(table, **columns):
    """The table, with a second curve of other values for each of its own, before or behind it."""
    others = [replace(s, value=50 - 9 * s.layer, **columns) for s in table if s.norm == "raw"]
    return LayerTable((*others, *table), table.run), LayerTable((*table, *others), table.run)


@pytest.mark.parametrize("columns", [{"point": "mlp_output"}, {"transform": "whiten"}, {"template": "a {text}"}])
def test_the_summary_is_of_one_curve_per_metric(columns):
    plain = layerwise.compare([scan_table("a", rows=("raw",)), scan_table("b", rows=("raw",), shift=0.5)])
    for first in with_other_curves(scan_table("a", rows=("raw",)), **columns)[not columns.get("point") :]:
        second = with_other_curves(scan_table("b", rows=("raw",), shift=0.5), **columns)[1]
        both = layerwise.compare([first, changed_rows(second)])
        assert both.pairs[0].change_by_layer().to_dict() == plain.pairs[0].change_by_layer().to_dict()
        assert str(both) == str(plain)
        drawn = pair_data(both.to_dict()["pairs"][0])["changes"]
        assert not [line for line in drawn if len(set(line["layers"])) < len(line["layers"])], "one line per curve"


def test_a_difference_that_may_come_from_the_number_of_texts_is_left_out():
    many = scan_table("a", metrics=("curvature", "effective_rank"), rows=("raw",))
    few = changed_rows(scan_table("b", metrics=("curvature", "effective_rank"), rows=("raw",), shift=3), n=60)
    (pair,) = layerwise.compare([changed_rows(many, n=120, data_hash="x"), changed_rows(few, data_hash="y")]).pairs
    assert pair.changes.query("metric == 'effective_rank'").difference.isna().all()
    assert set(pair.largest_changes().metric) == {"curvature"}
    assert "effective_rank; scan the same number of texts" in pair.notes[1] and "120 and 60" in pair.notes[1]
    assert "different texts (120 and 60)" in pair.notes[0]
    (pair,) = layerwise.compare([changed_rows(many, n=60, data_hash="x"), changed_rows(few, data_hash="x")]).pairs
    assert pair.notes == () and set(pair.largest_changes().metric) == {"curvature", "effective_rank"}
    assert layerwise.compare([changed_rows(many, n=60), changed_rows(many, n=61)]).pairs[0].notes != ()


def test_which_metrics_depend_on_the_number_of_texts():
    means = {"prompt_entropy", "prompt_entropy_normalized", "curvature", "mean_norm", "anisotropy"}
    assert {m.name for m in layerwise.CATALOG} - DEPENDS_ON_COUNT == means


def test_unpaired_intervals_add_up_as_squares():
    (pair,) = layerwise.compare([scan_table("a"), scan_table("b", shift=0.5)]).pairs
    row = pair.changes.iloc[0]
    assert (row.difference, row.ci_high - row.difference) == pytest.approx((0.5, 0.1 * math.sqrt(2)))


def test_layers_meet_at_equal_depth_ties_to_the_shallower():
    (pair,) = layerwise.compare([scan_table("a", depth=2), scan_table("b", depth=5)], rows="raw").pairs
    curve = pair.changes.query("metric == 'curvature' and norm == 'raw'")
    assert list(zip(curve.layer, curve.other_layer, strict=True)) == [(0, 0), (1, 2), (2, 5)]


def test_against_the_previous_or_the_first():
    tables = [scan_table(f"zoo/x/step{step}", shift=step / 10) for step in (1, 2, 8)]
    assert [(p.first, p.second) for p in layerwise.compare(tables).pairs] == [
        ("x/step1", "x/step2"),
        ("x/step1", "x/step8"),
    ]
    result = layerwise.compare(tables, against="previous")
    assert [p.first for p in result.pairs] == ["x/step1", "x/step2"]
    assert [training_step(label) for label in result.labels] == [1, 2, 8] and training_step("llama-3") is None


def test_the_layer_that_changed_most_is_found_and_said():
    one, two = scan_table("a", rows=("raw",)), scan_table("b", rows=("raw",))
    moved = tuple(type(s)(**(vars(s) | {"value": s.value + 5 * (s.layer == 3)})) for s in two)
    compared = layerwise.compare([one, layerwise.LayerTable(moved, two.run)])
    (pair,) = compared.pairs
    assert pair.change_by_layer().idxmax() == 3 and set(pair.largest_changes().layer) == {3}
    assert "a → b" in str(compared) and "layers that changed most: 3 (" in str(compared)


def test_one_model_in_two_runs_keeps_two_names(tmp_path):
    for name in ("before", "after"):
        scan_table("hub/x").save(tmp_path / name)
    assert layerwise.compare([tmp_path / "before", tmp_path / "after"]).labels == ("x · before", "x · after")
    assert layerwise.compare([scan_table("x"), scan_table("x")]).labels == ("x · 1", "x · 2")


def test_scores_and_stress_tests_compare_as_well():
    (pair,) = layerwise.compare([eval_table("a"), eval_table("b")]).pairs
    assert set(pair.changes.metric) == {"STS12", "Banking77Classification"} and (pair.changes.difference == 0).all()
    (pair,) = layerwise.compare([stress_table("a"), stress_table("b")]).pairs
    assert set(pair.changes.condition) == {"random 0", "random 0.5", "random 1"}


def test_mistakes_are_told(tmp_path):
    with pytest.raises(InputError, match="at least two"):
        layerwise.compare(scan_table())
    with pytest.raises(InputError, match="not one of first, previous"):
        layerwise.compare([scan_table(), scan_table()], against="last")
    with pytest.raises(InputError, match="share no metric"):
        layerwise.compare([scan_table("a"), eval_table("b")])


def test_notebooks_show_names_as_text():
    shown = layerwise.compare([scan_table("<script>x"), scan_table("b")])._repr_html_()
    assert "&lt;script&gt;x" in shown and "<script>" not in shown and "<table" in shown


def test_the_command_prints_words_or_json_and_writes_a_page(two_runs, tmp_path, capsys):
    runs, page = [str(run) for run in two_runs], tmp_path / "c.html"
    assert main(["compare", *runs, "--html", str(page)]) == 0
    printed = capsys.readouterr()
    assert "CKA at equal depth over 28 texts" in printed.out and "28 texts" in printed.out
    text = page.read_text()
    assert all(f'<section id="{name}"' in text for name in ("compared", "changes", "cka"))
    assert main(["compare", *runs, "--json", "--rows", "raw"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {row["rows"] for row in record["pairs"][0]["changes"]} == {"raw"}
    assert len(record["pairs"][0]["cka"]["values"]) == DEPTH + 1
    assert main(["compare", runs[0]]) == 2


def test_a_comparison_prints_within_eighty_columns_and_cuts_no_number():
    long = ("m" * 60, "prompt_entropy_normalized", "t" * 90)
    tables = [scan_table(f"{'very-' * 12}long/{'name' * 9}{i}", metrics=long, shift=i * 12345.678) for i in range(3)]
    text = str(layerwise.compare(tables))
    assert max(map(len, text.splitlines())) <= 80
    assert "+12,346 [12,346, 12,346]" in text and "largest change" in text


def test_columns_are_shortened_in_their_text_and_never_in_their_numbers():
    rows = [("a" * 100, "b", "1" * 30), ("c", "d" * 50, "2")]
    lines = in_columns(rows, label_columns=2)
    assert max(map(len, lines)) <= 80 and "1" * 30 in lines[0] and "a…" in lines[0]
    assert in_columns([("x", "1" * 99)], label_columns=1) == ["x  " + "1" * 99]
    assert [short_number(x) for x in (0.123456, 999.4, 1234.5, 2e7)] == ["0.123", "999", "1,234", "2e+07"]
