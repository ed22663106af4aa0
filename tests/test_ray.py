"""Ray, the real one, on a loopback cluster of two nodes: the bits of the local runner, whatever dies on the way."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from families import make_model, make_tokenizer

import layerwise
from layerwise.engines.ray import RAY_HABITS
from layerwise.errors import InputError, ModelError, RunError
from layerwise.metrics.base import Metric
from layerwise.metrics.readings import mean_over_prompts
from layerwise.metrics.scores import mean_of

ray = pytest.importorskip("ray")

PLAN = {"threads": 1, "shard_size": 6, "rows": "raw,unit", "tokens": "all,no_first"}
HEAVY = 7.0  # what a token of the poisoned model measures; others stay far below


@pytest.fixture(scope="module")
def nodes():
    """Two Ray nodes on loopback; the second can be lost and is put back."""
    from ray.cluster_utils import Cluster

    os.environ |= RAY_HABITS
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
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


def once(marker, act, name="mean_norm_and_more"):
    """A metric that does something dreadful to its process when it is first computed, in any process."""

    def norm(tokens, mask):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(0.05)
        else:
            act()
        return tokens.norm(dim=-1).mean(dim=-1)

    return Metric(name, "scale", "longer", mean_over_prompts(name, norm), mean_of(), "this test")


@pytest.mark.parametrize("workers", [1, 3])
def test_ray_on_two_nodes_gives_the_bits_of_the_local_runner(nodes, local, tiny_llama, tmp_path, workers):
    table = layerwise.scan(tiny_llama, TEXTS, out=tmp_path, engine=layerwise.Cluster(workers=workers), **PLAN)
    same_bits(tmp_path, local)
    pd.testing.assert_frame_equal(table.to_pandas(), layerwise.LayerTable.load(local).to_pandas(), check_exact=True)


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(nodes, tiny_llama, tmp_path):
    def suicide():
        os.kill(os.getpid(), signal.SIGKILL)

    options = {"threads": 1, "shard_size": 6}
    metrics = [once(str(tmp_path / "marker"), lambda: None), "dataset_entropy"]
    layerwise.scan(tiny_llama, TEXTS, metrics=metrics, out=tmp_path / "local", **options)
    (tmp_path / "marker").unlink()
    metrics = [once(str(tmp_path / "marker"), suicide), "dataset_entropy"]
    layerwise.scan(
        tiny_llama, TEXTS, metrics=metrics, out=tmp_path / "ray", engine=layerwise.Cluster(workers=2), **options
    )
    same_bits(tmp_path / "ray", tmp_path / "local")


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


def test_a_driver_that_is_killed_is_taken_up_by_the_next(nodes, local, tiny_llama, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    out = tmp_path / "run"
    command = [sys.executable, "-m", "layerwise.cli.main", "scan", tiny_llama, "--data", str(texts), "--out", str(out)]
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
    """A model that w88 makes infinite and w89 makes heavy."""
    folder = tmp_path_factory.mktemp("poisoned")
    model = make_model("llama")
    with torch.no_grad():
        model.embed_tokens.weight.clamp_(-1, 1)
        tokenizer = make_tokenizer()
        model.embed_tokens.weight[tokenizer.convert_tokens_to_ids("w88")] = torch.inf
        model.embed_tokens.weight[tokenizer.convert_tokens_to_ids("w87")] = HEAVY
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_poison_example_is_named_and_can_be_left_out(nodes, poisoned, tmp_path, engine):
    texts = [*TEXTS[:20], "w1 w88 w2", *TEXTS[20:]]
    engine = layerwise.Cluster(workers=1) if engine == "ray" else engine
    name = next(e.id for e in layerwise.texts(texts) if "w88" in e.text)
    with pytest.raises(InputError, match=f"layer 0 is not finite in torch.float32 for example {name}"):
        layerwise.scan(poisoned, texts, out=tmp_path, engine=engine, **PLAN)
    table = layerwise.scan(poisoned, texts, out=tmp_path, engine=engine, allow_missing=2, **PLAN)
    assert {s.missing for s in table} == {1} and table.run["data"]["missing"] == [name]
    assert {s.n + s.skipped for s in table.where(tokens="all", rows="raw", layer=1)} == {len(TEXTS)}
    assert table.run["data"]["prompts"] == len(TEXTS)
    with pytest.raises(InputError, match="Pass --allow-missing 1"):
        layerwise.scan(poisoned, texts, out=tmp_path, **PLAN)


def test_an_example_that_kills_every_worker_is_found_and_left_out(nodes, poisoned, tmp_path, monkeypatch):
    def deadly(tokens, mask):
        if float(tokens.abs().max()) >= HEAVY:
            os._exit(1)
        return tokens.norm(dim=-1).mean(dim=-1)

    metric = Metric("deadly", "scale", "longer", mean_over_prompts("deadly", deadly), mean_of(), "this test")
    monkeypatch.setattr("layerwise.engines.ray.DEATHS_AT_MOST", 1)  # every death costs a model load
    texts = [*TEXTS[:3], "w1 w87 w2"]
    options = {"metrics": [metric], "layers": "0", "threads": 1, "shard_size": 2, "out": tmp_path}
    cluster = layerwise.Cluster(workers=1)
    name = next(e.id for e in layerwise.texts(texts) if "w87" in e.text)
    table = layerwise.scan(poisoned, texts, engine=cluster, allow_missing=1, **options)
    assert table.run["data"]["missing"] == [name] and {(s.n, s.missing) for s in table} == {(3, 1)}


def test_stress_runs_all_levels_with_the_same_workers(nodes, tiny_llama, tmp_path):
    asked = {"kind": "repeat_one", "levels": [0, 1], "threads": 1}
    here = layerwise.stress(tiny_llama, TEXTS, **asked)
    there = layerwise.stress(tiny_llama, TEXTS, out=tmp_path, engine=layerwise.Cluster(workers=1), **asked)
    pd.testing.assert_frame_equal(here.to_pandas(), there.to_pandas(), check_exact=True)


def test_what_goes_wrong_on_a_worker_is_told_here(nodes, tiny_llama, tmp_path):
    with pytest.raises(InputError, match="--out"):
        layerwise.scan(tiny_llama, TEXTS, engine="ray")
    with pytest.raises(InputError, match="ModelSpec"):
        layerwise.scan((make_model("llama"), make_tokenizer()), TEXTS, engine="ray", out=tmp_path)
    with pytest.raises(InputError, match="'spark' is not one of local, ray"):
        layerwise.scan(tiny_llama, TEXTS, engine="spark")
    with pytest.raises(ModelError, match="cannot load"):
        broken = Path(tmp_path / "broken")
        make_model("llama").config.save_pretrained(broken)
        make_tokenizer().save_pretrained(broken)
        layerwise.scan(str(broken), TEXTS, engine=layerwise.Cluster(workers=1), out=tmp_path / "run")
    (tmp_path / "full" / "shards" / "00000.safetensors").mkdir(parents=True)  # as on a full disk, no file can be put
    with pytest.raises(RunError, match="a worker failed: .*run the same command again"):
        layerwise.scan(tiny_llama, TEXTS, engine=layerwise.Cluster(workers=1), out=tmp_path / "full", **PLAN)
