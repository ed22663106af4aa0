"""Shared by all tests: steady seeds, tiny models on disk, and the real models and data where they are at hand."""

import os
import subprocess
from functools import partial
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported: no test may reach for the network

import pytest
import torch
from browser import chromium  # noqa: F401
from families import make_model, make_reader, make_tokenizer
from hypothesis import settings
from parts import pytest_collection_modifyitems, pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401
from places import ROOT
from snapshots import run_verb, write_root

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50, print_blob=True)
settings.load_profile("steady")

SHARED = Path(os.environ.get("LAYERWISE_SHARED", ROOT.parent / "shared"))
MODELS = Path(os.environ.get("LAYERWISE_MODELS", Path.home() / ".cache" / "layerwise-models"))


@pytest.fixture(autouse=True)
def steady_torch() -> None:
    """Every test starts from one seed; tests that care pass their own generator."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def brief_timing(monkeypatch) -> None:
    """Exports and picks of tiny models are timed in few rounds of single calls."""
    monkeypatch.setattr("layerwise.passes.timing.CALL_SECONDS", 0.0)
    monkeypatch.setattr("layerwise.passes.timing.MOST_ROUNDS", 3)


@pytest.fixture
def real_model():
    """A function from a name to the folder of a real pretrained model, one of those that CI prepares."""

    def find(name: str) -> str:
        known = (ROOT / ".ci" / "models").read_text(encoding="utf-8").splitlines()
        assert name in known, f"CI does not prepare {name}: add it to .ci/models"
        if not (MODELS / name / "config.json").is_file():
            pytest.skip(f"no model {name} in LAYERWISE_MODELS ({MODELS})")
        return str(MODELS / name)

    return find


@pytest.fixture
def shared():
    """A function from a path below the shared folder to that path."""

    def find(path: str) -> Path:
        if not (SHARED / path).exists():
            pytest.skip(f"no {path} in LAYERWISE_SHARED ({SHARED})")
        return SHARED / path

    return find


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory) -> str:
    """A folder with a tiny random decoder and its tokenizer."""
    return save_tiny(tmp_path_factory.mktemp("tiny") / "llama", "llama")


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> str:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "bert", "bert")


@pytest.fixture(scope="session")
def reading_llama(tmp_path_factory) -> str:
    """As tiny_llama, with a tokenizer that also knows the words of pick's bundled sentences."""
    return save_reader(tmp_path_factory.mktemp("reading") / "llama", "llama")


@pytest.fixture(scope="session")
def reading_bert(tmp_path_factory) -> str:
    return save_reader(tmp_path_factory.mktemp("reading") / "bert", "bert")


@pytest.fixture(scope="session")
def broken_llama(tmp_path_factory) -> str:
    """A decoder whose second block gives NaN, as one that overflows in half precision does."""
    model = make_model("llama")
    torch.nn.init.constant_(model.layers[1].mlp.down_proj.weight, float("nan"))
    return save_tiny(tmp_path_factory.mktemp("tiny") / "broken", "llama", model)


def save_reader(folder: Path, family: str) -> str:
    for part in make_reader(family):
        part.save_pretrained(folder)
    return str(folder)


def save_tiny(folder: Path, family: str, model: torch.nn.Module | None = None) -> str:
    (model or make_model(family)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def word_texts() -> list[str]:
    """Texts of 3 to 29 words of the tiny tokenizer, no two alike."""
    return [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 27)) for i in range(43)]


@pytest.fixture(scope="session")
def runs(tmp_path_factory, tiny_llama):
    """A function that runs a verb into a folder, and the folder of runs that each verb has made: scan, eval, ..."""
    base = tmp_path_factory.mktemp("runs")
    run = partial(run_verb, model=tiny_llama, root=write_root(base / "root"))
    for verb in ("scan", "eval", "stress:repeat_one", "campaign"):
        run(verb, out=base / "out" / verb.partition(":")[0])
    return lambda verb, out: run(verb, out=out), base / "out"


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 64 kB, for those who may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
