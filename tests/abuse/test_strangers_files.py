"""Files of strangers, fuzzed: every parser answers with a value or an error of layerwise, never with another one."""

import json
import re
import string
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_runs import scan_table

import layerwise
from abuse.hostile import PAYLOADS, Page
from layerwise.core.errors import LayerwiseError
from layerwise.core.formats import parquet_bytes, parse_record, read_parquet, require_checksum, with_checksum
from layerwise.core.recipe import Recipe
from layerwise.core.tensors import dump_tensors, parse_tensors
from layerwise.runs.records import CELL, FAILED, FROZEN, PICK, PLAN, RUN, TRADEOFF, parse_run
from layerwise.runs.table import LayerTable, arrow_table, parse_scores
from layerwise.verbs.campaign.plan import Campaign

FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
NAMES = st.one_of(
    st.sampled_from([
        "kind", "model", "data", "plan", "options", "runs", "settings", "origin", "recipe", "last", "rule", "layers",
        "schema_version", "checksum", "tables", "name", "layer", "fingerprint", "out", "models", "engine", "revisions",
    ]),
    st.text(max_size=5),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(PAYLOADS[:9])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=6)


def refused_or_read(parse, *args):
    try:
        return parse(*args)
    except LayerwiseError as error:
        assert str(error)


@FUZZ
@given(st.one_of(st.binary(max_size=60), RECORDS.map(lambda record: json.dumps(record).encode())))
def test_records(data):
    for schema in (RUN, PLAN, PICK, TRADEOFF, FROZEN, CELL, FAILED):
        refused_or_read(schema.parse, data, schema.file)
    refused_or_read(parse_run, data, "run.json")


@FUZZ
@given(RECORDS)
def test_a_record_survives_writing_and_any_change_of_a_value_is_noticed(record):
    record.pop("checksum", None)
    data = json.dumps(with_checksum(record)).encode()
    assert json.dumps(parse_record(data, "x"), sort_keys=True) == json.dumps(
        json.loads(json.dumps(record)), sort_keys=True
    )
    changed = json.loads(data) | {"kind": "another value"}
    with pytest.raises(LayerwiseError, match="x was changed after it was written"):
        parse_record(json.dumps(changed).encode(), "x")


@FUZZ
@given(RECORDS)
def test_recipes_and_campaigns(tmp_path, record):
    path = tmp_path / "file.json"
    path.write_text(json.dumps(record))
    refused_or_read(Recipe.load, path)
    refused_or_read(Campaign.load, path)


@FUZZ
@given(st.text(alphabet=string.printable + "\x00é\u2028", max_size=120))
def test_yaml(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_bytes(text.encode())
    refused_or_read(Campaign.load, path)


TABLE = parquet_bytes(arrow_table(scan_table(depth=2)))


@FUZZ
@given(st.integers(0, len(TABLE) - 1), st.binary(max_size=9), st.booleans())
def test_tables(place, patch, is_cut):
    data = TABLE[:place] + patch + (b"" if is_cut else TABLE[place + len(patch) :])
    if data == TABLE:
        return
    with pytest.raises(LayerwiseError, match="table"):
        require_checksum(data, "table.parquet")
    rows = refused_or_read(read_parquet, data, "table.parquet")  # as if nobody had looked at the checksum
    if isinstance(rows, pa.Table):
        refused_or_read(parse_scores, rows, "table.parquet")


@pytest.fixture(scope="module")
def tensors():
    import torch

    return dump_tensors("key", '{"a": 1}', {"one": torch.arange(6.0), "two": torch.ones(2, 3, dtype=torch.int64)})


HEADERS = st.dictionaries(
    st.one_of(st.sampled_from(["one", "two", "__metadata__"]), st.text(max_size=4)),
    st.fixed_dictionaries({}, optional={
        "dtype": st.one_of(st.sampled_from(["F32", "I64", "BOOL", "X"]), VALUES),
        "shape": st.one_of(st.lists(st.integers(-2, 2**62), max_size=3), VALUES),
        "data_offsets": st.one_of(st.lists(st.integers(-9, 2**63), min_size=2, max_size=2), VALUES),
        "key": VALUES,
    }),
    max_size=4,
)  # fmt: skip


@FUZZ
@given(HEADERS, st.one_of(st.none(), st.integers(0, 2**64 - 1)), st.binary(max_size=40))
def test_safetensors_headers(header, length, rest):
    text = json.dumps(header).encode()
    data = (len(text) if length is None else length).to_bytes(8, "little") + text + rest
    with pytest.raises(ValueError):
        parse_tensors("key", data)


@FUZZ
@given(st.integers(0, 10**6), st.integers(0, 7))
def test_a_flipped_bit_of_a_safetensors_file_is_noticed(tensors, place, bit):
    data = bytearray(tensors)
    data[place % len(data)] ^= 1 << bit
    try:
        metadata, found = parse_tensors("key", bytes(data))
    except ValueError:
        return
    assert dump_tensors("key", metadata, found) == tensors, "only where the flip means nothing, such as in a space"


@settings(FUZZ, max_examples=25)
@given(st.lists(st.one_of(st.sampled_from(PAYLOADS), st.text(max_size=12)), min_size=3, max_size=3))
def test_payloads_in_a_report_stay_text(tmp_path, words):
    words = [re.sub("[\ud800-\udfff]", "", word) for word in words]
    pages = []
    for name, metric, note in (("m", "curvature", ""), words):
        table = scan_table(name or "m")
        rows = tuple(replace(row, metric=metric or row.metric, note=note) for row in table.where(rows="raw"))
        page = Page()
        page.feed(layerwise.report(LayerTable(rows, table.run), html=tmp_path / "r.html", overwrite=True).read_text())
        pages.append(sorted(page.active))
    assert pages[0] == pages[1]
