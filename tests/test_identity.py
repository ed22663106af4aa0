"""Identity: what tells two data sets, two rows, two tables apart, and that a flipped bit does not go unnoticed."""

import json
import random
import shutil
from pathlib import Path

import pytest
from runs import scan_table

import layerwise
from layerwise.campaigns import Campaign, campaign
from layerwise.errors import InputError, LayerwiseError, RunError
from layerwise.inputs.source import Example
from layerwise.results import LayerTable
from layerwise.sweep.alignment import alignment

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
    with pytest.raises(InputError, match="43 ids are in both runs, but with other texts"):
        layerwise.difference(a, "prompt_entropy", 1, 1, other_run=b)
    with pytest.raises(RunError, match="share 0 texts; 43 ids are in both, but with other texts"):
        alignment(a, b)
    (pair,) = layerwise.compare(a, b).pairs
    assert not pair.changes.paired.any() and pair.cka is None and len(pair.notes) == 2
    assert "not paired over prompts: 43 ids" in str(layerwise.compare(a, b))
    assert layerwise.difference(a, "prompt_entropy", 1, 1, other_run=half_run).n == 21
    assert alignment(a, half_run).n == 21
    (pair,) = layerwise.compare(a, half_run).pairs
    assert pair.notes == () and set(pair.changes[pair.changes.paired].n) == {21}


def test_a_changed_data_file_under_a_finished_cell_is_not_done(tiny_llama, word_texts, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(word_texts[:5]))
    told = {"out": str(tmp_path / "out"), "models": [tiny_llama], "data": {"mine": {"data": str(texts)}}}
    plan = Campaign.parse(told | {"settings": {"s": {"metrics": "curvature"}}}, "c.yaml")
    first = campaign(plan)
    events = []
    campaign(plan, events.append)
    assert [event.status for event in events] == ["done"] and len(first)
    texts.write_text("\n".join(word_texts[5:10]))
    with pytest.raises(RunError, match=r"texts.txt has changed since .* was scanned; give the changed data another"):
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
            layerwise.compare(run, folder)
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
