"""The report: what it shows of which runs, that it holds all it needs, and that names stay text."""

import html
import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import eval_table, scan_table, stress_table
from snapshots import TEXTS, write_root

import layerwise
from layerwise.__main__ import main
from layerwise.cli.parser import build_parser
from layerwise.core.errors import InputError, RunError
from layerwise.core.option_records import flag_arguments
from layerwise.engines.local import local_processes
from layerwise.inputs.options import TextOptions
from layerwise.metrics.readings import mean_over_prompts
from layerwise.metrics.scores import mean_score
from layerwise.runs.folder import Run
from layerwise.runs.labels import model_labels
from layerwise.runs.table import LayerTable
from layerwise.verbs import commands
from layerwise.verbs.report.content import captions, page_data, run_labels
from layerwise.verbs.report.drawing import (
    DIVERGING,
    LINES,
    LINES_ON_DARK,
    RAMP,
    axis_label,
    is_log,
    place_of_ring,
    ramp_colour,
)
from layerwise.verbs.report.markup import safe_json
from layerwise.verbs.report.overview import best_and_last
from layerwise.verbs.report.pick_card import pick_card, pick_cards
from layerwise.verbs.report.repeat_commands import command, pick_command

PICK = {
    "recipe": {"layer": 3, "norm": "raw", "pooling": "mean", "transform": "none"},
    "keep_last": False,
    "last": {"layer": 5, "norm": "normed"},
    "rule": "probes-3",
    "why": ["layer 3 leads on <b>two</b> tasks"],
    "layers_alike": [2, 4],
    "gain": {"mean": 3.0, "low": 1.0, "high": 5.0},
    "judged_on": "126 bundled test sentences",
}
PICKED_LAYERS = [
    {
        "layer": k,
        "transform": "none",
        "scores": {"pairs": 70.0 + k, "paraphrase": 50.0},
        "gain": {"mean": k - 2.0, "low": k - 3.0, "high": k - 1.0},
        "relative_time": k / 5,
        "same_within_noise": k in (2, 4),
    }
    for k in range(6)
]
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
    page = layerwise.report([scan_table(), eval_table()], html=tmp_path / "b.html").read_text()
    assert headings(page) == ["summary", "curves", "heat", "scores", "correlation", "provenance"]
    (found,) = data_of(page)["correlation"]
    assert found["model"] == 0 and {row["task"] for row in found["rows"]} == {"STS12", "Banking77Classification"}


def test_another_models_scores_are_not_correlated(tmp_path):
    page = layerwise.report([scan_table("a"), eval_table("b")], html=tmp_path / "p.html").read_text()
    assert "correlation" not in headings(page) and "scores" in headings(page)


def test_a_folder_shows_the_pick_and_the_front_that_lie_in_it(tmp_path):
    eval_table().save(tmp_path / "run")
    (tmp_path / "run" / "pick.json").write_text(json.dumps({"schema_version": 1, **PICK}))
    (tmp_path / "run" / "tradeoff.json").write_text(json.dumps({"schema_version": 1, **TRADEOFF}))
    page = layerwise.report(tmp_path / "run", html=tmp_path / "p.html").read_text()
    assert "m: use layer 3 of 5." in page
    assert "On 126 bundled test sentences: +3.0 points (95 %: +1.0 to +5.0) over the last layer." in page
    assert "2 of 5 blocks are not needed. A portable export keeps one block more and removes 1" in page
    assert "Layer 3 leads on &lt;b&gt;two&lt;/b&gt; tasks." in page
    assert [row["layer"] for row in data_of(page)["tradeoff"][0]["rows"] if row["pareto"]] == [0, 1, 3]
    (tmp_path / "run" / "pick.json").write_text("{")
    with pytest.raises(RunError, match="pick.json is damaged"):
        layerwise.report(tmp_path / "run", html=tmp_path / "p.html")


def test_keeping_the_last_layer_is_an_answer(tmp_path):
    scan_table().save(tmp_path)
    (tmp_path / "pick.json").write_text(json.dumps({"schema_version": 1, "keep_last": True, "why": []}))
    assert "m: keep the last layer." in layerwise.report(tmp_path, html=tmp_path / "p.html").read_text()


def test_curves_carry_intervals_the_normed_last_layer_and_the_depth():
    line = page_data([Run.open(scan_table(depth=5))])["scan"][0]
    assert line["layers"] == [0, 1, 2, 3, 4, 5] and line["depth"] == 5
    assert line["low"][0] == pytest.approx(line["value"][0] - 0.1, abs=1e-4)
    assert line["normed"]["layer"] == 5


def test_stress_runs_keep_condition_and_level():
    shown = page_data([Run.open(stress_table())])
    assert [line["level"] for line in shown["stress"]] == [0.0, 0.5, 1.0] and not shown["scan"]


def test_best_and_last_are_means_over_tasks_and_the_last_is_the_normed_one():
    (layer, best), last = best_and_last(eval_table(depth=3))
    assert (layer, best.value) == (2, pytest.approx(60.5)) and last.value == pytest.approx(51.5)
    assert best_and_last(LayerTable(())) == (None, None)
    mapped = tuple(replace(s, transform="whiten", value=99.0) for s in eval_table(depth=3))
    both = LayerTable(eval_table(depth=3).scores + mapped, eval_table(depth=3).run)
    (again, mean), end = best_and_last(both)
    assert (again, mean.value, end.value) == (layer, best.value, last.value), "a linear map is another recipe"
    tokens = {line["tokens"] for line in page_data([Run.open(both)])["eval"]}
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
    page = layerwise.report([scan_table(), eval_table()], html=tmp_path / "p.html").read_text()
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)|@import|url\(|fetch\(|XMLHttp|\bimport\(""", page)
    assert set(re.findall(r"https?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_recorded_command_is_given_or_put_together(tmp_path):
    table = scan_table("hub/x", rows=("raw",))
    args = build_parser(commands()).parse_args(shlex.split(command(table, "run"))[1:])
    assert (args.verb, args.model, args.data, args.limit) == ("scan", "hub/x", "texts.txt", 7)
    assert (args.max_length, args.out, args.metrics) == (64, "run", "prompt_entropy,curvature,dataset_entropy")
    typed = LayerTable(table.scores, {**table.run, "environment": {"command": "layerwise scan y"}})
    assert command(typed, "run") == "layerwise scan y"
    args = build_parser(commands()).parse_args(shlex.split(command(eval_table("x"), "scores"))[1:])
    assert (args.tasks, args.data_root) == ("STS12,Banking77Classification", "ROOT")
    args = build_parser(commands()).parse_args(shlex.split(command(stress_table("x"), "stress"))[1:])
    assert (args.kind, args.levels) == ("random", "0,0.5,1")


def test_the_options_of_a_source_open_it_again(tmp_path):
    (tmp_path / "t.txt").write_text("a b c\nd e\n")
    count = lambda text: {"input_ids": text.split()}  # noqa: E731
    source = layerwise.texts(tmp_path / "t.txt", only="wikitext", min_tokens=2, tokenizer=count, limit=9, sample=5)
    typed = ["--data", str(tmp_path / "t.txt"), "--limit", "9", "--sample", "5", "--only", "wikitext"]
    assert flag_arguments(TextOptions, source.options) == [*typed, "--min-tokens", "2"]
    assert layerwise.texts(["a"]).options == {}, "nothing opens a list again"


def test_the_command_line_writes_the_file_and_says_how_large_it_is(tmp_path, capsys):
    scan_table().save(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--html", str(tmp_path / "r.html"), "--title", "<Mine>"]) == 0
    assert "kB" in capsys.readouterr().err
    assert '<h1 dir="auto">&lt;Mine&gt;</h1>' in (tmp_path / "r.html").read_text()
    assert main(["report", str(tmp_path / "nothing"), "--html", str(tmp_path / "r.html")]) == 2
    assert "no finished run" in capsys.readouterr().err
    with pytest.raises(InputError, match="no run given"):
        layerwise.report([], html=tmp_path / "r.html")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_lines_stand_out_from_the_ground_and_ramps_grow_evenly():
    for colours, ground in ((LINES, "#FFFFFF"), (LINES_ON_DARK, "#181D23")):
        for colour in colours:
            light, dark = sorted([luminance(colour), luminance(ground)], reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, colour  # WCAG's bar for graphics
    steps = [luminance(ramp_colour(RAMP, i / 20)) for i in range(21)]
    assert all(a > b for a, b in zip(steps, steps[1:], strict=False))
    assert (
        ramp_colour(DIVERGING, 0.5) == DIVERGING[2]
        and ramp_colour(RAMP, 0) == RAMP[0]
        and ramp_colour(RAMP, 2) == RAMP[-1]
    )


def test_the_commands_of_a_page_make_it_again(reading_llama, tmp_path, monkeypatch):
    """Every verb whose result a page shows, run again by the commands that the page lists."""
    monkeypatch.chdir(tmp_path)
    # One task is scored sooner than processes are started.
    monkeypatch.setattr("layerwise.verbs.eval.api.local_processes", lambda workers: local_processes(0))
    write_root(tmp_path / "root")
    (tmp_path / "my texts.txt").write_text("\n".join(f"{text} w{i}" for i, text in enumerate(TEXTS * 3)))
    data = ["--data", "my texts.txt"]
    made = [
        ["scan", reading_llama, *data, "--limit", "20", "--metrics", "prompt_entropy,curvature", "--out", "scan"],
        ["eval", reading_llama, "--tasks", "all", "--data-root", "root", "--out", "scores"],
        ["lab", "stress", reading_llama, *data, "--kind", "random", "--levels", "0,1", "--out", "stress"],
        ["pick", "scan", "--fit", data[1], "--layer-only", "--seed", "3", "--save", "scan"],
        ["lab", "tradeoff", "scores", "--score", "Mine", "--repeats", "1"],
        ["report", "scan", "scores", "stress", "--html", "page.html", "--title", "All of it"],
    ]
    for words in made:
        assert main(words) == 0, words
    first = Path("page.html").read_text()
    listed = html.unescape(re.search(r'<pre id="commands" tabindex="0">(.*?)</pre>', first, re.DOTALL).group(1))
    for name in ("scan", "scores", "stress"):
        shutil.rmtree(name)
    Path("page.html").unlink()
    words = [shlex.split(line) for line in listed.splitlines()]
    assert [line[1] for line in words] == [line[0] for line in (*made[:3], *made[3:])]
    for line in words:
        assert line[0] == "layerwise" and main(line[1:]) == 0, line
    again = Path("page.html").read_text()
    assert headings(again) == headings(first) and "pick" in headings(again) and "tradeoff" in headings(again)
    assert data_of(again)["scan"] == data_of(first)["scan"] and data_of(again)["eval"] == data_of(first)["eval"]
    assert json.loads(Path("scan/pick.json").read_text())["options"]["seed"] == 3


def test_a_recorded_command_is_one_call_of_layerwise_or_it_is_not_shown():
    table = scan_table("m")
    for typed in ("layerwise scan m; rm -rf x", "layerwise scan 'm", "rm -rf x", 7):
        shown = command(LayerTable(table.scores, {**table.run, "environment": {"command": typed}}), "run")
        assert shown.startswith("layerwise scan ") and shlex.join(shlex.split(shown)) == shown, (
            "nothing is left unquoted"
        )


def test_a_pick_from_python_is_shown_as_a_command_with_what_it_lacks():
    record = {"verb": "pick", "run": None, "fit": {"data": "t.txt", "limit": 5}}
    shown = pick_command({"options": record | {"labels": {"in_memory": "DataFrame"}}}, "run")
    assert shlex.split(shown, comments=True) == "layerwise pick run --fit t.txt --labels LABELS --save run".split()
    assert shown.endswith("# called from Python with texts opened with --limit 5")
    by_rule = {"verb": "pick", "run": None, "rule": "min:dime"}
    assert pick_command({"options": by_rule}, "run") == "layerwise pick run --rule min:dime --save run"


def test_the_pick_card_explains_its_probes_and_lists_all_layers_if_it_has_them():
    card = pick_card("m", PICK)
    assert "50 is chance" in card and "Layers that score the same within noise: 2, 4." in card
    assert "<table" not in card
    card = pick_card("m", PICK | {"layers": PICKED_LAYERS})
    rows = re.findall(r"<tr>(.*?)</tr>", card)[1:]
    assert len(rows) == 6 and "3, chosen" in rows[3] and "2, same" in rows[2] and "0.60" in rows[3]
    assert "+1.0 [+0.0, +2.0]" in rows[3] and "73.0" in rows[3]
    bare = {**PICKED_LAYERS[5], "gain": {"mean": 0, "low": 0, "high": 0}}
    mapped = PICK | {"recipe": {**PICK["recipe"], "transform": "whiten+static"}, "layers": [bare]}
    assert "5, no map" in pick_card("m", mapped) and ">0.0<" in pick_card("m", mapped)
    recipe = {"layer": 3, "pooling": "last", "transform": "remove_top:8+mean@256", "template": "a {text} b"}
    beside = pick_card(
        "m", PICK | {"recipe": recipe, "layers": [bare, {**bare, "layer": 3, "transform": "remove_top:8+mean"}]}
    )
    assert "map remove_top:8, and the mean over all tokens beside it, 256 dimensions, in the template" in beside
    assert "a {text} b" in beside and "3, chosen" in beside and "5, no map" in beside
    unknown = PICK | {"recipe": {**PICK["recipe"], "transform": "center+later"}}
    assert "with the linear map center+later" in pick_card("m", unknown), "of a newer version"
    assert pick_card("m", {}) and "probes" not in pick_card("m", {"rule": "last", "keep_last": True}).lower()


def test_the_same_pick_in_two_folders_is_shown_once():
    assert pick_cards([("m", PICK), ("m", dict(PICK))]).count('class="pick"') == 1
    assert pick_cards([("m", PICK), ("m", PICK | {"rule": "other"})]).count('class="pick"') == 2


def test_scores_have_intervals_and_texts_are_counted(tmp_path):
    scored = eval_table(depth=3)
    sure = LayerTable(tuple(replace(s, ci_low=s.value - 3, ci_high=s.value + 4) for s in scored), scored.run)
    page = layerwise.report([scan_table(), sure], html=tmp_path / "p.html").read_text()
    low, high = 60.5 - 3 / math.sqrt(2), 60.5 + 4 / math.sqrt(2)  # two independent tasks
    assert f"2 (60.5 [{low:.1f}, {high:.1f}])" in page
    assert "7 texts, 70 tokens, 1 cut at 64 tokens" in page
    assert "[" not in re.search(r'data-name="best layer">(.*?)<', report_text(scored, tmp_path)).group(1)


def report_text(table, folder):
    return layerwise.report(table, html=folder / "other.html").read_text()


def own_metric(name="my_metric"):
    def size(tokens, mask):
        return tokens.abs().mean(dim=(1, 2))

    return layerwise.Metric(
        name=name,
        perspective="scale",
        larger_means="larger numbers <of mine>",
        reading=mean_over_prompts(name, size),
        score=mean_score(),
        cite="",
        unit="bananas",
    )


def test_a_metric_of_ones_own_keeps_its_caption(tiny_llama, tmp_path):
    layerwise.scan(tiny_llama, TEXTS, metrics=[own_metric(), "curvature"], out=tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert list(run.table.run["metrics"]) == ["my_metric"], "the catalog need not be recorded"
    found = page_data([run])["metrics"]
    assert found["my_metric"] == {"unit": "bananas", "larger": "larger numbers <of mine>"}
    assert found["curvature"]["unit"] == "radians"
    joined = LayerTable.join([LayerTable.join([run.table])])
    assert captions([joined])["my_metric"].unit == "bananas"
    assert axis_label(joined, "my_metric") == "my metric (bananas)"


@pytest.mark.parametrize(
    ("values", "ring", "log", "place"),
    [
        ([1.0, 5.0, 99.0], 150.0, False, "inside"),
        ([1.0, 5.0, 12.0], 124.0, False, "above"),
        ([10.0, 11.0, 12.0], 2.0, False, "below"),
        ([1.0, 500.0, math.nan], 3000.0, True, "inside"),
        ([1.0, 500.0], 1e9, True, "above"),
        ([1.0, 500.0], -1.0, True, "below"),
        ([0.0, 500.0], 400.0, False, "inside"),
        ([3.0, 3.0], 4.0, False, "inside"),
        ([], 4.0, False, "inside"),
    ],
)
def test_a_ring_that_would_flatten_the_curve_stands_at_the_edge(values, ring, log, place):
    assert is_log(values) == log
    assert place_of_ring(values, ring, log=log) == place


def with_ring(table, value):
    return LayerTable(tuple(replace(s, value=value) if s.norm == "normed" else s for s in table), table.run)


def test_the_page_marks_the_scale_of_each_picture_and_scores_are_linear():
    steep = LayerTable(tuple(replace(s, value=s.value * 1000**s.depth) for s in scan_table()), scan_table().run)
    lines = page_data([Run.open(steep), Run.open(scan_table("flat"))])["scan"]
    assert {line["log"] for line in lines} == {True}, "all lines of a picture share its scale"
    assert not any(line["log"] for line in page_data([Run.open(scan_table())])["scan"])
    assert page_data([Run.open(with_ring(scan_table(), 999.0))])["scan"][0]["normed"]["edge"] == "above"
    assert "log" not in page_data([Run.open(eval_table())])["eval"][0]
