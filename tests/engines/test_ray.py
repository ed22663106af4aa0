"""Ray, the real one, on a loopback cluster of two nodes: the bits of the local runner, whatever dies on the way."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
import torch
from families import make_model, make_tokenizer
from object_store import Store

import layerwise
from layerwise.core.errors import InputError, ModelError, RunError
from layerwise.core.files import open_folder
from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.ray import open_ray
from layerwise.engines.ray_cluster import RAY_ENVIRONMENT
from layerwise.engines.shards import torch_threads
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.eval.data_root import write_task

ray = pytest.importorskip("ray")

PLAN = {"threads": 1, "shard_size": 6, "rows": "raw,unit", "tokens": "all,no_first"}


@pytest.fixture(scope="module")
def nodes():
    """Two Ray nodes on loopback; the second can be lost and is put back."""
    from ray.cluster_utils import Cluster

    os.environ |= RAY_ENVIRONMENT | {"RAY_raylet_start_wait_time_s": "300"}  # a busy machine takes its time
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def local(tiny_llama, tmp_path_factory):
    """What the local runner makes of the texts."""
    out = tmp_path_factory.mktemp("local") / "run"
    layerwise.scan(tiny_llama, TEXTS, out=out, **PLAN)
    return out


TEXTS = [" ".join(f"w{(i * i + 7 * j) % 80}" for j in range(3 + i % 27)) for i in range(43)]


def digest(folder):
    """Hashes of the merged state, the table and the prompts' own numbers."""
    files = sorted(path for path in Path(folder).rglob("*") if path.suffix in (".safetensors", ".parquet"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def same_bits(folder, local):
    assert digest(folder) == digest(local)
    assert len(digest(local)) == 1 + 1 + 8, "one state, one table, prompts of eight shards: no shard's file is left"


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.long)])
def test_ray_on_two_nodes_gives_the_bits_of_the_local_runner(nodes, local, tiny_llama, tmp_path, workers):
    table = layerwise.scan(tiny_llama, TEXTS, out=tmp_path, engine=layerwise.Cluster(workers=workers), **PLAN)
    same_bits(tmp_path, local)
    pd.testing.assert_frame_equal(table.to_pandas(), layerwise.LayerTable.load(local).to_pandas(), check_exact=True)


@pytest.mark.long
def test_eval_encodes_and_scores_on_the_cluster_what_it_does_here(nodes, tiny_llama, tmp_path, monkeypatch):
    pytest.importorskip("mteb")
    monkeypatch.setattr("layerwise.verbs.eval.vectors.SEGMENT_TEXTS", 6)
    pairs = {"sentence1": TEXTS[:20], "sentence2": TEXTS[20:40], "score": [float(i % 5) for i in range(20)]}
    write_task(tmp_path / "root", "Own", "STS", pd.DataFrame(pairs))
    found = {}
    for name, engine in {"local": "local", "ray": layerwise.Cluster(workers=2)}.items():
        table = layerwise.eval(
            tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / name, engine=engine, threads=1
        )
        assert table.run["forwarded_texts"] == 40
        vectors = {path for path in digest(tmp_path / name) if "segment" in path}
        assert len(vectors) == 8, "two calls of four segments: no other file is left"
        assert not list((tmp_path / name).rglob("state-*")) and not list((tmp_path / name).rglob("shards"))
        found[name] = table.to_pandas(), vectors
    pd.testing.assert_frame_equal(found["ray"][0], found["local"][0], check_exact=True)
    assert found["ray"][1] == found["local"][1], "the same segments, by the hash in their names"


@pytest.mark.long
def test_a_task_that_fails_on_the_cluster_stops_no_other(nodes, broken_llama, tmp_path):
    pytest.importorskip("mteb")
    labelled = pd.DataFrame({"text": TEXTS[:40], "label": [i % 2 for i in range(40)]})
    for name in ("One", "Two"):
        write_task(tmp_path / "root", name, "Classification", labelled, labelled)
    options = {"data_root": tmp_path / "root", "engine": layerwise.Cluster(workers=2), "threads": 1}
    with pytest.raises(RunError, match="2 of 2 tasks failed: One .layer . contains NaN"):
        layerwise.eval(broken_llama, "all", out=tmp_path / "e", **options)
    assert {(row.metric, row.layer) for row in layerwise.LayerTable.load(tmp_path / "e")} == {
        (name, layer) for name in ("One", "Two") for layer in (0, 1)
    }


@pytest.mark.long
def test_a_node_that_is_lost_takes_nothing_with_it(nodes, local, tiny_llama, tmp_path):
    lost = next(node for node in nodes.worker_nodes)

    def lose():
        while not list(tmp_path.glob("shards/*")) and not list(tmp_path.glob("state*")):
            time.sleep(0.01)
        nodes.remove_node(lost, allow_graceful=False)

    killer = threading.Thread(target=lose)
    killer.start()
    try:
        layerwise.scan(tiny_llama, TEXTS, out=tmp_path, engine=layerwise.Cluster(workers=2), **PLAN)
    finally:
        killer.join()
        nodes.add_node(num_cpus=2)
    same_bits(tmp_path, local)


@pytest.mark.long
def test_a_driver_that_is_killed_is_taken_up_by_the_next(nodes, local, tiny_llama, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    out = tmp_path / "run"
    command = [sys.executable, "-m", "layerwise", "scan", tiny_llama, "--data", str(texts), "--out", str(out)]
    command += ["--engine", "ray", "--address", nodes.address, "--workers", "1", "--shard-size", "6"]
    command += ["--rows", "raw,unit", "--tokens", "all,no_first"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(out.glob("shards/*.safetensors"))) < 3 and time.monotonic() < deadline and driver.poll() is None:
        time.sleep(0.005)
    driver.kill()
    driver.wait()
    there = len(list(out.glob("shards/*.safetensors")))
    layerwise.scan(tiny_llama, TEXTS, out=out, engine=layerwise.Cluster(workers=1), **PLAN)
    assert there >= 3
    same_bits(out, local)


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """A model that w88 makes infinite."""
    folder = tmp_path_factory.mktemp("poisoned")
    model = make_model("llama")
    with torch.no_grad():
        tokenizer = make_tokenizer()
        model.embed_tokens.weight[tokenizer.convert_tokens_to_ids("w88")] = torch.inf
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.long)])
def test_a_poison_example_is_named_and_can_be_left_out(nodes, poisoned, tmp_path, engine):
    texts = [*TEXTS[:20], "w1 w88 w2", *TEXTS[20:]]
    engine = layerwise.Cluster(workers=1) if engine == "ray" else engine
    name = next(e.id for e in layerwise.texts(texts) if "w88" in e.text)
    with pytest.raises(InputError, match=f"layer 0 contains NaN or infinity in torch.float32 for example {name}"):
        layerwise.scan(poisoned, texts, out=tmp_path, engine=engine, **PLAN)
    table = layerwise.scan(poisoned, texts, out=tmp_path, engine=engine, allow_missing=2, **PLAN)
    assert {s.missing for s in table} == {1} and table.run["data"]["missing"] == [name]
    assert {s.n + s.skipped for s in table.where(tokens="all", rows="raw", layer=1)} == {len(TEXTS)}
    assert table.run["data"]["prompts"] == len(TEXTS)
    with pytest.raises(InputError, match="Pass --allow-missing 1"):
        layerwise.scan(poisoned, texts, out=tmp_path, **PLAN)


@pytest.mark.long
def test_stress_runs_all_levels_with_the_same_workers(nodes, tiny_llama, tmp_path):
    asked = {"kind": "repeat_one", "levels": [0, 1], "threads": 1}
    here = layerwise.lab.stress(tiny_llama, TEXTS, **asked)
    there = layerwise.lab.stress(tiny_llama, TEXTS, out=tmp_path, engine=layerwise.Cluster(workers=1), **asked)
    pd.testing.assert_frame_equal(here.to_pandas(), there.to_pandas(), check_exact=True)


@pytest.mark.long
def test_a_campaign_of_two_models_at_once_into_an_object_store_is_the_local_one(nodes, tiny_llama, tiny_bert, tmp_path):
    store = Store()
    record = {"models": [tiny_llama, tiny_bert], "data": {"demo": {"data": "demo", "limit": 30}}}
    record["settings"] = {"few": {"metrics": "prompt_entropy,dataset_entropy", "shard_size": 10}}
    with torch_threads(1):
        here = layerwise.campaign(Campaign.parse(record | {"out": str(tmp_path)}, "here"))
    there = layerwise.campaign(Campaign.parse(record | {"out": store.url("two"), "engine": {"workers": 2}}, "there"))
    pd.testing.assert_frame_equal(here.to_pandas(), there.to_pandas(), check_exact=True)
    for cell in Campaign.parse(record | {"out": "x"}, "both").cells:
        folder = open_folder(store.url("two"), cell.name)
        for name in ("state-00003.safetensors", "prompts/00002.parquet", "table.parquet"):
            assert folder.read(name) == (tmp_path / cell.name / name).read_bytes()
        assert folder.names("shards") == []
    store.close()


def test_what_goes_wrong_on_a_worker_is_told_here(nodes, tiny_llama, tmp_path):
    with pytest.raises(InputError, match="--out"):
        layerwise.scan(tiny_llama, TEXTS, engine="ray")
    with pytest.raises(InputError, match="ModelSpec"):
        layerwise.scan((make_model("llama"), make_tokenizer()), TEXTS, engine="ray", out=tmp_path)
    with pytest.raises(InputError, match="'spark' is not one of local, ray"):
        layerwise.scan(tiny_llama, TEXTS, engine="spark")
    with pytest.raises(ModelError, match="has no weights"):
        broken = Path(tmp_path / "broken")
        make_model("llama").config.save_pretrained(broken)
        make_tokenizer().save_pretrained(broken)
        layerwise.scan(str(broken), TEXTS, engine=layerwise.Cluster(workers=1), out=tmp_path / "run")


@dataclass(frozen=True)
class Number:
    """An item of a small work without a model, whose workers start in a second."""

    id: str

    @property
    def digest(self):
        return int(self.id)


@dataclass
class Numbers:
    """A state: the numbers that were seen, in the order in which they were merged."""

    seen: list[int] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def size(self):
        return len(self.seen)

    def merge(self, other):
        self.seen, self.missing = self.seen + other.seen, self.missing + other.missing

    def dump(self):
        return json.dumps(vars(self)).encode()

    @classmethod
    def parse(cls, data):
        return cls(**json.loads(data))

    def was_made_from(self, count, keys):
        return len(self.seen) + len(self.missing) == count and sum(self.seen) + sum(map(int, self.missing)) == keys

    def record_missing(self, items):
        self.missing = self.missing + [item.id for item in items]


def count(numbers, harm=lambda seen: None, **options):
    """Seven shards of five through two workers; `harm` is called with the numbers of each shard."""

    def work(tool, number, items, report):
        harm([item.digest for item in items])
        return Numbers([item.digest for item in items]), {f"squares/{number}": str(number**2).encode()}

    shards = [[Number(str(i)) for i in range(start, start + 5)] for start in range(0, 35, 5)]
    with open_ray(layerwise.Cluster(workers=2), lambda: None, lambda tool: "no tool") as engine:
        return engine.run_shards(shards, work, Checkpoint(open_folder(numbers), Numbers.parse, 0), **options)


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(nodes, tmp_path):
    marker = str(tmp_path / "marker")

    def harm(seen):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    assert count(tmp_path / "run", harm).seen == list(range(35))
    squares = [(tmp_path / "run" / "squares" / str(n)).read_text() for n in range(7)]
    assert squares == ["0", "1", "4", "9", "16", "25", "36"]


@pytest.mark.long
def test_an_example_that_kills_every_worker_is_named_and_can_be_left_out(nodes, tmp_path):
    def harm(seen):
        if 17 in seen:
            os._exit(1)

    with pytest.raises(InputError, match=r"example 17 cannot be computed: the worker died.*--allow-missing 1 or more"):
        count(tmp_path, harm)
    state = count(tmp_path, harm, allow_missing=1)
    assert state.missing == ["17"] and state.seen == [n for n in range(35) if n != 17]


@pytest.mark.long
def test_examples_that_fail_for_reasons_nobody_foresaw_are_left_out_one_by_one(nodes, tmp_path):
    def harm(seen):
        if {3, 17, 18} & set(seen):
            raise ZeroDivisionError("no reason")

    with pytest.raises(InputError, match=r"example (3|17|18) cannot be computed: ZeroDivisionError: no reason"):
        count(tmp_path, harm)  # which shard fails first is not certain
    assert count(tmp_path, harm, allow_missing=3).missing == ["3", "17", "18"]


def test_a_shard_that_fails_only_as_a_whole_is_told(nodes, tmp_path):
    def harm(seen):
        if len(seen) == 5 and 17 in seen:
            raise MemoryError("too many")

    with pytest.raises(InputError, match="examples 15 to 19 fail together, .*MemoryError: too many"):
        count(tmp_path, harm, allow_missing=9)


@pytest.mark.long
def test_a_worker_that_cannot_write_ends_the_run_which_is_then_resumed(nodes, tmp_path):
    in_the_way = tmp_path / "shards" / "00004-00005.safetensors"
    in_the_way.mkdir(parents=True)  # as on a full disk, no file can be put there
    with pytest.raises(InputError, match="cannot write .*00004-00005.safetensors: Is a directory"):
        count(tmp_path)
    in_the_way.rmdir()
    assert count(tmp_path).seen == list(range(35))


@pytest.mark.long
def test_a_run_that_fails_leaves_workers_that_serve_the_next(nodes, tmp_path):
    def work(tool, number, items, report):
        return Numbers([item.digest for item in items]), {}

    def shards(broken):
        for start in range(0, 60, 5):
            if broken and start == 30:
                raise InputError("the data end in the middle")
            yield [Number(str(i)) for i in range(start, start + 5)]

    with open_ray(layerwise.Cluster(workers=2), lambda: None, lambda tool: "no tool") as engine:
        for name, broken in (("a", True), ("b", False)):
            checkpoint = Checkpoint(open_folder(tmp_path / name), Numbers.parse, 0)
            if broken:
                with pytest.raises(InputError, match="in the middle"):
                    engine.run_shards(shards(broken), work, checkpoint)
            else:
                assert engine.run_shards(shards(broken), work, checkpoint).seen == list(range(60))


def test_a_shard_file_that_is_damaged_or_of_other_data_is_done_again(nodes, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "00001-00002.safetensors").write_bytes(Numbers([5, 6]).dump())
    (tmp_path / "shards" / "00002-00003.safetensors").write_bytes(Numbers(list(range(10, 15))).dump())
    reported = []
    assert count(tmp_path, report=lambda items, tokens: reported.append(items)).seen == list(range(35))
    computed = {path.name for path in (tmp_path / "squares").iterdir()}
    assert computed == {*"013456"}, "shard 2 was there already"
    assert sum(reported) == 35, "a progress bar ends at its total"
