"""The terminal: the first screen, progress, quiet libraries, finished and interrupted runs, closing lines."""

import logging
import re
import sys
import types
import warnings

import pytest
import transformers
from families import DEPTH
from stopping import stop_after
from transformers.utils import logging as transformers_logging

import layerwise
from layerwise.__main__ import main
from layerwise.cli.parser import DOORS, START, build_parser, first_screen, parser_of
from layerwise.core import progress
from layerwise.core.progress import announce, announcements, progress_bar
from layerwise.core.quiet import VERBOSE_VARIABLE, quiet_libraries
from layerwise.models.load import ModelSpec, identity_from_files, load_network
from layerwise.verbs import commands
from layerwise.verbs.scan import worker

SCAN = {"metrics": "curvature,dataset_entropy", "shard_size": 6}


def test_without_a_verb_the_first_screen_shows_every_verb(capsys):
    assert main([]) == 0
    screen = capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0 and capsys.readouterr().out == screen == first_screen(commands()) + "\n"
    doors, _, start = screen.partition("start with")
    listed = [line.split()[0] for line in doors.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted({words.split()[0] for words in commands()})
    assert [line.removesuffix(":") for line in doors.splitlines()[1:] if not line.startswith("  ")] == [*DOORS.values()]
    assert all(command in start for command in START.values())


def test_the_first_screen_fits_80_columns_and_24_lines():
    lines = first_screen(commands()).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 24


MOST_VERBS, MOST_OPTIONS = 12, 20  # ceilings: raise one openly, or take something away


def test_there_are_few_verbs():
    assert len({words.split()[0] for words in commands()}) <= MOST_VERBS


@pytest.mark.parametrize("verb", commands())
def test_the_help_of_a_verb_shows_few_options_and_help_all_shows_the_rest(verb, capsys):
    def options_of(flag):
        with pytest.raises(SystemExit) as stopped:
            main([*verb.split(), flag])
        assert stopped.value.code == 0
        return re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)

    shown = options_of("--help")
    assert len(shown) <= MOST_OPTIONS and len(set(shown)) == len(shown)
    parser = parser_of(build_parser(commands()), verb)
    every = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    assert sorted(options_of("--help-all") if "--help-all" in every else shown) == sorted(every)


def test_scan_needs_a_model_but_for_its_list_of_metrics(capsys):
    assert main(["scan"]) == 2
    assert "required: MODEL. See `layerwise scan --help`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["scna", "m"], "no verb 'scna'; did you mean scan?"),
        (["zzz"], "no verb 'zzz'; there are scan, report"),
        (["scan", "m", "--metrcs", "all"], "layerwise scan takes no option --metrcs; did you mean --metrics?"),
        (
            ["scan", "m", "--dtype", "float3"],
            "'float3' is not one of float32, bfloat16, float16, float64; did you mean",
        ),
        (["export"], "required: MODEL, --out. See `layerwise export --help`"),
        (
            ["lab", "views", "a", "b"],
            "layerwise lab views takes no further argument b. See `layerwise lab views --help`",
        ),
    ],
)
def test_a_mistyped_command_is_answered_with_what_is_near(args, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(args)
    printed = capsys.readouterr()
    assert stopped.value.code == 2 and printed.out == ""
    assert printed.err.startswith("layerwise: ") and said in printed.err and printed.err.count("\n") == 1


def test_the_usage_line_is_short_and_help_ends_with_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["scan", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: layerwise scan MODEL [options]"
    assert lines[-2:] == ["example:", "  layerwise scan gpt2 --data texts.txt --out run"]
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if line.endswith(":") and not line.startswith((" ", "example"))]
    assert titles[1:] == ["main options:", "in general:"]
    with pytest.raises(SystemExit):
        main(["scan", "--help-all"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if line.endswith(":") and not line.startswith((" ", "example"))]
    assert titles[1:] == ["options:", "what to measure:", "the model:", "the texts:", "how it runs:", "in general:"]


class Terminal(list):
    """Standard error that says that it is a terminal, or not."""

    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        self.append(text)
        return len(text)

    def flush(self):
        pass


def bar_on(monkeypatch, is_terminal, *given):
    screen = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress_bar(*given) as on_batch:
        for _ in range(4):
            on_batch(3, 50)
    monkeypatch.undo()
    return "".join(screen)


def test_a_bar_has_a_total_and_counts_where_there_is_none(monkeypatch):
    assert "12/12 [" in bar_on(monkeypatch, True, True, 12)
    assert "12 scores [" in bar_on(monkeypatch, True, True, None, "scores")
    assert "tokens/s" in bar_on(monkeypatch, True, True, 12)


def test_no_bar_is_drawn_where_nobody_watches(monkeypatch):
    assert bar_on(monkeypatch, False, True, 12) == bar_on(monkeypatch, True, False, 12) == ""


def test_a_notebook_without_widgets_gets_a_plain_bar_and_no_warning(monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    screen = Terminal(False)
    monkeypatch.setattr(sys, "stderr", screen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with progress_bar(True, 4) as on_batch:
            on_batch(4, 0)
    assert "4/4 [" in "".join(screen)


def test_announcements_are_silent_unless_switched_on(capsys):
    announce("a")
    with announcements(True):
        announce("b s3://key:secret@bucket")
        with announcements(False):
            announce("c")
    announce("d")
    assert capsys.readouterr().err == "b s3://***@bucket\n"


def state_of_libraries():
    loggers = {name: logging.getLogger(name).level for name in ("transformers", "mteb", "datasets")}
    hub = transformers_logging.hf_hub_utils.are_progress_bars_disabled()
    return loggers, transformers_logging.is_progress_bar_enabled(), hub, list(warnings.filters)


@pytest.mark.parametrize("hub_off", [False, True])
def test_libraries_are_quiet_inside_and_as_before_afterwards(hub_off):
    hub = transformers_logging.hf_hub_utils
    (hub.disable_progress_bars if hub_off else hub.enable_progress_bars)()
    before = state_of_libraries()
    try:
        with quiet_libraries():
            with quiet_libraries():
                pass
            assert transformers.logging.get_verbosity() == logging.ERROR
            assert not transformers_logging.is_progress_bar_enabled()
            warnings.warn("of a library", UserWarning, stacklevel=1)  # an error outside
        assert state_of_libraries() == before
        with pytest.raises(KeyError), quiet_libraries():
            raise KeyError
        assert state_of_libraries() == before
    finally:
        hub.enable_progress_bars()


def test_verbose_leaves_libraries_as_they_are(monkeypatch):
    monkeypatch.setenv(VERBOSE_VARIABLE, "1")
    before = state_of_libraries()
    with quiet_libraries():
        assert state_of_libraries() == before


def test_scan_says_what_it_does_and_what_comes_next(tiny_llama, tmp_path, capfd):
    (tmp_path / "t.txt").write_text("\n".join(f"w{i} w{i + 1} w3" for i in range(8)) + "\n\n")
    out = str(tmp_path / "run")
    assert main(["scan", tiny_llama, "--data", str(tmp_path / "t.txt"), "--out", out]) == 0
    printed = capfd.readouterr()
    lines = printed.err.splitlines()
    assert lines[0].startswith("loading llama (") and lines[0].endswith(" parameters)")
    assert lines[1].startswith("reading 8 texts from ")
    assert lines[2:] == [
        "skipped 1 blank row of the data",
        f"saved in {out}",
        f"next: layerwise report {out} --html report.html",
        f"      layerwise pick {tiny_llama} --save {out}",
    ]
    assert printed.out.startswith(f"llama, 8 texts, {DEPTH + 1} layers\n")


def test_verbose_shows_what_libraries_print(tiny_llama, capfd):
    args = ["scan", tiny_llama, "--limit", "3", "--metrics", "curvature"]
    assert main(args) == 0
    assert "Loading weights" not in capfd.readouterr().err
    assert main([*args, "--verbose"]) == 0
    assert "Loading weights" in capfd.readouterr().err


def test_a_bar_of_a_resumed_scan_ends_at_its_total(tiny_llama, word_texts, tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", stop_after(2))
    with pytest.raises(KeyboardInterrupt):
        layerwise.scan(tiny_llama, word_texts, out=tmp_path, **SCAN)
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", worker.scan_shard)
    screen = Terminal(True)
    monkeypatch.setattr(sys, "stderr", screen)
    layerwise.scan(tiny_llama, word_texts, out=tmp_path, progress=True, **SCAN)
    assert f"{len(word_texts)}/{len(word_texts)} [" in "".join(screen)


def test_a_resumed_scan_says_how_many_shards_it_reuses(tiny_llama, word_texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", stop_after(2))
    with pytest.raises(KeyboardInterrupt):
        layerwise.scan(tiny_llama, word_texts, out=tmp_path, **SCAN)
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", worker.scan_shard)
    layerwise.scan(tiny_llama, word_texts, out=tmp_path, progress=True, **SCAN)
    assert capsys.readouterr().err.splitlines()[-1] == "resuming: 2 of 8 shards done already"
    (tmp_path / "table.parquet").unlink()
    layerwise.scan(tiny_llama, word_texts, out=tmp_path, progress=True, **SCAN)
    assert capsys.readouterr().err.splitlines()[-1] == "resuming: 8 of 8 shards done already"


def test_pick_says_what_it_does(reading_llama, word_texts, capsys):
    layerwise.pick(reading_llama, word_texts, layer_only=True, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("loading llama (") and "texts at every layer" in lines[1]
    assert lines[2].startswith("scoring ") and lines[2].endswith(" recipes") and lines[3] == "timing the layers"


def test_a_log_file_gets_a_line_now_and_then_with_the_time_left(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sys, "stderr", screen := Terminal(False))
    with announcements(True), progress_bar(True, 1000, "texts") as on_batch:
        for _ in range(100):
            clock[0] += 2
            on_batch(10, 0)
    lines = "".join(screen).splitlines()
    assert lines == [  # after 30, then 60 seconds; the next would be after 120 more
        "  150 of 1,000 texts, about 2.8 minutes left",
        "  450 of 1,000 texts, about 1.8 minutes left",
    ]


@pytest.mark.parametrize(
    ("shards", "with_out", "said"),
    [
        (0, True, "interrupted; nothing was kept (the first shard was not finished)"),
        (2, True, "interrupted; run the same command again to go on"),
        (2, False, "interrupted; no --out was given, so nothing was kept"),
    ],
)
def test_an_interrupted_scan_says_what_was_kept(shards, with_out, said, tiny_llama, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", stop_after(shards))
    args = ["scan", tiny_llama, "--limit", "20", "--shard-size", "6", "--metrics", "curvature"]
    assert main([*args, "--out", str(tmp_path)] if with_out else args) == 130
    assert capsys.readouterr().err.splitlines()[-1] == f"layerwise: {said}"
    if with_out and shards:  # and what it says is true
        monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", stop_after(2))
        assert main([*args, "--out", str(tmp_path)]) == 0, "two of four shards were kept"


@pytest.mark.parametrize("family", ["tiny_llama", "tiny_bert"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_identity_from_files_is_that_of_the_loaded_model(family, dtype, request):
    spec = ModelSpec(request.getfixturevalue(family), dtype=dtype)
    found, loaded = identity_from_files(spec), load_network(spec).identity()
    assert found.fingerprint == loaded.fingerprint and found.dtype == loaded.dtype


def test_a_finished_scan_is_read_without_loading_the_model(tiny_llama, word_texts, tmp_path, monkeypatch, capsys):
    first = layerwise.scan(tiny_llama, word_texts, out=tmp_path, **SCAN)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with monkeypatch.context() as patched:
        patched.setattr("layerwise.models.opening.load_network", None)
        again = layerwise.scan(tiny_llama, word_texts, out=tmp_path, progress=True, **SCAN)
    assert capsys.readouterr().err == f"already complete, read from {tmp_path}\n"
    assert [repr(s) for s in again] == [repr(s) for s in first] and again.run == first.run
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_finished_scan_is_not_taken_for_another(tiny_llama, tiny_bert, word_texts, tmp_path):
    layerwise.scan(tiny_llama, word_texts, out=tmp_path, **SCAN)
    for model, data, more in (
        (tiny_bert, word_texts, {}),
        (tiny_llama, [*word_texts[:-1], "w1 w2 w3"], {}),
        (tiny_llama, word_texts[:-1], {}),
        (tiny_llama, word_texts, {"seed": 1}),
        (tiny_llama, word_texts, {"metrics": "curvature"}),
        (ModelSpec(tiny_llama, dtype="bfloat16"), word_texts, {}),
    ):
        with pytest.raises(layerwise.LayerwiseError, match="contains a different scan|data differ"):
            layerwise.scan(model, data, out=tmp_path, **SCAN | more)


@pytest.mark.parametrize("name", ["table.parquet", "run.json", "state-00008.safetensors"])
def test_a_finished_scan_that_was_damaged_is_made_whole(name, tiny_llama, word_texts, tmp_path):
    first = layerwise.scan(tiny_llama, word_texts, out=tmp_path, **SCAN)
    assert (tmp_path / name).exists()
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-20])
    again = layerwise.scan(tiny_llama, word_texts, out=tmp_path, **SCAN)
    assert [repr(s) for s in again] == [repr(s) for s in first]
    assert [repr(s) for s in layerwise.LayerTable.load(tmp_path)] == [repr(s) for s in first]
