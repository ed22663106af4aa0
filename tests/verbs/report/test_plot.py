"""plot: every figure draws what it should on one Axes, and mistakes have clear messages."""

import json
import sys
from dataclasses import replace
from typing import get_args

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
from made_runs import eval_table, scan_table, stress_table
from test_report import TRADEOFF, with_ring

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, MissingExtra
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.content import page_data
from layerwise.verbs.report.drawing import with_unit
from layerwise.verbs.report.figures import FIGURES, LINES, line_colours, panel_axes, select_scores
from layerwise.verbs.report.options import FigureName

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def test_depth_draws_a_line_a_model_with_its_band_and_the_normed_ring():
    table = scan_table("a", depth=5)
    ax = layerwise.plot([table, scan_table("b", depth=8)], metric="curvature", rows="raw")
    curve = [s.value for s in table.where(metric="curvature", rows="raw", norm="raw")]
    lines = [line for line in ax.lines if len(line.get_xdata()) > 1]
    assert len(lines) == 2 and len(ax.collections) == 2
    assert lines[0].get_ydata() == pytest.approx(curve) and lines[0].get_xdata()[-1] == 100
    assert ax.get_ylabel() == "curvature (radians)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_a_logarithmic_axis_has_plain_numbers():
    table = scan_table("a", depth=5)
    wide = LayerTable(tuple(replace(s, value=10.0 ** -(s.layer % 4)) for s in table), table.run)
    ax = layerwise.plot(wide, metric="curvature", rows="raw")
    ax.figure.draw_without_rendering()
    assert ax.get_yscale() == "log"
    shown = [text.get_text() for text in ax.get_yticklabels() if text.get_text()]
    assert {"0.001", "0.01", "0.1", "1"} <= set(shown) and not any("$" in text for text in shown)


def test_a_long_axis_label_has_two_lines_and_stays_inside_the_picture():
    assert with_unit("score", "points") == "score (points)" and with_unit("score", None) == "score"
    ax = panel_axes(3)[2]
    ax.set_ylabel(with_unit("prompt entropy normalized", "fraction of log min(T, D)"))
    ax.figure.draw_without_rendering()
    box = ax.yaxis.label.get_window_extent()
    assert box.y0 >= 0 and box.y1 <= ax.figure.bbox.height


def test_an_axes_of_ones_own_is_drawn_on():
    _, (left, right) = matplotlib.pyplot.subplots(1, 2)
    assert layerwise.plot(scan_table(), ax=left) is left
    assert layerwise.plot(scan_table(), figure="heatmap", ax=right) is right


def test_heat_maps_scale_each_metric_by_itself():
    ax = layerwise.plot(scan_table(depth=5), figure="heatmap")
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (3, 6) and shown.min(axis=1) == pytest.approx(0) and shown.max(axis=1) == pytest.approx(1)


def test_checkpoints_are_rows_in_the_order_of_steps():
    tables = [scan_table(f"x/step{step}", depth=4, shift=step) for step in (64, 8)]
    ax = layerwise.plot(tables, figure="checkpoints")
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (2, 5) and shown[1] == pytest.approx(shown[0] + 56)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["8", "64"]
    assert line_colours(["x/step64", "x/step8"])[0] < line_colours(["x/step64", "x/step8"])[1]  # later is darker
    assert line_colours(["a", "b"]) == list(LINES[:2])


def test_stress_draws_a_line_a_level():
    ax = layerwise.plot(stress_table(), figure="stress")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "0.5", "1"]


def test_correlation_has_a_cell_a_task_and_metric():
    with pytest.warns(UserWarning, match="only 6 layers"):
        ax = layerwise.plot([scan_table(), eval_table()], figure="correlation", rows="centered_unit")
    assert np.asarray(ax.images[0].get_array()).shape == (2, 3)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["prompt entropy", "dataset entropy", "curvature"]
    assert ax.images[0].get_clim() == (-1, 1)
    with pytest.warns(UserWarning, match="only 6 layers"):
        ax = layerwise.plot(
            [scan_table(), eval_table()], figure="correlation", rows="centered_unit", measure="distance"
        )
    assert ax.images[0].get_clim() == (0, 1), "it has no sign"


def test_what_a_correlation_does_not_show_is_said():
    frame = pd.DataFrame({"task_pooling": ["mean", "last"], "transform": ["", ""]})
    with pytest.warns(UserWarning, match="^only pooling mean is shown, not last; choose with pooling=...$"):
        assert list(select_scores(frame, None, None).task_pooling) == ["mean"]


def test_tradeoff_and_cka_are_read_from_folders(tmp_path, tiny_llama, word_texts):
    eval_table().save(tmp_path / "e")
    (tmp_path / "e" / "tradeoff.json").write_text(json.dumps({"schema_version": 1, **TRADEOFF}))
    ax = layerwise.plot(tmp_path / "e", figure="tradeoff", cost="parameters")
    assert ax.get_xlabel() == "parameters" and ax.get_ylabel() == "score (points)"
    assert {text.get_text() for text in ax.texts} == {"0", "1", "3"}
    for name in ("a", "b"):
        layerwise.scan(tiny_llama, word_texts, metrics="intrinsic_dimension", out=tmp_path / name)
    compared = layerwise.compare([tmp_path / "a", tmp_path / "b"])
    for ax in (layerwise.plot([tmp_path / "a", tmp_path / "b"], figure="cka"), layerwise.plot(compared, figure="cka")):
        assert np.diag(np.asarray(ax.images[0].get_array())) == pytest.approx(1, abs=1e-3)
    assert len(layerwise.plot(compared, metric="intrinsic_dimension").get_legend().get_texts()) == 2


@pytest.mark.parametrize(
    ("runs", "options", "said"),
    [
        ([scan_table()], {"figure": "pie"}, "not one of depth, heatmap"),
        ([], {}, "no run given"),
        ([scan_table()], {"metric": "beauty"}, "no metric 'beauty' in this run; choose from prompt_entropy"),
        ([scan_table()], {"rows": "unit"}, "no rows 'unit'; choose from raw, centered_unit"),
        ([scan_table()], {"cost": "latency"}, "figure depth has no option cost"),
        ([scan_table("a"), scan_table("b")], {"figure": "heatmap"}, "shows one model, not 2"),
        ([scan_table("a"), scan_table("b")], {"figure": "checkpoints"}, "names end with a step"),
        ([scan_table()], {"figure": "stress"}, "none was passed"),
        ([scan_table()], {"figure": "tradeoff"}, "a run folder with tradeoff.json"),
        ([scan_table("a"), scan_table("b")], {"figure": "cka"}, "no stored rows of the same texts"),
    ],
)
def test_mistakes_say_what_to_pass(runs, options, said):
    with pytest.raises(InputError, match=said):
        layerwise.plot(runs, **options)


def test_names_are_drawn_as_they_are_and_never_as_formulas():
    ax = layerwise.plot([scan_table("_a$x^2$"), scan_table("b" * 10_000)])
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a$x^2$", "b" * 39 + "…"]


@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_the_command_writes_the_same_file_twice(tmp_path, suffix):
    scan_table().save(tmp_path / "run")
    for name in ("one", "two"):
        assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / f"{name}.{suffix}")]) == 0
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "one.gif")]) == 2


def test_the_command_offers_every_figure_there_is():
    assert tuple(FIGURES) == get_args(FigureName)


def test_without_matplotlib_the_message_names_the_command_to_install_it(monkeypatch):
    monkeypatch.setattr("layerwise.verbs.report.figures.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'layerwise\[plot\]'"):
        layerwise.plot(scan_table())


def test_the_verbs_load_no_matplotlib():
    import subprocess

    code = "import sys, layerwise.verbs.report.plot; print('matplotlib' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_the_library_writes_the_file_and_replaces_one_only_with_overwrite(tmp_path):
    path = tmp_path / "f.svg"
    ax = layerwise.plot(scan_table(), out=path)
    assert path.read_bytes().startswith(b"<?xml") and not matplotlib.pyplot.fignum_exists(ax.figure.number)
    with pytest.raises(InputError, match="already exists; pass --overwrite"):
        layerwise.plot(scan_table("other"), out=path)
    before = path.read_bytes()
    layerwise.plot(scan_table("other"), out=path, overwrite=True)
    assert path.read_bytes() != before
    with pytest.raises(InputError, match=r"f.gif.*a figure is a .pdf, .svg, .png file"):
        layerwise.plot(scan_table(), out=tmp_path / "f.gif")
    _, mine = matplotlib.pyplot.subplots()
    layerwise.plot(scan_table(), ax=mine, out=tmp_path / "mine.png")
    assert matplotlib.pyplot.fignum_exists(mine.figure.number), "an Axes of the caller stays open"


def test_figures_use_the_scale_of_the_page_and_a_far_ring_stands_at_the_edge():
    steep = LayerTable(tuple(replace(s, value=s.value * 1000**s.depth) for s in scan_table()), scan_table().run)
    for table in (steep, scan_table()):
        line = page_data([Run.open(table)])["scan"][0]
        assert layerwise.plot(table).get_yscale() == ("log" if line["log"] else "linear")
    far = with_ring(scan_table(), 999.0)
    ax = layerwise.plot(far)
    assert ax.get_ylim()[1] < 10 and [text.get_text() for text in ax.texts] == ["999"]
    assert ax.lines[-1].get_marker() == "^"
    assert layerwise.plot(scan_table()).lines[-1].get_marker() == "o"
    scores = LayerTable(tuple(replace(s, value=0.1 + 80 * s.depth) for s in eval_table()), eval_table().run)
    assert layerwise.plot(scores).get_yscale() == "linear", "scores of tasks run from 0 to 100"
