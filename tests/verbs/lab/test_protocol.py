"""Protocol files: what is refused and why; means, intervals and criteria against numbers worked out by hand."""

import copy
import json
import math

import pandas as pd
import pytest

from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.core.files import DiskFolder
from layerwise.core.recipe import Recipe
from layerwise.verbs.lab.audit.protocol import freeze, frozen_record, parse_protocol, read_protocol
from layerwise.verbs.lab.audit.protocol_result import gain_and_interval, protocol_result

GOOD = {
    "schema_version": 1,
    "name": "mine",
    "written": "before anything was scored",
    "known_before": ["nothing"],
    "development": {"models": ["a", "b"], "tasks": ["D1", "D2"], "note": "as often as needed"},
    "test": {"models": ["b", "c"], "tasks": ["T1", "T2", "T3"]},
    "success": [{"model": "b", "recipe": "chosen", "over": "last", "at_least": 2.5}],
    "recipes": {
        "b": {"last": "last", "static": "static", "chosen": {"layer": 3, "transform": "center"}},
        "c": {"last": "last", "chosen": "last"},
    },
}


def write(path, record):
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def changed(*path, to):
    """The good protocol with one value replaced, or removed where `to` is None."""
    record = copy.deepcopy(GOOD)
    place = record
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return record


def test_a_protocol_is_read(tmp_path):
    found = read_protocol(write(tmp_path / "p.json", GOOD))
    assert (found.name, found.stages["test"].tasks) == ("mine", ("T1", "T2", "T3"))
    assert found.recipes["b"] == {"last": "last", "static": "static", "chosen": Recipe(3, transform="center")}
    assert found.stage_recipes("development") == {"a": {"last": "last", "static": "static"}, "b": found.recipes["b"]}
    assert list(found.stage_recipes("test")) == ["b", "c"]


WRONG = [
    (changed("sucess", to=[]), "no 'sucess'; did you mean success"),
    (changed("test", to=None), "the field 'test' is missing"),
    (changed("schema_version", to=None), "the field 'schema_version' is missing"),
    (changed("schema_version", to=2), "newer layerwise .schema_version 2"),
    (changed("schema_version", to=True), "schema_version must be a whole number from 1, not True"),
    (changed("name", to=3), "name must be text, not 3"),
    (changed("name", to="../up"), "the name '../up' cannot be used as a file name"),
    (changed("written", to={"by": "me"}), "written must be text or a list of texts"),
    (changed("test", "models", to=[]), "test: models must be a list of at least one name"),
    (changed("test", "models", to=["../b"]), "test: models: '../b' cannot be used"),
    (changed("test", "tasks", to=["T1", "T1"]), "'T1' is listed twice in tasks"),
    (changed("test", "task", to=["T1"]), "test: it has no 'task'; did you mean tasks"),
    (changed("test", "tasks", to=["T1", "D1"]), "D1 is a task of development and of test"),
    (changed("success", to=[]), "success must be a list of at least one object"),
    (changed("success", 0, "at_least", to="2"), r"success\[0\]: at_least must be a number of points"),
    (changed("success", 0, "at_least", to=float("nan")), "at_least must be a number of points"),
    (changed("success", 0, "at_least", to=10**400), "at_least must be a number of points"),
    (changed("success", 0, "model", to="a"), r"success\[0\]: 'a' is no model of test; there are b, c"),
    (changed("success", 0, "over", to="chosen"), "compares the recipe 'chosen' with itself"),
    (changed("success", 0, to=5), r"success\[0\] must be an object with model, recipe, over, at_least, not 5"),
    (changed("recipes", "d", to={"last": "last"}), "recipes: d is no model of development or test"),
    (changed("recipes", "b", to={}), "recipes: b must be an object with a recipe per label"),
    (changed("recipes", "b", "chosen", to="best"), "recipes: b: chosen must be a recipe .* or 'last' or 'static'"),
    (changed("recipes", "b", "chosen", to={"norm": "raw"}), "recipes: b: chosen: a recipe needs a layer"),
    (changed("recipes", "b", "chosen", to={"layer": 1, "colour": 2}), "b: chosen: .*cannot have the field 'colour'"),
    (changed("recipes", "b", "chosen", to={"layer": 1, "transform": "x"}), "b: chosen: transform 'x' is not one of"),
    (changed("recipes", "b", "a/b", to="last"), "the label 'a/b' cannot be used"),
]


@pytest.mark.parametrize(("record", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_a_wrong_protocol_is_refused_by_name(record, message, tmp_path):
    with pytest.raises(LayerwiseError, match=message) as refused:
        read_protocol(write(tmp_path / "p.json", record))
    assert str(tmp_path / "p.json") in str(refused.value)


def test_all_wrong_fields_of_an_object_are_named_at_once():
    record = {"schema_version": 1, "nam": "x", "success": 3}
    with pytest.raises(InputError) as refused:
        parse_protocol(record, "p.json", "")
    for part in ("no 'nam'", "'name' is missing", "'development' is missing", "success must be a list"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe{", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"a": ' * 100_000, "not a JSON object"),
        (b" " * 1_000_001, "larger than"),
        (json.dumps(GOOD).replace('"name": "mine"', '"name": "mine", "name": "yours"').encode(), "'name' occurs twice"),
    ],
)
def test_a_hostile_file_is_refused(data, message, tmp_path):
    (tmp_path / "p.json").write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_protocol(tmp_path / "p.json")
    with pytest.raises(InputError, match="cannot read the protocol"):
        read_protocol(tmp_path)


def test_the_test_stage_needs_recipes_that_were_written_down():
    for record, message in (
        (changed("recipes", to=None), "has no recipes for b, c"),
        (changed("recipes", "c", to=None), "has no recipes for c"),
        (changed("recipes", "b", "last", to=None), "recipes has no 'last' for it, only static, chosen"),
    ):
        found = parse_protocol(record, "p.json", "")
        assert found.stage_recipes("development")
        with pytest.raises(InputError, match=message):
            found.stage_recipes("test")


REVISIONS = {"T1": "1", "T2": "2", "T3": "3"}


def test_what_the_test_tasks_were_scored_with_stays_the_same(tmp_path):
    folder, found = DiskFolder(tmp_path), parse_protocol(GOOD, "p.json", "aa")
    first = frozen_record(found, REVISIONS, {"texts": 2, "fingerprint": "f"})
    freeze(folder, first)
    before = (tmp_path / "frozen.json").read_bytes()
    freeze(folder, first)
    other_recipe = parse_protocol(changed("recipes", "b", "chosen", "layer", to=2), "p.json", "bb")
    for record, message in (
        (frozen_record(other_recipe, REVISIONS, first["fit"]), r"with other recipes \(b: chosen\): a second choice"),
        (first | {"protocol": "cc"}, "another protocol file"),
        (first | {"tasks": REVISIONS | {"T2": "9"}}, "the data of T2 are not those that were scored"),
        (first | {"fit": {}}, "fitted on other texts"),
    ):
        with pytest.raises(RunError, match=f"{message}.*No test task has been scored yet: to start again, delete"):
            freeze(folder, record)
    assert (tmp_path / "frozen.json").read_bytes() == before


def test_scores_without_the_record_of_their_recipes_are_refused(tmp_path):
    score = tmp_path / "test" / "b" / "kind" / "scores" / "T1" / "layer_1.json"
    score.parent.mkdir(parents=True)
    score.write_text("{}")
    first = frozen_record(parse_protocol(GOOD, "p.json", "aa"), REVISIONS, {})
    with pytest.raises(RunError, match="has scores, but frozen.json.* is missing"):
        freeze(DiskFolder(tmp_path), first)
    for data in (b"{", b"{}", b'{"schema_version": 1, "protocol": 3}'):
        (tmp_path / "frozen.json").write_bytes(data)
        with pytest.raises(RunError, match="frozen.json.* is damaged"):
            freeze(DiskFolder(tmp_path), first)
    (tmp_path / "frozen.json").unlink()
    score.unlink()
    freeze(DiskFolder(tmp_path), first)
    score.write_text("{}")
    with pytest.raises(RunError, match="start a new protocol with new tasks$"):  # no advice to delete the record
        freeze(DiskFolder(tmp_path), first | {"protocol": "dd"})


TYPES = {"T1": "STS", "T2": "STS", "T3": "Retrieval"}
# On the STS tasks, `chosen` gains 0 and 10 points over `last`; on the retrieval task 4.
SCORES = {"last": (50, 60, 20), "static": (52, 62, 20), "chosen": (50, 70, 24)}


def score_table(**by_model):
    rows = [
        (model, recipe, task, TYPES[task], float(score))
        for model, recipes in by_model.items()
        for recipe, scores in recipes.items()
        for task, score in zip(TYPES, scores, strict=True)
    ]
    return pd.DataFrame(rows, columns=["model", "recipe", "task", "type", "score"])


def result_of(record=GOOD, **by_model):
    return protocol_result(parse_protocol(record, "p.json", "aa"), "test", score_table(**by_model))


def test_every_type_counts_the_same():
    means = result_of(b=SCORES).means.set_index(["recipe", "type"]).score
    assert means["last", "STS"] == 55 and means["last", "Retrieval"] == 20
    assert means["last", "all"] == 37.5, "not (50 + 60 + 20) / 3"
    assert means["chosen", "all"] == (60 + 24) / 2


def test_intervals_draw_tasks_within_their_type():
    """Drawn twice from gains 0 and 10, the mean is 0, 5 or 10 (1/4, 1/2, 1/4); the single task stays at 4."""
    row = result_of(b=SCORES).gains.set_index(["recipe", "over"]).loc[("chosen", "last")]
    assert row.gain == (5 + 4) / 2
    assert (row.low, row.high) == ((0 + 4) / 2, (10 + 4) / 2)
    over_static = result_of(b=SCORES).gains.set_index(["recipe", "over"]).loc[("chosen", "static")]
    assert (over_static.gain, over_static.low, over_static.high) == ((3 + 4) / 2, (-2 + 4) / 2, (8 + 4) / 2)


def test_one_task_per_type_gives_no_interval():
    one_each = score_table(b=SCORES).query("task != 'T2'")
    assert gain_and_interval([one_each.score.to_numpy()[:1]] * 2)[1:] == (None, None)
    found = protocol_result(parse_protocol(GOOD, "p.json", ""), "test", one_each)
    assert json.loads(found.to_json())["gains"][0]["low"] is None
    assert " - " in f"{found} ".replace("\n", " \n") and "nan" not in str(found).lower()


def moved(points):
    return {"last": SCORES["last"], "chosen": tuple(score + points for score in SCORES["last"])}


def test_the_interval_over_models_draws_models_and_needs_three():
    """Of the 27 draws from gains 0, 0 and 9, 8 have the mean 0 and 1 has 9, which is more than 2.5 %."""
    three = result_of(b=moved(0), c=moved(0), d=moved(9)).over_models.iloc[0]
    assert (three.recipe, three.over, three.models) == ("chosen", "last", 3)
    assert (three.gain, three.low, three.high) == pytest.approx((3, 0, 9), abs=1e-9)
    two = result_of(b=moved(0), c=moved(9)).over_models.iloc[0]
    assert two.gain == pytest.approx(4.5) and two.low is None and two.high is None
    assert not len(result_of(b=moved(0)).over_models)


@pytest.mark.parametrize(("at_least", "met"), [(4.5, True), (4.6, False), (-1, True)])
def test_a_criterion_is_met_by_the_mean_gain(at_least, met):
    found = result_of(changed("success", 0, "at_least", to=at_least), b=SCORES, c=moved(0))
    (row,) = found.success.itertuples(index=False)
    assert (row.gain, row.met) == (4.5, met)
    assert ("not met" in str(found)) is (not met)
    development = protocol_result(parse_protocol(GOOD, "p.json", ""), "development", score_table(b=SCORES))
    assert not len(development.success), "criteria are about the test tasks"


def test_the_result_is_the_same_each_time_and_fits_80_columns():
    long = {f"a-recipe-with-a-long-label-{i}": SCORES["chosen"] for i in range(4)}
    models = {f"a-model-with-quite-a-long-name-{i}": SCORES | long for i in range(3)}
    criterion = {"model": list(models)[0], "recipe": list(long)[0], "over": "static", "at_least": 3}
    record = GOOD | {"test": {"models": list(models), "tasks": list(TYPES)}, "success": [criterion], "recipes": {}}
    found = result_of(record, **models)
    assert max(map(len, str(found).splitlines())) <= 80
    assert found.to_json() == result_of(record, **models).to_json()
    shown = json.loads(found.to_json())
    assert shown["success"][0]["met"] is True and math.isclose(shown["success"][0]["gain"], 3.5)
    assert {"means", "gains", "over_models", "success", "protocol_hash", "seed"} <= set(shown)
