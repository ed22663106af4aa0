"""Run folders in an object store: a real S3 server on loopback, also one that answers with errors."""

import re

import pandas as pd
import pytest
from object_store import Store

import layerwise
from layerwise.core import remote
from layerwise.core.errors import InputError, LayerwiseError, RunError, StoreError
from layerwise.core.files import DiskFolder, open_folder
from layerwise.runs.ownership import claim

OPTIONS = {"shard_size": 9, "threads": 1}


@pytest.fixture(scope="module")
def store():
    store = Store()
    yield store
    store.close()


def test_both_kinds_of_folder_behave_alike(store, tmp_path):
    for folder in (DiskFolder(tmp_path), open_folder(store.url("alike"))):
        assert folder.read("a") is None and folder.names() == folder.names("b") == []
        folder.write("a", b"one")
        folder.write("a", b"two")
        folder.write("b/c", b"three")
        assert (folder.read("a"), folder.read("b/c")) == (b"two", b"three")
        assert (folder.names(), folder.names("b")) == (["a"], ["c"])
        folder.delete(["a", "not there"])
        folder.write("b/d", b"four")
        folder.clear("b", re.compile("c"))
        folder.clear("not there", re.compile("c"))
        assert folder.names() == [] and folder.names("b") == ["d"]
        assert folder.entries() == ["b"]
        assert folder.create("new", b"one") and not folder.create("new", b"two")
        assert folder.read("new") == b"one" and folder.entries() == ["b", "new"]


def test_a_scan_into_an_object_store_is_the_scan_into_a_folder_and_is_resumed(
    store, tiny_llama, word_texts, tmp_path, monkeypatch
):
    there = store.url("scan")
    with pytest.raises(RunError, match="no finished run"):
        layerwise.LayerTable.load(there)
    on_disk = layerwise.scan(tiny_llama, word_texts, out=tmp_path, **OPTIONS)
    layerwise.scan(tiny_llama, word_texts, out=there, **OPTIONS)
    for name in ("state-00005.safetensors", "table.parquet", "prompts/00004.parquet"):
        assert open_folder(there).read(name) == (tmp_path / name).read_bytes()
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", None)
    again = layerwise.scan(tiny_llama, word_texts, out=there, **OPTIONS)
    pd.testing.assert_frame_equal(again.to_pandas(), on_disk.to_pandas(), check_exact=True)
    with pytest.raises(RunError, match="shard_size: 9 there, 8 asked for"):
        layerwise.scan(tiny_llama, word_texts, out=there, **OPTIONS | {"shard_size": 8})


def test_a_folder_of_the_store_is_claimed_as_one_on_disk(store, tiny_llama, word_texts):
    theirs = open_folder(store.url("theirs"))
    theirs.write("state-01.csv", b"mine")
    theirs.write("shards/notes.txt", b"mine")
    with pytest.raises(RunError, match=r"is not empty \(shards, state-01.csv\)"):
        layerwise.scan(tiny_llama, word_texts, out=store.url("theirs"), **OPTIONS)
    assert theirs.entries() == ["shards", "state-01.csv"] and theirs.names("shards") == ["notes.txt"]
    claim(open_folder(store.url("ours")), "eval")
    claim(open_folder(store.url("ours")), "eval")
    with pytest.raises(RunError, match="contains an eval, not a scan"):
        layerwise.scan(tiny_llama, word_texts, out=store.url("ours"), **OPTIONS)


def test_errors_of_the_store_are_waited_out(store):
    folder = open_folder(store.url("flaky"))
    store.errors = 5
    folder.write("a", b"one")
    store.errors = 5
    assert folder.read("a") == b"one" and store.errors == 0


def test_a_store_that_keeps_failing_is_given_up_after_a_few_tries(monkeypatch):
    monkeypatch.setattr(remote, "RETRY_DELAYS", (0, 0))
    answers = [OSError("503"), OSError("503"), "here"]

    def attempt():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert remote.with_retries(attempt) == "here"
    answers[:] = [OSError("503")] * 3
    with pytest.raises(StoreError, match="503") as caught:
        remote.with_retries(attempt)
    assert isinstance(caught.value, OSError) and "repeat the command" in str(caught.value)


def test_a_url_that_means_nothing_is_told(tiny_llama, word_texts):
    with pytest.raises(InputError, match="cannot use 'nowhere://x' as a folder"):
        layerwise.scan(tiny_llama, word_texts, out="nowhere://x")


@pytest.mark.parametrize("url", ["s3://", "file:///", "hf://x"])
def test_a_url_without_a_folder_is_refused_by_its_name(url, monkeypatch):
    class NoConnection(Exception):
        """Not an OSError, as in file systems written in Python."""

    monkeypatch.setattr(remote, "RETRY_DELAYS", (0,))
    with pytest.raises(LayerwiseError, match=f"cannot use '{url}'"):
        open_folder(url).names()
    with pytest.raises(StoreError, match="no route"):
        remote.with_retries(lambda: (_ for _ in ()).throw(NoConnection("no route")))
