"""vLLM itself: hidden states for a scan, and the vectors of an export. Needs LAYERWISE_VLLM, as .ci/run --full."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

import layerwise
from layerwise.inputs.text import demo_texts
from layerwise.models.elsewhere.vllm import open_vllm, vllm_version
from layerwise.models.spec import ModelSpec
from layerwise.verbs.export.certificate import ExpectedVectors
from layerwise.verbs.export.vllm import check_in_vllm

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.skipif("LAYERWISE_VLLM" not in os.environ, reason="LAYERWISE_VLLM names no Python with vLLM"),
]
TEXTS = [*demo_texts()[:30], "Short."]


def values(table):
    return {(row.layer, row.norm, row.metric): row.value for row in table}


def own_folders():
    return {*Path(tempfile.gettempdir()).glob("layerwise-vllm-*")}


def test_a_scan_in_vllm_gives_the_numbers_of_a_scan_here(real_model, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")  # room for a part of a batch: the others wait
    model, options, before = real_model("smollm2-135m"), {"norm": "raw,normed", "shard_size": 16}, own_folders()
    here = layerwise.scan(model, TEXTS, **options)
    there = layerwise.scan(model, TEXTS, engine="vllm", **options)
    expected = values(here)
    assert values(there).keys() == expected.keys() and {0, 30} <= {layer for layer, _, _ in expected}
    for key, value in values(there).items():
        assert value == pytest.approx(expected[key], rel=1e-4, nan_ok=True), key
    assert there.run["data"]["tokens"] == here.run["data"]["tokens"]
    assert there.model.engine == f"vLLM {vllm_version(os.environ['LAYERWISE_VLLM'])}"
    assert own_folders() == before


def test_a_killed_scan_goes_on_with_equal_bits_and_leaves_no_process(real_model, tmp_path):
    model = real_model("smollm2-135m")  # vLLM's attention on a CPU takes no heads as small as those of stories260k
    data = tmp_path / "texts.txt"
    data.write_text("\n".join(f"{number} {text}" for number in range(3) for text in demo_texts()[:40]))
    command = [
        sys.executable, "-m", "layerwise", "scan", model, "--data", str(data), "--engine", "vllm", "--shard-size", "24",
        "--metrics", "mean_norm,dataset_entropy", "--max-length", "16", "--out",
    ]  # fmt: skip
    before = own_folders()
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, str(tmp_path / "killed")], stderr=stderr)
    while not any((tmp_path / "killed").glob("shards/*")):
        assert process.poll() is None, f"it ended before a shard was saved: {log.read_text()}"
        time.sleep(0.05)
    process.kill()
    process.wait()
    for name in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / name)], check=True, capture_output=True)
    killed, whole = (layerwise.LayerTable.load(tmp_path / name) for name in ("killed", "whole"))
    assert values(killed) == values(whole)
    deadline = time.monotonic() + 60  # the orphan notices at its next request
    while own_folders() != before and time.monotonic() < deadline:
        time.sleep(1)
    assert own_folders() == before


def test_what_vllm_says_when_it_stops_reaches_the_user(real_model):
    spec = ModelSpec(real_model("stories260k"))
    with open_vllm(spec, {"no_such_argument": 1}) as network:
        with pytest.raises(layerwise.ModelError, match="no_such_argument"):
            network.source.states([[1, 2, 3]], [0, 1])


@pytest.mark.parametrize("servable", [True, False])
def test_an_export_is_run_in_vllm_and_a_wrong_one_is_noticed(servable, real_model, tmp_path):
    st = pytest.importorskip("sentence_transformers")
    layerwise.export(real_model("all-minilm-l6-v2"), 3, tmp_path / "m", servable=servable)
    vectors = torch.tensor(st.SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(TEXTS))
    check = check_in_vllm(tmp_path / "m", ExpectedVectors(TEXTS, vectors, 0.0, truncated=False), 128)
    assert not check.errors and check.is_exact == servable
    card = (tmp_path / "m" / "README.md").read_text()
    assert ("run on this export with vLLM" in card) == servable
