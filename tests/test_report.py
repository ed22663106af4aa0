"""The report: what it shows of which runs, that it holds all it needs, and that names stay text."""

import json
import re
import shlex
from dataclasses import replace

import pytest
from runs import eval_table, scan_table, stress_table

import layerwise
from layerwise.cli.main import main
from layerwise.cli.parser import build_parser
from layerwise.core.errors import InputError, RunError
from layerwise.inputs.text import open_texts
from layerwise.options.record import flag_words
from layerwise.options.texts import TextOptions
from layerwise.reporter.content import content, run_labels
from layerwise.reporter.page import best_and_last, safe_json
from layerwise.reporter.palette import DIVERGING, LINES, LINES_ON_DARK, RAMP, along
from layerwise.reporter.provenance import command
from layerwise.runs.folder import Run
from layerwise.runs.labels import model_labels
from layerwise.runs.table import LayerTable

PICK = {
    "recipe": {"layer": 3, "norm": "raw", "pooling": "mean", "transform": "none"},
    "keep_last": False,
    "rule": "proxy",
    "why": ["layer 3 leads on <b>two</b> tasks"],
    "layers_alike": [2, 3, 4],
    "expected_gain": {"mean": 1.25, "low": 0.5, "high": 2.0},
    "saving": {"parameters": "40 %"},
}
TRADEOFF = {
    "units": {"score": "points", "latency": "ms a text"},
    "layers": [
        {"layer": k, "score": 50 + k, "latency": 2.0 + k, "parameters": 10 * k, "memory": 4 * k, "pareto": k != 2}
        for k in range(4)
    ],
}


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page).group(1))


def headings(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


def test_a_scan_alone_has_no_scores_and_a_pair_has_correlations(tmp_path):
    assert headings(layerwise.report(scan_table(), html=tmp_path / "a.html").read_text()) == [
        "summary",
        "curves",
        "heat",
        "provenance",
    ]
    page = layerwise.report(scan_table(), eval_table(), html=tmp_path / "b.html").read_text()
    assert headings(page) == ["summary", "curves", "heat", "scores", "correlation", "provenance"]
    (found,) = data_of(page)["correlation"]
    assert found["model"] == 0 and {row["task"] for row in found["rows"]} == {"STS12", "Banking77Classification"}


def test_another_models_scores_are_not_correlated(tmp_path):
    page = layerwise.report(scan_table("a"), eval_table("b"), html=tmp_path / "p.html").read_text()
    assert "correlation" not in headings(page) and "scores" in headings(page)


def test_a_folder_shows_the_pick_and_the_front_that_lie_in_it(tmp_path):
    eval_table().save(tmp_path / "run")
    (tmp_path / "run" / "pick.json").write_text(json.dumps(PICK))
    (tmp_path / "run" / "tradeoff.json").write_text(json.dumps(TRADEOFF))
    page = layerwise.report(tmp_path / "run", html=tmp_path / "p.html").read_text()
    assert "m: Use layer 3." in page and "+1.25 points, between +0.50 and +2.00" in page
    assert "layer 3 leads on &lt;b&gt;two&lt;/b&gt; tasks" in page
    assert [row["layer"] for row in data_of(page)["tradeoff"][0]["rows"] if row["pareto"]] == [0, 1, 3]
    (tmp_path / "run" / "pick.json").write_text("{")
    with pytest.raises(RunError, match="pick.json is damaged"):
        layerwise.report(tmp_path / "run", html=tmp_path / "p.html")


def test_keeping_the_last_layer_is_an_answer(tmp_path):
    scan_table().save(tmp_path)
    (tmp_path / "pick.json").write_text(json.dumps({"keep_last": True, "why": []}))
    assert "m: Keep the last layer." in layerwise.report(tmp_path, html=tmp_path / "p.html").read_text()


def test_curves_carry_intervals_the_normed_last_layer_and_the_depth():
    line = content([Run.open(scan_table(depth=5))])["scan"][0]
    assert line["layers"] == [0, 1, 2, 3, 4, 5] and line["depth"] == 5
    assert line["low"][0] == pytest.approx(line["value"][0] - 0.1, abs=1e-4)
    assert line["normed"]["layer"] == 5


def test_stress_runs_keep_condition_and_level():
    shown = content([Run.open(stress_table())])
    assert [line["level"] for line in shown["stress"]] == [0.0, 0.5, 1.0] and not shown["scan"]


def test_best_and_last_are_means_over_tasks_and_the_last_is_the_normed_one():
    (layer, best), last = best_and_last(eval_table(depth=3))
    assert (layer, best) == (2, pytest.approx(60.5)) and last == pytest.approx(51.5)
    assert best_and_last(LayerTable(())) == ((None, 0.0), None)
    mapped = tuple(replace(s, transform="whiten", value=99.0) for s in eval_table(depth=3))
    both = LayerTable(eval_table(depth=3).scores + mapped, eval_table(depth=3).run)
    assert best_and_last(both) == ((layer, best), last), "a linear map is another recipe"
    tokens = {line["tokens"] for line in content([Run.open(both)])["eval"]}
    assert {t.partition(" + ")[2] for t in tokens} == {"", "whiten"}


def test_labels_are_as_short_as_they_can_be_and_tell_runs_apart():
    tables = [scan_table(name) for name in ("/a/base/model", "/a/tuned/model", "zoo/gptneox/step8", "hub/x")]
    assert model_labels(tables) == ["base/model", "tuned/model", "gptneox/step8", "x"]
    twice = [Run.open(scan_table("hub/x")), Run.open(scan_table("hub/x")), Run.open(eval_table("hub/x"))]
    assert run_labels(twice) == ["x · 1", "x · 2", "x"]
    revised = [LayerTable(tuple(s for s in scan_table("hub/x"))) for _ in range(2)]
    other = LayerTable(tuple(type(s)(**(s.__dict__ | {"revision": "step9"})) for s in revised[1]))
    assert model_labels([revised[0], other]) == ["x @ main", "x @ step9"]


def test_json_cannot_end_its_script():
    nasty = "</script><!--<script>\u2028\u2029&\ud800\x00'\""
    text = safe_json({"name": nasty})
    assert not set("<>&\u2028") & set(text) and text.isascii() and json.loads(text)["name"] == nasty


def test_the_page_asks_nothing_of_the_network(tmp_path):
    page = layerwise.report(scan_table(), eval_table(), html=tmp_path / "p.html").read_text()
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)|@import|url\(|fetch\(|XMLHttp|\bimport\(""", page)
    assert set(re.findall(r"https?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_recorded_command_is_given_or_put_together(tmp_path):
    table = scan_table("hub/x", rows=("raw",))
    told = shlex.split(command(table, "run"))
    args = build_parser().parse_args(told[1:])
    assert (args.verb, args.model, args.data, args.limit) == ("scan", "hub/x", "texts.txt", 7)
    assert (args.max_length, args.out, args.metrics) == (64, "run", "prompt_entropy,curvature,dataset_entropy")
    typed = LayerTable(table.scores, {**table.run, "environment": {"command": "layerwise scan y"}})
    assert command(typed, "run") == "layerwise scan y"
    args = build_parser().parse_args(shlex.split(command(eval_table("x"), "scores"))[1:])
    assert (args.tasks, args.data_root) == ("STS12,Banking77Classification", "ROOT")
    args = build_parser().parse_args(shlex.split(command(stress_table("x"), "stress"))[1:])
    assert (args.kind, args.levels) == ("random", "0,0.5,1")


def test_the_options_of_a_source_open_it_again(tmp_path):
    (tmp_path / "t.txt").write_text("a b c\nd e\n")
    count = lambda text: {"input_ids": text.split()}  # noqa: E731
    source = open_texts(tmp_path / "t.txt", only="wikitext", min_tokens=2, tokenizer=count, limit=9, sample=5)
    typed = ["--data", str(tmp_path / "t.txt"), "--only", "wikitext", "--min-tokens", "2", "--limit", "9"]
    assert flag_words(TextOptions, source.options) == [*typed, "--sample", "5"]
    assert open_texts(["a"]).options == {}, "nothing opens a list again"


def test_the_command_line_writes_the_file_and_says_how_large_it_is(tmp_path, capsys):
    scan_table().save(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--html", str(tmp_path / "r.html"), "--title", "<Mine>"]) == 0
    assert "kB" in capsys.readouterr().err
    assert '<h1 dir="auto">&lt;Mine&gt;</h1>' in (tmp_path / "r.html").read_text()
    assert main(["report", str(tmp_path / "nothing"), "--html", str(tmp_path / "r.html")]) == 2
    assert "no finished run" in capsys.readouterr().err
    with pytest.raises(InputError, match="no run is named"):
        layerwise.report(html=tmp_path / "r.html")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_lines_stand_out_from_the_ground_and_ramps_grow_evenly():
    for colours, ground in ((LINES, "#FFFFFF"), (LINES_ON_DARK, "#181D23")):
        for colour in colours:
            light, dark = sorted([luminance(colour), luminance(ground)], reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, colour  # WCAG's bar for graphics
    steps = [luminance(along(RAMP, i / 20)) for i in range(21)]
    assert all(a > b for a, b in zip(steps, steps[1:], strict=False))
    assert along(DIVERGING, 0.5) == DIVERGING[2] and along(RAMP, 0) == RAMP[0] and along(RAMP, 2) == RAMP[-1]
