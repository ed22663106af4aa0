"""Words and numbers of options: what is not known is refused where it enters, with the nearest word that is."""

import math

import numpy as np
import pytest
from families import DEPTH

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.core.recipe import Readout, Recipe
from layerwise.models.layers import choose_layers, layer_at_depth
from layerwise.runs.table import LayerTable

TEXTS = ["w1 w2 w3", "w4 w5 w6 w7", "w8 w9"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_llama) -> str:
    """The folder of a small scan."""
    out = tmp_path_factory.mktemp("words") / "run"
    layerwise.scan(tiny_llama, TEXTS, out=out, metrics="curvature,prompt_entropy")
    return str(out)


@pytest.fixture
def no_weights(monkeypatch):
    """No weight may be read: a wrong word is noticed before that."""
    for place in ("layerwise.models.opening.load_network", "layerwise.models.load.load_network"):
        monkeypatch.setattr(place, lambda *_: pytest.fail("weights were loaded before the words were checked"))


WRONG_WORDS = [
    ("norm", "Raw", "raw"),
    ("tokens", "no-first", "no_first"),
    ("pooling", "men", "mean"),
]


@pytest.mark.parametrize(("name", "word", "near"), WRONG_WORDS)
def test_a_readout_or_recipe_of_unknown_words_cannot_be_made(name, word, near):
    for kind in (Readout, Recipe):
        with pytest.raises(InputError, match=f"{name} '{word}' .*did you mean {near}"):
            kind(1, **{name: word})
    with pytest.raises(InputError, match="not a recipe.*did you mean"):
        Recipe.from_json(f'{{"layer": 1, "{name}": "{word}"}}')


@pytest.mark.parametrize(
    "transform",
    [
        "Center",
        "remove_top",
        "remove_top:0",
        "remove_top:1.5",
        "whiten:2",
        "whiten:a",
        "zscore:3",
        "whiten:0.1:0",
        "none+static",
        "",
        "whiten:nan",
        "center+statik",
    ],
)
def test_a_transform_that_does_not_exist_is_refused_in_the_recipe(transform):
    with pytest.raises(InputError, match="transform .* is not one of none, center"):
        Recipe(1, transform=transform)


@pytest.mark.parametrize(
    "transform",
    [
        "none",
        "center",
        "zscore",
        "remove_top:3",
        "whiten",
        "whiten:0",
        "whiten:1",
        "whiten:1e-2:16",
        "center+static",
        "remove_top:2+static",
    ],
)
def test_every_transform_that_exists_makes_a_recipe(transform):
    assert Recipe(1, transform=transform).transform == transform


def test_the_numbers_of_a_recipe_are_whole_and_plain():
    recipe = Recipe(np.int64(2), max_length=np.int32(16))
    assert (type(recipe.layer), type(recipe.max_length)) == (int, int) and recipe.to_json()
    for wrong in ({"layer": -1}, {"layer": 1.5}, {"layer": "2"}, {"layer": True}):
        with pytest.raises(InputError, match="layer"):
            Recipe(**wrong)
    for length in (0, 1, -3, 2.5, "16"):
        with pytest.raises(InputError, match="max_length"):
            Recipe(1, max_length=length)


@pytest.mark.parametrize(("name", "word", "near"), [*WRONG_WORDS, ("rows", "centred", "centered")])
def test_verbs_refuse_unknown_words_before_weights(name, word, near, tiny_llama, no_weights, tmp_path):
    message = f"{name} '{word}' .*did you mean {near}"
    with pytest.raises(InputError, match=message):
        layerwise.scan(tiny_llama, TEXTS, **{name: word})
    with pytest.raises(InputError, match=message):
        layerwise.scan(tiny_llama, TEXTS, **{name: ["raw", word] if name == "norm" else [word]})
    if name == "rows":
        return
    with pytest.raises(InputError, match=message):
        layerwise.embed(tiny_llama, TEXTS, **{name: word})
    with pytest.raises(InputError, match=message):
        layerwise.eval(tiny_llama, "STSBenchmark", out=tmp_path, **{name: word})
    with pytest.raises(InputError, match=message):
        layerwise.export(tiny_llama, 1, tmp_path / "model", **{name: word})


SCAN_OPTIONS = [
    ({"state": "exac"}, "state 'exac' .*did you mean exact"),
    ({"state": "sketch:0"}, "state 'sketch:0'"),
    ({"metrics": "curvatur"}, "did you mean curvature"),
    ({"metrics": "All"}, "did you mean all"),
    ({"keep_prompts": "al"}, "keep_prompts 'al' .*did you mean all"),
    ({"engine": "Ray"}, "engine 'Ray' .*did you mean ray"),
    ({"max_length": 0}, "max_length must be at least 2, not 0"),
    ({"max_length": 1}, "max_length must be at least 2, not 1"),
    ({"max_length": -5}, "max_length must be at least 2, not -5"),
    ({"max_length": 7.5}, "max_length must be a whole number, not 7.5"),
    ({"batch_tokens": 0}, "batch_tokens must be at least 1, not 0"),
    ({"batch_tokens": -1}, "batch_tokens must be at least 1, not -1"),
    ({"shard_size": 0}, "shard_size must be at least 1, not 0"),
    ({"threads": 0}, "threads must be at least 1, not 0"),
    ({"threads": -2}, "threads must be at least 1, not -2"),
    ({"allow_missing": -1}, "allow_missing must be at least 0, not -1"),
    ({"allow_missing": True}, "allow_missing must be a whole number, not True"),
    ({"seed": "one"}, "seed must be a whole number, not 'one'"),
    ({"view_strength": math.nan}, "view_strength"),
]


@pytest.mark.parametrize(("options", "message"), SCAN_OPTIONS)
def test_scan_checks_its_options_before_weights(options, message, tiny_llama, no_weights, tmp_path):
    with pytest.raises(InputError, match=message):
        layerwise.scan(tiny_llama, TEXTS, out=tmp_path / "run", **{"metrics": "curvature", **options})
    assert not (tmp_path / "run").exists()


def test_a_type_that_does_not_exist_is_refused_in_a_dry_run_as_well(tiny_llama):
    with pytest.raises(InputError, match="dtype 'float23' .*did you mean float"):
        layerwise.plan(layerwise.ModelSpec(tiny_llama, dtype="float23"), TEXTS)


EVAL_OPTIONS = [
    ({"vectors": "evic"}, "vectors 'evic' .*did you mean evict"),
    ({"precision": "float61"}, "precision 'float61' .*did you mean float16"),
    ({"workers": -1}, "workers must be at least 0, not -1"),
    ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
    ({"max_length": 0}, "max_length must be at least 2"),
    ({"threads": 0}, "threads must be at least 1"),
    ({"engine": "lokal"}, "engine 'lokal' .*did you mean local"),
]


@pytest.mark.parametrize(("options", "message"), EVAL_OPTIONS)
def test_eval_checks_its_options_before_weights(options, message, tiny_llama, no_weights, tmp_path):
    with pytest.raises(InputError, match=message):
        layerwise.eval(tiny_llama, "STSBenchmark", out=tmp_path, **options)


def test_embed_export_and_tradeoff_check_their_options_before_weights(tiny_llama, run, no_weights, tmp_path):
    for options in ({"max_length": 0}, {"max_length": 1}, {"batch_tokens": -1}):
        with pytest.raises(InputError, match=next(iter(options))):
            layerwise.embed(tiny_llama, TEXTS, **options)
    with pytest.raises(InputError, match="mode 'portabel' .*did you mean portable"):
        layerwise.export(tiny_llama, 1, tmp_path / "model", mode="portabel")
    with pytest.raises(InputError, match="transform 'whitten'"):
        layerwise.export(tiny_llama, 1, tmp_path / "model", transform="whitten", fit=TEXTS)
    with pytest.raises(InputError, match="mode 'compat' .*did you mean compact"):
        layerwise.lab.tradeoff(run, "curvature", mode="compat")
    with pytest.raises(InputError, match="repeats must be at least 1, not 0"):
        layerwise.lab.tradeoff(run, "curvature", repeats=0)
    with pytest.raises(InputError, match="precision 'float61'"):
        layerwise.eval(tiny_llama, "STSBenchmark", out="scores", precision="float61")


def test_a_length_that_holds_only_the_tokenizers_own_tokens_is_refused():
    """With [CLS] and [SEP], two tokens leave none of the text, and every vector would be the same."""
    from layerwise.inputs.tokenizing import encode_texts

    class Bracketing:
        def num_special_tokens_to_add(self):
            return 2

    with pytest.raises(
        InputError,
        match="max_length 2 leaves no room for the text: the tokenizer adds 2 special tokens, .*; use at least 3",
    ):
        encode_texts(Bracketing(), ["a text"], 2)


@pytest.mark.parametrize(("args", "message"), [
    (["--norm", "Raw"], "did you mean raw"),
    (["--max-length", "0"], "max_length must be at least 2, not 0"),
    (["--batch-tokens", "-1"], "batch_tokens must be at least 1, not -1"),
    (["--threads", "0"], "threads must be at least 1, not 0"),
    (["--layers", "inf%"], "inf%"),
    (["--limit", "0"], "limit must be at least 1, not 0"),
    (["--min-tokens", "-1"], "min_tokens must be at least 0, not -1"),
])  # fmt: skip
def test_the_command_line_refuses_the_same_words_in_one_line(args, message, tiny_llama, capsys, no_weights):
    assert main(["scan", tiny_llama, "--metrics", "curvature", *args]) == 2
    printed = capsys.readouterr().err
    assert message in printed and "unexpected" not in printed


def test_levels_that_are_no_numbers_are_told(tiny_llama, capsys):
    assert main(["lab", "stress", tiny_llama, "--kind", "length", "--levels", "8,many"]) == 2
    printed = capsys.readouterr().err
    assert "'many'" in printed and "unexpected" not in printed
    with pytest.raises(InputError, match="kind 'repeat' .*did you mean repeat_one"):
        layerwise.lab.stress(tiny_llama, TEXTS, kind="repeat")


def test_views_are_counted_and_strong_within_reason(capsys):
    assert main(["lab", "views", "a text", "--count", "-1"]) == 2
    assert "count must be at least 1, not -1" in capsys.readouterr().err
    for strength in ("0", "1.5", "nan"):
        assert main(["lab", "views", "a text", "--strength", strength]) == 2
        assert "strength" in capsys.readouterr().err


@pytest.mark.parametrize("cap", ["-5", "0"])
def test_a_cap_keeps_at_least_one_example(cap, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("sentence1,sentence2,score\na,b,1\nc,d,2\n")
    root = tmp_path / "root"
    assert (
        main(["lab", "data", str(root), "Own", "--type", "STS", "--test", str(tmp_path / "t.csv"), "--cap", cap]) == 2
    )
    assert f"cap must be at least 1, not {cap}" in capsys.readouterr().err
    assert not root.exists()


@pytest.mark.parametrize("word", ["inf%", "-inf%", "nan%", "-1%", "101%", "1e400%", "%", "1_0", "2.0", "", "first"])
def test_a_layer_that_is_no_layer_is_refused(word):
    with pytest.raises(InputError):
        choose_layers(word, 12)


def test_layers_may_come_as_arrays_and_numpy_numbers():
    assert choose_layers(np.array([0, 4]), 12) == choose_layers((0, np.int64(4)), 12) == (0, 4)
    assert choose_layers(np.int64(3), 12) == choose_layers(3, 12) == (3,)
    assert all(type(layer) is int for layer in choose_layers(np.array([0, 4]), 12))
    for wrong in (None, 1.5, True, np.array([0.5]), {"0": 1}):
        with pytest.raises(InputError):
            choose_layers(wrong, 12)


def test_a_tie_of_depths_goes_to_the_shallower_layer_though_floats_round_up():
    """7 % of 50 layers is 3.5; in floats 0.07 * 50 is a little more."""
    assert layer_at_depth(0.07, 50) == 3
    for percent in range(101):
        for depth in (5, 12, 30, 50, 97):
            exact, left = divmod(percent * depth, 100)
            assert layer_at_depth(percent / 100, depth) == exact + (left > 50)


@pytest.mark.parametrize("word", ["min:curvatur", "ranks:min:curvature+max:prompt_entrop", "max:dime"])
def test_a_rule_over_a_metric_that_the_table_lacks_is_an_error(word, run, capsys):
    with pytest.raises(InputError, match="this table has curvature, prompt_entropy"):
        layerwise.pick(run, rule=word)
    assert main(["pick", run, "--rule", word]) == 2
    assert "curvature, prompt_entropy" in capsys.readouterr().err
    assert layerwise.pick(run, rule="min:curvature").rule == "min:curvature"


def test_a_near_metric_of_a_rule_is_suggested(run):
    with pytest.raises(InputError, match="did you mean curvature"):
        layerwise.pick(run, rule="min:curvatur")


@pytest.mark.parametrize("word", ["depth:101%", "min:curvature@90%-20%", "min:curvature@0%-120%", "lst", "min:"])
def test_a_rule_that_cannot_be_meant_is_refused(word, run):
    with pytest.raises(InputError):
        layerwise.pick(run, rule=word)


def test_an_audit_of_a_metric_that_no_model_has_is_an_error():
    import pandas as pd

    rows = [{"family": "f", "model": "m", "task": "t", "layer": k, "score": float(k)} for k in range(4)]
    curves = [{"model": "m", "task": "", "layer": k, "metric": "dime", "value": float(k)} for k in range(4)]
    scores, metrics = pd.DataFrame(rows), pd.DataFrame(curves)
    with pytest.raises(InputError, match="no metric 'dim'.*did you mean dime"):
        layerwise.lab.audit(scores, metrics, rules="last,min:dim")
    with pytest.raises(InputError, match="no metric 'dime'.*--metrics"):
        layerwise.lab.audit(scores, rules="min:dime")
    assert len(layerwise.lab.audit(scores, metrics, rules="min:dime"))


def test_compare_correlate_and_plot_refuse_unknown_words(run):
    table = LayerTable.load(run)
    with pytest.raises(InputError, match="rows 'row' .*did you mean raw"):
        layerwise.compare([table, table], rows="row")
    with pytest.raises(InputError, match="tokens 'al' .*did you mean all"):
        layerwise.compare([table, table], tokens="al")
    with pytest.raises(InputError, match="against 'frist' .*did you mean first"):
        layerwise.compare([table, table], against="frist")
    with pytest.raises(InputError, match="norm 'Raw' .*did you mean raw"):
        layerwise.lab.correlate(table, table, norm="Raw")
    with pytest.raises(InputError, match="figure 'dept' .*did you mean depth"):
        layerwise.plot(table, figure="dept")


def test_texts_refuse_numbers_that_make_no_sense():
    for name, number in (("limit", 0), ("sample", -1), ("limit", 2.5), ("min_tokens", -1), ("sample", True)):
        with pytest.raises(InputError, match=name):
            layerwise.texts("demo", **{name: number})
    with pytest.raises(InputError, match="only 'wikitxt' .*did you mean wikitext"):
        layerwise.texts("demo", only="wikitxt")
    assert len(list(layerwise.texts("demo", limit=np.int64(3)))) == 3


def test_a_campaign_tells_wrong_words_of_its_settings_before_anything_runs(tmp_path, tiny_llama):
    from layerwise.verbs.campaign.plan import Campaign

    asked = {
        "out": str(tmp_path / "out"),
        "models": [tiny_llama],
        "data": {"d": {"data": "demo", "limit": 0}},
        "settings": {"s": {"norm": "Raw", "batch_tokens": 0, "state": "exac"}},
        "allow_missing": "few",
    }
    with pytest.raises(InputError) as refused:
        Campaign.parse(asked, "campaign.yaml")
    for part in ("did you mean raw", "batch_tokens must be at least 1", "did you mean exact", "allow_missing", "limit"):
        assert part in str(refused.value)


def test_the_depth_of_tiny_models_is_what_these_tests_think():
    assert DEPTH == 3


def test_a_rule_does_not_take_the_deepest_layer_scanned_for_the_last(tiny_llama):
    part = layerwise.scan(tiny_llama, TEXTS, metrics="curvature", layers="0,1")
    for word in ("last", "second_to_last", "min:curvature", "depth:80%"):
        with pytest.raises(InputError, match=f"the last layer, {DEPTH}, is not in this table.*--layers 0,1,last"):
            layerwise.pick(part, rule=word)
    some = layerwise.scan(tiny_llama, TEXTS, metrics="curvature", layers="0,last")
    assert layerwise.pick(some, rule="depth:40%").recipe.layer == 1, "the model's depth, not the number of layers"
    assert any(
        "the table has only 2 of 4 layers: 0, 3" in line for line in layerwise.pick(some, rule="min:curvature").why
    )
    assert layerwise.pick(some, rule="second_to_last").saving == pytest.approx(1 / DEPTH)


def test_a_rule_takes_tokens_and_pooling_of_the_table_into_the_recipe(tiny_llama):
    options = {"metrics": "curvature,dataset_entropy", "tokens": "no_first", "pooling": "last"}
    table = layerwise.scan(tiny_llama, TEXTS, **options)
    for word in ("last", "depth:40%", "min:dataset_entropy", "min:curvature"):
        chosen = layerwise.pick(table, rule=word)
        assert (chosen.recipe.tokens, chosen.recipe.pooling) == ("no_first", "last"), word
        assert (chosen.last.tokens, chosen.last.pooling, chosen.last.layer) == ("no_first", "last", DEPTH)


def test_a_rule_wants_the_table_of_one_model(tiny_llama, tiny_bert):
    tables = [layerwise.scan(model, TEXTS, metrics="curvature") for model in (tiny_llama, tiny_bert)]
    with pytest.raises(InputError, match="expected the table of one model, got 2"):
        layerwise.pick(LayerTable.join(tables), rule="last")


@pytest.mark.parametrize("depth", [6, 12, 24, 30, 50])
@pytest.mark.parametrize("percent", ["25", "50", "75", "80", "7", "12.5"])
def test_a_percentage_is_the_same_layer_in_a_rule_and_in_layers(percent, depth):
    from layerwise.verbs.pick.rules import parse_rule

    (asked,) = choose_layers(f"{percent}%", depth)
    assert parse_rule(f"depth:{percent}%")({}, depth) == asked


def test_the_window_of_a_rule_holds_the_layers_whose_own_depth_is_within_it():
    """7 % to 14 % of 100 layers: both ends count, though 0.07 * 100 and 0.14 * 100 are a little more in floats."""
    from layerwise.verbs.pick.rules import parse_rule

    rule = parse_rule("max:m@7%-14%")
    alone = [rule({"m": [float(k == layer) for k in range(101)]}, 100) for layer in range(6, 16)]
    assert alone == [7, 7, 8, 9, 10, 11, 12, 13, 14, 7], "outside of it, its first layer is as good as any"


def test_metrics_of_a_whole_model_are_seen_whether_their_task_is_empty_or_missing(tmp_path, capsys):
    """A csv file has an empty cell there, which pandas reads as NaN."""
    import pandas as pd

    (tmp_path / "s.csv").write_text("family,model,task,layer,score\n" + "".join(f"f,m,t,{k},{k}\n" for k in range(4)))
    (tmp_path / "m.csv").write_text("model,task,layer,metric,value\n" + "".join(f"m,,{k},dime,{k}\n" for k in range(4)))
    files = [str(tmp_path / "s.csv"), "--metrics", str(tmp_path / "m.csv")]
    assert main(["lab", "audit", *files, "--rules", "max:dime", "--json"]) == 0
    assert '"unseen":0.0' in capsys.readouterr().out
    frames = [pd.read_csv(tmp_path / name) for name in ("s.csv", "m.csv")]
    assert frames[1].task.isna().all()
    assert layerwise.lab.audit(*frames, rules="min:dime").unseen.tolist() == [0.0]
    assert layerwise.lab.audit(*frames, rules="min:dime").chosen.tolist() == [0.0]


def test_a_number_of_an_audit_that_is_none_is_told_by_its_row(tmp_path, capsys):
    (tmp_path / "s.csv").write_text("family,model,task,layer,score\nf,m,t,0,1\nf,m,t,one,2\n")
    assert main(["lab", "audit", str(tmp_path / "s.csv")]) == 2
    assert "row 2: layer must be a number, not 'one'" in capsys.readouterr().err


def test_a_metric_of_a_scan_has_no_better_end_and_no_front(run, tiny_llama, capsys):
    frame = layerwise.lab.tradeoff(run, "curvature", model=tiny_llama, repeats=1)
    assert "pareto" not in frame and len(frame)
    assert main(["lab", "tradeoff", run, "--score", "curvature", "--model", tiny_llama]) == 0
    printed = capsys.readouterr()
    assert "*" not in printed.out and "pareto" not in printed.out
    assert "a higher value is not better" in printed.err
    import json
    from pathlib import Path

    kept = json.loads((Path(run) / "tradeoff.json").read_text())
    assert not any(row["pareto"] for row in kept["layers"])
