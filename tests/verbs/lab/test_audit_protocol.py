"""Runs of a protocol: scores are those of eval, test tasks are scored once, and nothing of a user is touched."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from snapshots import snapshot

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.core.recipe import Recipe
from layerwise.verbs.eval import scoring
from layerwise.verbs.eval.data_root import write_task

pytest.importorskip("mteb")
pytestmark = pytest.mark.filterwarnings("ignore")  # of mteb and its dependencies

TASKS = {"Pairs1": "STS", "Pairs2": "STS", "Topics": "Clustering"}
RECIPES = {"last": "last", "static": "static", "chosen": {"layer": 1, "tokens": "no_first"}}
FIT = [" ".join(f"w{(i * i + 7 * j) % 80}" for j in range(6)) for i in range(40)]


@pytest.fixture(autouse=True)
def no_leftovers(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "usual cache")


def text(rng, topic):
    return " ".join(f"w{(topic * 16 + int(i)) % 80}" for i in rng.integers(0, 20, 6))


def write_stage(root, prefix, seed):
    """Two tasks of pairs and one of topics."""
    rng = np.random.default_rng(seed)
    for name, kind in TASKS.items():
        pairs = pd.DataFrame(
            {
                "sentence1": [text(rng, i % 4) for i in range(16)],
                "sentence2": [text(rng, (i + i % 3) % 4) for i in range(16)],
                "score": [float(5 - i % 3) for i in range(16)],
            }
        )
        topics = pd.DataFrame({"text": [text(rng, i % 4) for i in range(24)], "label": [i % 4 for i in range(24)]})
        write_task(root, f"{prefix}{name}", kind, pairs if kind == "STS" else topics)


@pytest.fixture(scope="module")
def whole_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("protocol root")
    write_stage(root / "development", "Dev", 1)
    write_stage(root / "test", "Test", 2)
    return root


@pytest.fixture
def desk(tmp_path, whole_root, tiny_llama, tiny_bert):
    """A folder with a protocol, its tasks and its models."""
    shutil.copytree(whole_root, tmp_path / "root")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "llama").symlink_to(tiny_llama)
    (tmp_path / "models" / "bert").symlink_to(tiny_bert)
    (tmp_path / "fit.txt").write_text("\n".join(FIT))
    write_protocol(tmp_path)
    return tmp_path


def write_protocol(desk, **changes):
    stages = {
        stage: {"models": ["llama", "bert"], "tasks": [f"{prefix}{name}" for name in TASKS]}
        for stage, prefix in (("development", "Dev"), ("test", "Test"))
    }
    success = [{"model": "llama", "recipe": "chosen", "over": "last", "at_least": -100}]
    record = {"schema_version": 1, "name": "tiny", **stages, "success": success}
    record |= {"recipes": {"llama": RECIPES, "bert": RECIPES | {"chosen": "last"}}}
    (desk / "p.json").write_text(json.dumps(record | changes))


def run(desk, stage="test", **options):
    given = {"data_root": desk / "root", "models": desk / "models", "out": desk / "out", "fit": FIT} | options
    return layerwise.lab.audit_protocol(desk / "p.json", stage=stage, **given)


def test_a_whole_run_gives_the_scores_of_eval(desk, tiny_llama):
    result = run(desk)
    assert len(result.scores) == 2 * 3 * 3
    recipes = {
        "last": Recipe(3, "normed"),
        "static": Recipe(0, transform="whiten"),
        "chosen": Recipe(1, tokens="no_first"),
    }
    for label, recipe in recipes.items():
        table = layerwise.eval(
            tiny_llama, "all", data_root=desk / "root" / "test", out=desk / "plain", recipes=recipe, fit=FIT
        )
        mine = result.scores.query("model == 'llama' and recipe == @label").set_index("task").score
        assert mine.to_dict() == pytest.approx({row.metric: row.value for row in table}), label
    assert result.scores.query("recipe == 'chosen'").groupby("model").score.mean().nunique() == 2
    llama = result.scores.query("model == 'llama'").pivot(index="task", columns="recipe", values="score")
    gains = llama.chosen - llama["last"]
    expected = ((gains.TestPairs1 + gains.TestPairs2) / 2 + gains.TestTopics) / 2
    gain = result.gains.query("model == 'llama' and recipe == 'chosen' and over == 'last'").gain.item()
    assert gain == pytest.approx(expected) and abs(gain) > 0.1
    same = result.gains.query("model == 'bert' and recipe == 'chosen' and over == 'last'").iloc[0]
    assert (same.gain, same.low, same.high) == (0, 0, 0), "two labels of one recipe"
    assert result.success.met.tolist() == [True]
    saved = pd.read_csv(desk / "out" / "audit-test.csv")
    pd.testing.assert_frame_equal(saved, result.scores)
    assert json.loads((desk / "out" / "audit-test.json").read_text()) == json.loads(result.to_json())


def test_an_interrupted_test_stage_goes_on_and_scores_nothing_twice(desk, monkeypatch):
    real, scored = scoring.Scorer.score, []

    def failing(self, task, recipe, stores):
        if len(scored) == 4:
            raise KeyboardInterrupt
        scored.append((self.name, task.name, recipe))
        return real(self, task, recipe, stores)

    monkeypatch.setattr(scoring.Scorer, "score", failing)
    with pytest.raises(KeyboardInterrupt):
        run(desk)
    assert (desk / "out" / "frozen.json").exists()
    monkeypatch.setattr(
        scoring.Scorer, "score", lambda *args: scored.append((args[0].name, args[1].name, args[2])) or real(*args)
    )
    result = run(desk)
    assert len(scored) == len(set(scored)) == 15, "three recipes of llama and two of bert, on three tasks"
    assert run(desk).to_json() == result.to_json()
    assert len(scored) == 15


def test_other_recipes_after_looking_are_refused(desk):
    run(desk, only="llama")
    before = snapshot(desk / "out")
    other = RECIPES | {"chosen": {"layer": 2}}
    write_protocol(desk, recipes={"llama": other, "bert": RECIPES | {"chosen": "last"}})
    for only in (None, "llama", "bert"):
        with pytest.raises(
            RunError, match=r"scored with other recipes \(llama: chosen\): a second choice after looking"
        ):
            run(desk, only=only)
    write_protocol(desk, written="edited")
    with pytest.raises(RunError, match="another protocol file, or it was edited since"):
        run(desk)
    write_protocol(desk)
    with pytest.raises(RunError, match="fitted on other texts"):
        run(desk, fit=FIT[:-1])
    assert snapshot(desk / "out") == before
    run(desk, only="bert")


def test_other_data_after_looking_are_refused(desk):
    run(desk, only="llama")
    write_stage(desk / "root" / "test", "Test", 3)
    with pytest.raises(RunError, match="the data of TestPairs1, TestPairs2, TestTopics are not those that were scored"):
        run(desk)


def test_development_may_be_scored_again_with_other_recipes(desk):
    write_protocol(desk, recipes={"llama": RECIPES})
    first = run(desk, "development")
    assert set(first.scores.query("model == 'bert'").recipe) == {"last", "static"}, "without recipes: the baselines"
    assert not len(first.success)
    write_protocol(desk, recipes={"llama": RECIPES | {"chosen": {"layer": 2}}})
    second = run(desk, "development")
    chosen = [found.scores.query("recipe == 'chosen'").score.tolist() for found in (first, second)]
    assert chosen[0] != chosen[1]
    with pytest.raises(InputError, match="has no recipes for bert"):
        run(desk)
    assert not (desk / "out" / "frozen.json").exists()


def test_machines_share_the_work_and_the_last_call_joins_it(desk):
    one = run(desk, only="llama")
    assert set(one.scores.model) == {"llama"} and not (desk / "out" / "audit-test.csv").exists()
    assert len(pd.read_csv(desk / "out" / "audit-test-llama.csv")) == 9
    other = run(desk, only="bert", out=desk / "elsewhere")
    assert (desk / "elsewhere" / "frozen.json").read_bytes() == (desk / "out" / "frozen.json").read_bytes()
    assert not len(other.success), "its criterion is about the other model"
    shutil.copytree(desk / "elsewhere" / "test" / "bert", desk / "out" / "test" / "bert")
    joined = run(desk)
    expected = pd.concat([one.scores, other.scores], ignore_index=True)
    pd.testing.assert_frame_equal(joined.scores, expected)


def labels(desk, name, frame):
    (desk / "root" / "labels").mkdir(exist_ok=True)
    frame.to_csv(desk / "root" / "labels" / f"{name}.csv", index=False)


def test_labels_that_are_also_scored_are_refused(desk):
    pairs = pd.read_parquet(desk / "root" / "test" / "TestPairs1" / "default" / "test.parquet")
    unseen = pairs.assign(sentence2=pairs.sentence2.iloc[::-1].to_numpy() + " w1")
    labels(desk, "TestPairs1", unseen)  # sentences may be shared, pairs may not
    run(desk, only="llama")
    swapped = pairs.rename(columns={"sentence1": "sentence2", "sentence2": "sentence1"})
    labels(desk, "TestPairs1", pd.concat([unseen[:2], swapped[3:4]]))
    with pytest.raises(InputError, match=r"1 of 3 examples in .*TestPairs1.csv are also scored by TestPairs1 \(row 3"):
        run(desk)
    (desk / "root" / "labels" / "TestPairs1.csv").unlink()
    sets = pd.read_parquet(desk / "root" / "test" / "TestTopics" / "default" / "test.parquet")
    labels(desk, "TestTopics", pd.DataFrame({"text": ["w1 w2", f" {sets.sentences[0][5]} "], "label": [0, 1]}))
    with pytest.raises(InputError, match="1 of 2 examples .* also scored by TestTopics"):
        run(desk)
    labels(desk, "TestTopics", pd.DataFrame({"words": ["w1"]}))
    with pytest.raises(InputError, match="needs the column text, or sentence1 and sentence2; its columns are words"):
        run(desk)


def test_what_cannot_be_run_is_refused_before_anything_is_written(desk):
    def refused(message, stage="test", **options):
        with pytest.raises((InputError, RunError), match=message):
            run(desk, stage, **options)
        assert not (desk / "out").exists()

    refused("'lama' is no model of the test stage .*did you mean llama", only="lama")
    refused("has no folder llama, bert; put the models there", models=desk)
    refused("models has no bert; it contains llama", models={"llama": str(desk / "models" / "llama")})
    refused("have linear maps .whiten.: pass texts", fit=None)
    refused("stage 'tset' is not one of development, test; did you mean test", stage="tset")
    refused("has no folder test", data_root=desk / "models")
    refused("folder on disk", out="s3://bucket/x")
    for recipe, message in (
        ({"layer": 9}, "recipes: llama: chosen: layer 9 does not exist; the model has layers 0 to 3"),
        ({"layer": 3, "norm": "shipped", "pooling": "shipped"}, "llama: chosen: the model ships no pooling"),
        ({"layer": 1, "max_length": 10**6}, "llama: chosen: max_length 1000000 is more than this model supports"),
    ):
        write_protocol(desk, recipes={"llama": RECIPES | {"chosen": recipe}, "bert": RECIPES})
        refused(message)
    write_protocol(desk, test={"models": ["llama", "bert"], "tasks": ["STS"]})
    refused("'STS' stands for several tasks")
    write_protocol(desk)
    shutil.rmtree(desk / "root" / "test" / "TestTopics")
    refused("has no task TestTopics; the test stage of .* needs all of its tasks")
    (desk / "out").mkdir()
    (desk / "out" / "notes.txt").write_text("mine")
    shutil.rmtree(desk / "root" / "test")
    write_stage(desk / "root" / "test", "Test", 2)
    with pytest.raises(RunError, match="is not empty .notes.txt."):
        run(desk)
    assert [path.name for path in (desk / "out").iterdir()] == ["notes.txt"]


def command(desk, *words):
    given = ["--stage", "test", "--data-root", desk / "root", "--models", desk / "models", "--out", desk / "out"]
    return main(
        [str(word) for word in ("lab", "audit", "--protocol", desk / "p.json", *given, "--workers", "0", *words)]
    )


def test_the_command(desk, capsys):
    assert command(desk, "--fit", desk / "fit.txt") == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for part in ("tiny: test stage, 3 tasks of 2 types, 2 models", "STS (2)", "chosen over static", "met"):
        assert part in printed
    assert command(desk, "--fit", desk / "fit.txt", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads((desk / "out" / "audit-test.json").read_text())
    assert command(desk, "--fit", desk / "fit.txt", "--only", "llama", "--dtype", "bfloat16") == 2
    assert "contains the table of another run" in capsys.readouterr().err
    for words, message in (
        (["lab", "audit"], "either a table of scores or --protocol"),
        (["lab", "audit", "s.csv", "--protocol", "p.json"], "either a table of scores or --protocol"),
        (["lab", "audit", "s.csv", "--stage", "test"], "--stage needs --protocol FILE"),
        (["lab", "audit", "--protocol", "p.json", "--rules", "last"], "--rules needs a table of scores"),
        (["lab", "audit", "--protocol", "p.json", "--stage", "test"], "also needs --data-root, --models, --out"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err


def test_a_pretrained_model(real_model, desk, capsys):
    model = Path(real_model("stories260k"))
    (desk / "models" / "stories260k").symlink_to(model)
    recipes = {"last": "last", "static": "static", "chosen": {"layer": 2, "transform": "center"}}
    test = {"models": ["stories260k"], "tasks": [f"Test{name}" for name in TASKS]}
    criterion = {"model": "stories260k", "recipe": "chosen", "over": "last", "at_least": 100}
    write_protocol(desk, test=test, success=[criterion], recipes={"stories260k": recipes})
    assert command(desk, "--fit", desk / "fit.txt") == 0
    assert "not met" in capsys.readouterr().out
