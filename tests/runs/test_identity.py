"""Identity: what tells two data sets, two rows, two tables apart, and that a flipped bit does not go unnoticed."""

import json
import random
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest
from made_runs import scan_table

import layerwise
from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.core.files import write_json
from layerwise.core.recipe import Recipe
from layerwise.inputs.source import Example
from layerwise.runs.table import LayerTable
from layerwise.verbs.campaign.api import campaign
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.eval import scoring
from layerwise.verbs.eval.data_root import write_task
from layerwise.verbs.eval.tasks import TaskChoice
from layerwise.verbs.eval.vectors import VectorKind
from layerwise.verbs.lab.tradeoff.measured import mean_scores
from layerwise.verbs.report.alignment import alignment
from layerwise.verbs.scan import shards as run_module

METRICS = {"metrics": "prompt_entropy,intrinsic_dimension", "shard_size": 9, "threads": 1}


def write_jsonl(path: Path, texts: list[str]) -> layerwise.texts:
    """Texts under ids that say nothing of them."""
    path.write_text("".join(json.dumps({"name": f"n{i}", "text": text}) + "\n" for i, text in enumerate(texts)))
    return layerwise.texts(path, id_column="name")


def turned(texts: list[str]) -> list[str]:
    return [" ".join(reversed(text.split())) + " w5" for text in texts]


def test_a_digest_tells_texts_apart_that_share_an_id():
    one, two = Example("a", "x"), Example("a", "y")
    assert one.key == two.key and one.digest != two.digest and one.digest == Example("a", "x").digest
    assert Example("a\0b", "c").digest == Example("a\0b", "c").digest != Example("a", "bc").digest


def test_other_texts_under_the_same_ids_are_not_served_from_an_old_run(tiny_llama, word_texts, tmp_path):
    old = write_jsonl(tmp_path / "old.jsonl", word_texts)
    new = write_jsonl(tmp_path / "new.jsonl", turned(word_texts))
    first = layerwise.scan(tiny_llama, old, out=tmp_path / "run", **METRICS)
    with pytest.raises(RunError, match="the data differ"):
        layerwise.scan(tiny_llama, new, out=tmp_path / "run", **METRICS)
    second = layerwise.scan(tiny_llama, new, out=tmp_path / "other", **METRICS)
    assert first.run["data"]["fingerprint"] != second.run["data"]["fingerprint"]


def test_texts_are_paired_by_id_and_content(tiny_llama, word_texts, tmp_path):
    """Unrelated texts under equal ids are never paired; where some are the same, only those are."""
    half = [*word_texts[:21], *turned(word_texts[21:])]
    for name, texts in (("a", word_texts), ("b", turned(word_texts)), ("half", half)):
        layerwise.scan(tiny_llama, write_jsonl(tmp_path / f"{name}.jsonl", texts), out=tmp_path / name, **METRICS)
    a, b, half_run = tmp_path / "a", tmp_path / "b", tmp_path / "half"
    with pytest.raises(InputError, match="43 ids are in both runs but with other content"):
        layerwise.difference(a, "prompt_entropy", 1, 1, other_run=b)
    with pytest.raises(RunError, match="share 0 examples; 43 ids are in both, but with other content"):
        alignment(a, b)
    (pair,) = layerwise.compare([a, b]).pairs
    assert not pair.changes.paired.any() and pair.cka is None and len(pair.notes) == 3
    assert "not paired by text: 43 ids" in str(layerwise.compare([a, b]))
    assert layerwise.difference(a, "prompt_entropy", 1, 1, other_run=half_run).n == 21
    assert alignment(a, half_run).n == 21
    (pair,) = layerwise.compare([a, half_run]).pairs
    (note,) = pair.notes
    assert "the runs read different texts" in note and set(pair.changes[pair.changes.paired].n) == {21}


def test_a_changed_data_file_under_a_finished_cell_is_not_done(tiny_llama, word_texts, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(word_texts[:5]))
    record = {"out": str(tmp_path / "out"), "models": [tiny_llama], "data": {"mine": {"data": str(texts)}}}
    plan = Campaign.parse(record | {"settings": {"s": {"metrics": "curvature"}}}, "c.yaml")
    first = campaign(plan)
    events = []
    campaign(plan, events.append)
    assert [event.status for event in events] == ["done"] and len(first)
    texts.write_text("\n".join(word_texts[5:10]))
    with pytest.raises(RunError, match=r"texts.txt has changed since .* was scanned; rename the changed data"):
        campaign(plan)


@pytest.fixture(scope="module")
def finished(tiny_llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    texts = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 27)) for i in range(43)]
    return folder, tiny_llama, texts, layerwise.scan(tiny_llama, texts, out=folder, **METRICS)


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def test_a_flipped_bit_in_a_state_or_prompts_file_is_noticed(finished, tmp_path):
    folder, model, texts, right = finished
    chance, wrong = random.Random(7), []
    (state,) = folder.glob("state-*")
    files = [state, *sorted((folder / "prompts").iterdir())]
    for number in range(40):
        run = tmp_path / str(number)
        shutil.copytree(folder, run)
        path = run / files[number % len(files)].relative_to(folder)
        data = path.read_bytes()
        path.write_bytes(flipped(data, chance.randrange(len(data)), chance.randrange(8)))
        try:
            layerwise.compare([run, folder])
            wrong.append(path.name)
        except RunError as error:
            assert path.name in str(error)
        if path.name.startswith("state"):  # the next scan computes it again, or refuses
            try:
                again = layerwise.scan(model, texts, out=run, **METRICS)
                assert again.to_pandas().equals(right.to_pandas())
            except LayerwiseError:
                pass
    assert not wrong


@pytest.fixture(scope="module")
def similar_runs(finished, tiny_bert, tmp_path_factory):
    """Runs that differ from the finished one in one thing each."""
    _, model, texts, _ = finished
    base = tmp_path_factory.mktemp("similar")
    given = {
        "texts": (model, turned(texts), {}),
        "model": (tiny_bert, texts, {}),
        "max_length": (model, texts, {"max_length": 9}),
    }
    for name, (other_model, other_texts, options) in given.items():
        layerwise.scan(other_model, other_texts, out=base / name, **METRICS, **options)
    return base


def readers(run: Path, other: Path, model: str, scratch: Path):
    """Every way to read the state or the values of single texts of a run."""
    return {
        "state": [
            lambda: layerwise.compare([run, other]),
            lambda: alignment(other, run),
            lambda: layerwise.plot([run, other], figure="cka", out=scratch / "cka.png"),
            lambda: layerwise.export(model, 1, transform="center", fit=run, out=scratch / "small"),
        ],
        "prompts": [
            lambda: layerwise.compare([other, run]),
            lambda: layerwise.difference(run, "prompt_entropy", 0, 1),
            lambda: layerwise.difference(other, "prompt_entropy", 1, 1, other_run=run),
        ],
    }


@pytest.mark.parametrize("differs", ["texts", "model", "max_length"])
@pytest.mark.parametrize("kind", ["state", "prompts"])
def test_a_state_or_prompts_file_of_another_run_is_refused(kind, differs, finished, similar_runs, tmp_path):
    folder, model, _, _ = finished
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    pattern = {"state": "state-*", "prompts": "prompts/00001.parquet"}[kind]
    (foreign,) = (similar_runs / differs).glob(pattern)
    shutil.copy(foreign, run / foreign.relative_to(similar_runs / differs))
    for read in readers(run, folder, model, tmp_path)[kind]:
        with pytest.raises(RunError, match=rf"run/.*{foreign.name} belongs to another run.*repeat the run in another"):
            read()


def test_values_of_single_texts_are_those_of_every_shard_once(finished, tmp_path):
    folder = finished[0]
    right = layerwise.difference(folder, "prompt_entropy", 0, 1)
    for change, message in (
        (
            lambda run: shutil.copy(run / "prompts/00000.parquet", run / "prompts/00001.parquet"),
            "00001.* belongs to another",
        ),
        (lambda run: (run / "prompts/00002.parquet").unlink(), "prompts/00002.parquet is missing; restore the file"),
        (lambda run: shutil.copy(run / "prompts/00000.parquet", run / "prompts/00099.parquet"), None),
    ):
        run = tmp_path / "run"
        shutil.copytree(folder, run)
        change(run)
        if message is None:  # a file that is not the run's is not read
            assert layerwise.difference(run, "prompt_entropy", 0, 1) == right
        else:
            with pytest.raises(RunError, match=message):
                layerwise.difference(run, "prompt_entropy", 0, 1)
        shutil.rmtree(run)


def test_a_run_without_values_of_single_texts_takes_none_from_elsewhere(finished, tmp_path):
    folder, model, texts, _ = finished
    layerwise.scan(model, texts, out=tmp_path, keep_prompts="none", **METRICS)
    shutil.copytree(folder / "prompts", tmp_path / "prompts")
    with pytest.raises(RunError, match="has no per-prompt values"):
        layerwise.difference(tmp_path, "prompt_entropy", 0, 1)
    (pair,) = layerwise.compare([tmp_path, folder]).pairs
    assert not pair.changes.paired.any() and "keeps no values of single texts" in pair.notes[0]


def test_a_resumed_run_knows_the_files_of_all_its_shards(finished, tmp_path, monkeypatch):
    folder, model, texts, _ = finished
    usual, calls = run_module.scan_shard, []

    def stopping(*args):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(1)
        return usual(*args)

    monkeypatch.setattr(run_module, "scan_shard", stopping)
    with pytest.raises(KeyboardInterrupt):
        layerwise.scan(model, texts, out=tmp_path, **METRICS)
    monkeypatch.setattr(run_module, "scan_shard", usual)
    shutil.copy(tmp_path / "prompts/00000.parquet", tmp_path / "prompts/00001.parquet")  # while it is interrupted
    table = layerwise.scan(model, texts, out=tmp_path, **METRICS)
    assert (
        table.run["prompt_files"] == LayerTable.load(folder).run["prompt_files"] and len(table.run["prompt_files"]) == 5
    )
    with pytest.raises(RunError, match="prompts/00001.parquet belongs to another run"):
        layerwise.difference(tmp_path, "prompt_entropy", 0, 1)


def test_a_flipped_bit_in_a_table_is_noticed(tmp_path):
    scan_table().save(tmp_path)
    path = tmp_path / "table.parquet"
    data, chance = path.read_bytes(), random.Random(3)
    right, wrong = LayerTable.load(tmp_path), []
    for _ in range(60):
        place, bit = chance.randrange(len(data)), chance.randrange(8)
        path.write_bytes(flipped(data, place, bit))
        try:
            if repr(LayerTable.load(tmp_path).scores) != repr(right.scores):
                wrong.append(place)
        except RunError as error:
            assert "table.parquet" in str(error)
    assert not wrong


PAIRS = {"sentence1": ["w1 w2 w3", "w3 w4", "w5 w6", "w8"], "sentence2": ["w1", "w3 w9", "w7", "w2 w8"]}


def sts(score=(1.0, 2.0, 0.0, 3.0)):
    return pd.DataFrame(PAIRS | {"score": list(score)})


VARIANTS = [
    {},
    {"normalize": True},
    {"template": "w9 {text}"},
    {"pooling": "max"},
    {"transform": "center"},
    {"transform": "center", "normalize": True},
]


def test_a_second_call_keeps_the_rows_of_another_recipe(tiny_llama, tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", sts())
    options = {"data_root": tmp_path / "root", "out": tmp_path / "out"}
    for variant in VARIANTS:
        layerwise.eval(tiny_llama, "all", recipes=Recipe(2, **variant), fit=["w1 w2", "w3 w4 w5", "w7"], **options)
    table = LayerTable.load(tmp_path / "out")
    assert len(table) == len({s.identity for s in table}) == len(VARIANTS)
    layerwise.eval(tiny_llama, "all", recipes=Recipe(2, transform="center"), fit=["w4 w2", "w8 w4 w5"], **options)
    assert len(LayerTable.load(tmp_path / "out")) == len(VARIANTS) + 1  # fitted on other texts
    layerwise.eval(tiny_llama, "all", recipes=Recipe(2), **options)
    table = LayerTable.load(tmp_path / "out")
    assert len(table) == len(VARIANTS) + 1  # the same again
    assert len(table.curves()) == len(table) == len(mean_scores(table, "mean"))
    assert {s.max_length for s in table} == {table.run["max_length"]}


def test_rows_that_differ_in_one_column_of_the_recipe_are_not_the_same():
    (row,) = scan_table(metrics=("curvature",), rows=("raw",)).where(layer=1)
    others = {"normalize": True, "template": "x{text}", "fit": "task", "pooling": "max", "max_length": 7, "level": 1.0}
    rows = [row, *(replace(row, **{name: value}) for name, value in others.items())]
    assert len({s.identity for s in rows}) == len(rows)
    assert replace(row, value=9.0, n=3, note="x", level=float("nan")).identity == row.identity
    result = LayerTable(tuple(replace(row, metric="t", **{k: v}) for k, v in others.items() if k != "level"))
    assert len(result.curves()) == len(mean_scores(LayerTable(result.scores, {"kind": "eval"}), "t")) == 5


def test_a_table_that_other_software_rewrote_loads_without_columns_that_have_a_default(tmp_path):
    scan_table().save(tmp_path)
    path = tmp_path / "table.parquet"
    optional = ["normalize", "template", "fit", "max_length"]
    pd.read_parquet(path).drop(columns=optional).to_parquet(path, index=False)  # and without a checksum
    assert repr(LayerTable.load(tmp_path).scores) == repr(scan_table().scores)


def test_edited_tables_of_a_data_root_are_not_scored_as_the_old_ones(tiny_llama, tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", sts())
    options = {"data_root": tmp_path / "root", "out": tmp_path / "out", "layers": "1"}
    layerwise.eval(tiny_llama, "all", **options)
    path = tmp_path / "root" / "Mine" / "default" / "test.parquet"
    sts((3.0, 0.0, 2.0, 1.0)).to_parquet(path, index=False)
    with pytest.raises(RunError, match=r"tables in .*Mine \(default/test.parquet\) were changed after"):
        layerwise.eval(tiny_llama, "all", **options)
    write_task(tmp_path / "root", "Mine", "STS", sts((3.0, 0.0, 2.0, 1.0)))
    fresh = layerwise.eval(tiny_llama, "all", **options | {"out": tmp_path / "fresh"})
    assert [s.value for s in layerwise.eval(tiny_llama, "all", **options)] == [s.value for s in fresh]


def test_scores_of_one_version_are_not_served_for_another(tmp_path, monkeypatch):
    recipe, local = Recipe(1), TaskChoice("STSBenchmark", "STS")
    kind = VectorKind("f", "float32", 8, (recipe.readout,))
    scorer = scoring.Scorer(tmp_path, kind, "float32", "m", "main")
    record = {"task": "STSBenchmark", "metric": "x", "recipe": vars(recipe), "score": 1.0}
    whole = record | {"made_with": scoring.scoring_versions(local)}
    write_json(scorer.path(local, recipe), whole)
    assert scorer.saved_score(local, recipe)["score"] == 1.0
    for name in ("mteb", "datasets"):
        with monkeypatch.context() as patch:
            patch.setattr(scoring, "version", lambda asked, name=name: "0" if asked == name else version(asked))
            assert scorer.saved_score(local, recipe) is None
    with monkeypatch.context() as patch:
        patch.setattr(scoring, "data_revision", lambda task: "another revision of the hub's data set")
        assert scorer.saved_score(local, recipe) is None
    others = ({"task": "STS12"}, {"recipe": {"layer": 2}}, {"recipe": {"layer": 1, "norm": "curvature"}})
    for damaged in ("[]", "{", "{}", json.dumps(record), *(json.dumps(whole | other) for other in others)):
        scorer.path(local, recipe).write_text(damaged)
        assert scorer.saved_score(local, recipe) is None
