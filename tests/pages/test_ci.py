"""CI keeps its promises: parts with their minutes, no silent skip, real data only where it is marked."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from parts import FAST, FOLDERS
from places import ROOT, TESTS

SKIPS = """
import pytest

def test_skipped_inside():
    pytest.skip("inside")

@pytest.mark.skipif(True, reason="by a mark")
def test_skipped_by_a_mark():
    pass

@pytest.fixture
def absent():
    pytest.skip("by a fixture")

def test_skipped_by_a_fixture(absent):
    pass

@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    assert False
"""
WHOLE_FILE = "import pytest\n\npytest.importorskip('no_such_package')\n\ndef test_never_collected():\n    pass\n"
NEEDS = """
import pytest

@pytest.fixture
def real_model():
    return "a folder"

@pytest.fixture
def cut(real_model):
    return real_model

def test_through_another_fixture(cut):
    pass

@pytest.mark.real
def test_marked_by_hand():
    pass

def test_plain():
    pass
"""


def minutes():
    lines = (ROOT / ".ci" / "minutes").read_text(encoding="utf-8").splitlines()
    return {name: int(number) for name, number in (line.split() for line in lines if not line.startswith("#"))}


def pytest_in(folder, tests, *words, strict="0"):
    """What a run of pytest on one file, with the hooks of tests/parts.py, prints and returns."""
    (folder / "conftest.py").write_text("from parts import *  # noqa: F403\n")
    (folder / "test_accumulators.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    real\n    core\n    fast\n")
    environment = os.environ | {"LAYERWISE_STRICT": strict, "PYTHONPATH": str(ROOT / "tests")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a quicker start
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_contributing_lists_the_minutes_that_ci_enforces():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = {name: int(number) for name, number in re.findall(r"(?m)^\| `(\w+)` \| (\d+) \|", page)}
    assert table == minutes() and sum(table.values()) <= 20
    assert "--full" in page and "--full" in (ROOT / "docs" / "release.md").read_text(encoding="utf-8")


def test_every_part_of_the_tests_has_its_minutes():
    assert set(minutes()) == {"core", "real", "abuse", "docs", "packaging"}


def test_every_file_that_is_assigned_to_a_part_exists_and_has_one_part():
    assert {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")} >= FAST
    assert all((TESTS / folder).is_dir() for folder in FOLDERS)


def test_folders_of_tests_are_those_of_the_package():
    """`pytest tests/verbs/scan` is enough to work on `verbs/scan`. What is about no package has a folder of its own."""
    folders = {str(path.parent.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")} - {"."}
    extra = {folder for folder in folders if not (ROOT / "src" / "layerwise" / folder).is_dir()}
    assert extra == {"abuse", "pages"}


def test_a_strict_run_fails_on_every_kind_of_skip(tmp_path):
    assert "3 skipped, 1 xfailed" in pytest_in(tmp_path, SKIPS).stdout
    done = pytest_in(tmp_path, SKIPS, strict="1")
    assert done.returncode == 1 and "1 failed, 1 xfailed, 2 errors" in done.stdout, done.stdout
    for reason in ("inside", "by a mark", "by a fixture"):
        assert f"{reason}. LAYERWISE_STRICT=1 turns every skip into a failure." in done.stdout


def test_a_strict_run_fails_on_a_file_that_skips_itself(tmp_path):
    assert "1 skipped" in pytest_in(tmp_path, WHOLE_FILE).stdout
    done = pytest_in(tmp_path, WHOLE_FILE, strict="1")
    assert done.returncode == 2 and "no_such_package" in done.stdout and "LAYERWISE_STRICT=1" in done.stdout


@pytest.mark.parametrize(("marker", "passed"), [("real", 2), ("not real", 1), ("core", 1), ("fast", 1)])
def test_a_test_that_needs_real_weights_is_in_no_other_part(tmp_path, marker, passed):
    assert f"{passed} passed" in pytest_in(tmp_path, NEEDS, "-m", marker).stdout


def test_only_the_fixtures_look_for_real_models_and_data():
    for path in TESTS.rglob("*.py"):
        if path.name not in ("conftest.py", Path(__file__).name):
            words = re.findall(r"LAYERWISE_(?:SHARED|MODELS)|environ[.\[(get]+\"CI\"", path.read_text(encoding="utf-8"))
            assert not words, f"{path.name} reads {words}: use the fixtures real_model and shared"


def test_the_workflow_covers_the_pythons_that_the_package_declares():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert workflow["jobs"]["public"]["strategy"]["matrix"]["python"] == declared
    assert project["requires-python"] == f">={declared[0]}"
