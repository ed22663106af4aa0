"""Options: one dataclass per verb; signatures, docstrings, flags, campaign files and records follow it."""

import json
import shlex
from argparse import ArgumentParser
from dataclasses import KW_ONLY, dataclass, fields, replace
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, get_args, get_type_hints

import pytest
from made_runs import eval_table

import layerwise
from layerwise.cli.flags import add_options, option_values
from layerwise.cli.parser import build_parser
from layerwise.core.checks import require_count
from layerwise.core.errors import InputError
from layerwise.core.options import Option, option_specs, require_valid, takes
from layerwise.core.recipe import Recipe
from layerwise.engines.options import Cluster
from layerwise.inputs.options import TextFilter, TextOptions
from layerwise.inputs.perturbations.changes import STRESS_SCALES
from layerwise.inputs.text import FILTERS
from layerwise.models.load import DTYPES
from layerwise.models.spec import Dtype, ModelSpec, call_record
from layerwise.verbs import commands
from layerwise.verbs.embed.options import EmbedOptions
from layerwise.verbs.eval.data_root import COLUMNS
from layerwise.verbs.eval.options import EvaluateOptions
from layerwise.verbs.export.options import ExportOptions
from layerwise.verbs.lab.data.options import TaskType
from layerwise.verbs.lab.stress.options import StressKind, StressOptions
from layerwise.verbs.probe.options import ProbeOptions
from layerwise.verbs.report.repeat_commands import command, command_arguments
from layerwise.verbs.scan.options import SETTINGS, ScanOptions

LIBRARY = {name: getattr(layerwise, name) for name in layerwise.__all__}
LIBRARY |= {name: getattr(layerwise.lab, name) for name in layerwise.lab.__all__}
LIBRARY = {name: value for name, value in LIBRARY.items() if hasattr(value, "__signature__")}


def test_every_verb_has_its_signature_from_its_options():
    verbs = {words.rpartition(" ")[2] for words in commands()} - {"doctor", "campaign"}  # one argument each
    assert verbs | {"audit_protocol", "plan", "plot", "texts", "audio", "images", "labelled"} == set(LIBRARY)
    for name, verb in LIBRARY.items():
        kinds = {p.kind for p in signature(verb).parameters.values()}
        assert kinds <= {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}, name


@dataclass(frozen=True)
class PeekOptions:
    """The options of a verb that does not exist."""

    name: Annotated[str, Option("whose")]
    _: KW_ONLY
    depth_limit: Annotated[int, Option("how deep; see --max-length", require_count)] = 3
    share: Annotated[float | None, Option("how much", group="reading")] = None
    mode: Annotated[Literal["quick", "slow"], Option("which way")] = "quick"
    strict: Annotated[bool, Option("stop at the first problem")] = False
    cache: Annotated[bool, Option("forget what was seen")] = True
    on_seen: Annotated[Any, Option("called for each", library_only=True)] = None

    def __post_init__(self) -> None:
        require_valid(self)


def test_a_function_takes_what_its_options_declare():
    @takes(PeekOptions)
    def peek(options: PeekOptions) -> int:
        """Looks.

        Returns:
            How deep.
        """
        return options.depth_limit

    assert peek("a") == 3 and peek(name="a", depth_limit=5) == 5
    taken = signature(peek).parameters
    assert list(taken) == ["name", "depth_limit", "share", "mode", "strict", "cache", "on_seen"]
    assert (taken["name"].default, taken["share"].default) == (Parameter.empty, None)
    assert get_type_hints(peek)["depth_limit"] is int and get_type_hints(peek)["return"] is int
    assert peek.__doc__ == PEEK_HELP
    with pytest.raises(TypeError, match=r"^peek\(\) got an unexpected keyword argument 'depth'"):
        peek("a", depth=3)
    with pytest.raises(TypeError, match=r"^peek\(\) missing a required argument: 'name'"):
        peek()
    with pytest.raises(TypeError, match=r"^peek\(\) too many positional arguments"):
        peek("a", 3)
    with pytest.raises(InputError, match="depth_limit must be at least 1"):
        peek("a", depth_limit=0)


PEEK_HELP = """Looks.

Args:
    name: whose.
    depth_limit: how deep; see `max_length`.
    share: how much.
    mode: which way.
    strict: stop at the first problem.
    cache: if False, forget what was seen.
    on_seen: called for each.

Returns:
    How deep."""


def test_words_that_another_room_gives_a_meaning_are_the_words_that_are_offered():
    assert get_args(StressKind) == tuple(STRESS_SCALES)
    assert get_args(TextFilter) == tuple(FILTERS)
    assert get_args(Dtype) == tuple(DTYPES)
    assert get_args(TaskType) == tuple(COLUMNS)


# Written by hand: a flag that is renamed or lost breaks somebody's script.
MODEL = "revision dtype device device-map adapter part trust-remote-code"
TEXTS = "data column id-column split config only min-tokens limit sample"
READING = "layers norm tokens pooling max-length batch-tokens"
ENGINE = "engine address workers cpus-per-worker gpus-per-worker threads"
FLAGS = {
    "scan": f"{MODEL} states stream vllm-args {TEXTS} {READING} {ENGINE} allow-missing out metrics rows shard-size "
    "seed view-strength state entropy keep-prompts inside dry-run json",
    "campaign": "dry-run json status",
    "eval": f"{MODEL} stream {READING} template {ENGINE} tasks data-root out recipe fit vectors precision dry-run json",
    "probe": f"{MODEL} layers tokens pooling max-length batch-tokens data column id-column split config limit sample "
    "test test-split label probes out test-share epochs seed precision features threads json",
    "pick": f"{MODEL} stream fit column labels pairs language rule prefer templates layer-only no-static servable dims "
    "compare-static no-early-stop model max-length seed save export json",
    "export": f"{MODEL} layer recipe probe label prefer out norm tokens pooling transform dims fit column normalize "
    "template scores mode format servable max-length why texts json",
    "shrink": f"{MODEL} {TEXTS} out queries documents pairs method student blocks choose minutes steps lora batch-size "
    "learning-rate seed no-compatible work layer transform dims normalize weights words int8 json",
    "report": "html overwrite title where figure out metric rows tokens pooling norm transform measure cost",
    "compare": "against rows tokens html overwrite json",
    "lab correlate": "norm json",
    "lab tradeoff": "score model data others mode repeats json",
    "lab audit": "metrics rules protocol stage data-root models out only fit dtype device column split config limit "
    "sample workers threads json",
    "lab stress": f"{MODEL} stream vllm-args {TEXTS} {READING} {ENGINE} allow-missing kind levels metrics rows "
    "shard-size seed state out entropy json",
    "embed": f"{MODEL} states stream {TEXTS} {READING} out overwrite",
    "lab data": "type test train subset cap",
    "lab views": "count strength seed json",
    "lab reproduce": "list out scale models data threads",
    "doctor": f"{MODEL} json",
}


@pytest.mark.parametrize("verb", commands())
def test_no_flag_is_lost(verb):
    parser = ArgumentParser()
    commands()[verb].add_arguments(parser)
    long = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    assert long - {"--help"} == {f"--{name}" for name in FLAGS[verb].split()}


def test_help_groups_flags_and_shows_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        build_parser(commands()).parse_args(["scan", "--help-all"])
    printed = capsys.readouterr().out
    for heading in ("the model:", "the texts:", "what to measure:", "how it runs:"):
        assert f"\n{heading}\n" in printed
    for line in ("(default: 4096)", "25%,50%", "(default: float32)", "at most 512"):
        assert line in printed


def test_the_options_of_a_new_verb_are_its_flags():
    parser = ArgumentParser()
    add_options(parser, PeekOptions)
    asked_for = option_values(parser.parse_args(["--name", "a"]), PeekOptions)
    assert PeekOptions(**asked_for) == PeekOptions(name="a")
    words = "--depth-limit 5 --share 0.5 --mode slow --strict --no-cache --name b".split()
    made = PeekOptions(**option_values(parser.parse_args(words), PeekOptions))
    assert made == PeekOptions(depth_limit=5, share=0.5, mode="slow", strict=True, cache=False, name="b")
    for wrong in (["--name", "a", "--mode", "fast"], ["--name", "a", "--on-seen", "x"], []):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)


def test_wrong_values_are_refused_by_name_all_at_once():
    with pytest.raises(InputError) as refused:
        PeekOptions(name="a", depth_limit=0, mode="quik")
    assert str(refused.value) == (
        "depth_limit must be at least 1, not 0; mode 'quik' is not one of quick, slow; did you mean quick?"
    )
    with pytest.raises(InputError, match="rows 'row'.*; norm 'Raw'.*; shard_size must.*; engine 'rey'"):
        ScanOptions("m", rows="row", norm="Raw", shard_size=0, engine="rey")


@pytest.mark.parametrize("options", [EmbedOptions, ExportOptions])
def test_a_verb_that_makes_one_vector_per_layer_takes_one_way_to_read_it(options):
    for name, word in (("norm", "raw,normed"), ("tokens", ["all", "no_first"]), ("pooling", "mean,last")):
        with pytest.raises(InputError, match=f"{name} .* is not one of"):
            options(
                "m",
                0 if options is ExportOptions else "demo",
                **{name: word} | ({"out": "o"} if options is ExportOptions else {}),
            )


def test_an_option_without_help_is_refused():
    @dataclass(frozen=True)
    class Bare:
        depth: int = 3

    with pytest.raises(TypeError, match="Bare.depth needs"):
        option_specs(Bare)


HUB = ModelSpec("hub/m", dtype="float16", trust_remote_code=True)
ASKED = [
    ("scan", ScanOptions(HUB)),
    ("scan", ScanOptions(HUB, metrics=["curvature"], rows="raw,unit", max_length=64, state="sketch:8", threads=1)),
    ("scan", ScanOptions(HUB, layers="-2,-1", view_strength=0.25, engine=Cluster("auto", 3, gpus_per_worker=0.5))),
    ("stress", StressOptions(HUB, kind="random", levels=[0.0, 0.5, 1.0], tokens=("all", "no_first"))),
    ("probe", ProbeOptions(HUB, "d", "test.csv", label="a,b", probes=["linear", "knn"], test_share=0.25)),
    ("eval", EvaluateOptions(HUB, tasks=["STS12", "STS13"], out="x", pooling="last", fit="task", workers=3)),
]


@pytest.mark.parametrize(("verb", "options"), ASKED)
def test_a_recorded_call_becomes_a_command_that_asks_for_the_same(verb, options):
    """What is asked, recorded, typed and parsed again is recorded the same."""
    texts = TextOptions("texts.csv", column="body", limit=7)
    data = None if verb == "eval" else {one.name: getattr(texts, one.name) for one in option_specs(TextOptions)}
    record = json.loads(json.dumps(call_record(verb, options, data)))
    args = build_parser(commands()).parse_args([*command_arguments(record, model="?")[1:], "--out", "x"])
    assert ModelSpec(args.model, **option_values(args, ModelSpec, exclude=["name"])) == HUB
    assert verb == "eval" or TextOptions(**option_values(args, TextOptions)) == texts
    typed = option_values(args, type(options))
    if getattr(args, "engine", "local") == "ray":
        typed["engine"] = Cluster(**option_values(args, Cluster))
    again = call_record(verb, replace(options, **typed | {"out": options.out}), data)
    for name, value in again.items():
        assert as_words(value) == as_words(record[name]), name


def as_words(value: Any) -> Any:
    """Several words with commas and a list of them ask for the same."""
    return ",".join(f"{v:g}" if isinstance(v, float) else v for v in value) if isinstance(value, list) else value


def test_a_run_records_what_was_asked_without_secrets_or_texts(tiny_llama, tmp_path):
    (tmp_path / "t.txt").write_text("w1 w2 w3\nw4 w5\n")
    data = layerwise.texts(tmp_path / "t.txt", limit=2)
    table = layerwise.scan(tiny_llama, data, metrics="curvature", rows="unit", out=tmp_path / "run")
    found = layerwise.LayerTable.load(tmp_path / "run")
    record = found.run["options"]
    assert record == table.run["options"]
    assert (record["verb"], record["model"]["name"], record["rows"]) == ("scan", tiny_llama, "unit")
    assert (record["data"]["data"], record["data"]["limit"]) == (str(tmp_path / "t.txt"), 2)
    assert {one.name for one in option_specs(ScanOptions)} - {"progress"} == set(record) - {"verb"}
    made = layerwise.LayerTable(found.scores, {**found.run, "environment": {}})
    words = ["scan", tiny_llama, "--data", str(tmp_path / "t.txt"), "--limit", "2", "--metrics", "curvature"]
    assert shlex.split(command(made, "again")) == ["layerwise", *words, "--rows", "unit", "--out", "again"]
    secret = call_record("scan", ScanOptions("m", out="s3://me:pass@bucket/run"))
    assert secret["out"] == "s3://***@bucket/run"
    listed = call_record("eval", EvaluateOptions(object(), "STS", out="o", fit=["private text"]))
    assert listed["fit"] == {"in_memory": "list"} and listed["model"] is None
    assert "--fit FIT" in " ".join(command_arguments(listed, model="m"))


def test_recipes_of_a_recorded_eval_are_named_in_its_command():
    recipes = [Recipe(1), Recipe(2, transform="center")]
    record = call_record("eval", EvaluateOptions("m", "STS", out="o", recipes=recipes, fit="f.txt"))
    assert record["recipes"][1]["transform"] == "center"
    args = build_parser(commands()).parse_args(command_arguments(record, model="m")[1:])
    assert (args.recipe, args.fit, args.tasks) == (["RECIPE1.json", "RECIPE2.json"], "f.txt", "STS")


def test_the_command_of_a_folder_that_was_scored_twice_names_the_tasks_of_both_calls():
    from layerwise.verbs.eval.run import merge_earlier

    def of(task: str) -> layerwise.LayerTable:
        record = call_record("eval", EvaluateOptions("m", task, out="o", pooling="last"))
        run = {"kind": "eval", "tasks": {task: {"source": "hub"}}, "failed": {}, "options": record}
        return layerwise.LayerTable(eval_table("m", tasks=[task]).scores, run)

    joined = merge_earlier(of("STS12"), of("STS13"))
    assert shlex.split(command(joined, "o"))[3:] == ["--tasks", "STS13,STS12", "--pooling", "last", "--out", "o"]
    assert merge_earlier(of("STS12"), of("STS12")).run["options"]["tasks"] == "STS12"


def test_a_stress_test_records_its_own_options_at_every_level(tiny_llama):
    table = layerwise.lab.stress(tiny_llama, ["w1 w2 w3 w4"], kind="repeat_one", levels="0,1", seed=3)
    assert [run["options"]["levels"] for run in table.run["runs"]] == ["0,1", "0,1"]
    words = command(layerwise.LayerTable(table.scores, table.run), "out")
    args = (
        build_parser(commands()).parse_args(shlex.split(words)[1:])
        if words.startswith("layerwise lab stress")
        else None
    )
    assert args and (args.kind, args.levels, args.seed, args.data) == ("repeat_one", "0,1", 3, "TEXTS.txt")


def test_a_record_from_elsewhere_cannot_break_the_command():
    for options in ({"verb": "rm"}, {}, {"verb": "scan", "model": None, "data": None, "rows": {"a": 1}, "seed": []}):
        run = {"kind": "scan", "model": {"name": "m"}, "options": options}
        assert command(layerwise.LayerTable((), run), "out").startswith("layerwise scan m")


def test_a_campaign_takes_what_scan_and_texts_take(tmp_path):
    from layerwise.verbs.campaign.plan import Campaign

    names = {f.name for f in fields(ScanOptions)}
    assert set(SETTINGS) < names and "out" not in SETTINGS
    asked_for = {
        "out": str(tmp_path),
        "models": [{"name": "m", "dtype": "float23"}],
        "engine": {"workers": 0},
        "data": {"d": {"data": "demo", "tokenizer": "x", "only": "wikitxt"}},
        "settings": {"s": {"keep_prompts": "all", "view_strength": 2}},
    }
    with pytest.raises(InputError) as refused:
        Campaign.parse(asked_for, "c.yaml")
    for part in (
        "model m: dtype 'float23'",
        "workers must be at least 1",
        "data d has no 'tokenizer'",
        "did you mean wikitext",
        "settings s has no 'keep_prompts'",
        "view_strength must be greater than 0",
    ):
        assert part in str(refused.value), part
