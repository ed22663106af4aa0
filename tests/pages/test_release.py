"""What a release consists of: workflows that are pinned and may do little, a bill of materials, images, templates."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from places import ROOT

import layerwise

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(names):
    return {Requirement(line).name.lower() for name in names for line in PROJECT["optional-dependencies"][name]}


USERS_EXTRAS = PROJECT["optional-dependencies"].keys() - {"dev", "docs"}
REQUIRED = {Requirement(line).name.lower() for line in PROJECT["dependencies"]}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_rights_are_few(path):
    text = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used and all(re.search(r"@[0-9a-f]{40}$", name) and re.search(r"# v\d", note) for name, note in used)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    assert "secrets." not in text  # a password that is not there cannot be stolen


def test_one_job_alone_may_publish_and_it_runs_no_code_of_ours():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8"))["jobs"]
    rights = {name: job.get("permissions") for name, job in jobs.items()}
    assert rights == {"build": None, "pypi": {"id-token": "write"}, "github": {"contents": "write"}}
    assert jobs["pypi"]["needs"] == "build" and jobs["pypi"]["environment"]["name"] == "pypi"
    assert all("run" not in step for step in jobs["pypi"]["steps"])
    assert all(step.get("uses", "").partition("@")[0] != "actions/checkout" for step in jobs["github"]["steps"])


def test_a_version_that_is_not_the_tag_is_refused(tmp_path):
    def check(tag):
        command = [sys.executable, ROOT / ".ci" / "check_package.py", "version", tmp_path, tag]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    for name in ("layerwise-0.1.0.tar.gz", "layerwise-0.1.0-py3-none-any.whl"):
        (tmp_path / name).touch()
    assert check("v0.1.0").returncode == 0
    assert "a release v0.1.1 is" in check("v0.1.1").stderr
    assert check("0.1.0").returncode == 1


def test_the_version_is_written_in_one_place_only():
    assert PROJECT["dynamic"][0] == "version" and re.match(r"\d+\.\d+", layerwise.__version__)
    written = re.compile(r"^(__version__|version:)", re.MULTILINE)
    for name in ("src/layerwise/__init__.py", "CITATION.cff"):
        assert not written.search((ROOT / name).read_text(encoding="utf-8")), name


def test_the_bill_of_materials_lists_what_layerwise_requires(tmp_path):
    command = [sys.executable, ROOT / "scripts" / "sbom.py", tmp_path / "all.json", "--extra", "export"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    bill = json.loads((tmp_path / "all.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "layerwise"
    components = {part["name"]: part for part in bill["components"]}
    assert REQUIRED | requirements(["export"]) <= components.keys()
    assert "pytest" not in components and "tokenizers" in components  # only what is needed, but also indirectly
    assert all(part["version"] and part["purl"].startswith("pkg:pypi/") for part in components.values())
    assert {name for name, part in components.items() if "licenses" not in part} == set()
    known = {part["bom-ref"] for part in [*components.values(), bill["metadata"]["component"]]}
    assert {entry["ref"] for entry in bill["dependencies"]} == known
    assert all(set(entry["dependsOn"]) <= known for entry in bill["dependencies"])


def test_every_dependency_of_a_user_has_its_reason_and_its_licence_on_the_page():
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").lower()
    reasons, _, licences = page.partition("licences, as the packages declare them")
    needed = (REQUIRED | requirements(USERS_EXTRAS)) - {"layerwise"}
    assert len(needed) > 20
    assert [name for name in sorted(needed) if name not in reasons or name not in licences] == []


def test_policy_and_changelog_name_the_versions_and_extras_of_the_project():
    policy, changelog = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/policy.md", "CHANGELOG.md"))
    bounds = {one.name: str(one.specifier).removeprefix(">=") for one in map(Requirement, PROJECT["dependencies"])}
    needed = {"Python": PROJECT["requires-python"].removeprefix(">=")}
    needed |= {name: bounds[name] for name in ("torch", "transformers")}
    assert dict(re.findall(r"^\| (\w+) \| ([\d.]+) or newer \|", policy, re.MULTILINE)) == needed
    python, torch, transformers = needed.values()
    assert f"Python {python}, torch {torch} and transformers {transformers}, or newer" in changelog
    (extras,) = re.findall(r"extras are (.*?)\.", changelog, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", extras)) == USERS_EXTRAS


def test_images_run_as_an_ordinary_user_with_the_torch_that_ci_tests():
    text = (ROOT / "containers" / "Containerfile").read_text(encoding="utf-8")
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(stages) == ["base", "wheel", "cli", "ray-worker"]
    for name in ("cli", "ray-worker"):
        assert re.findall(r"^USER (.*)", stages[name], re.MULTILINE) == ["1000"]
    assert ":latest" not in text
    (tested,) = re.findall(r"LAYERWISE_TORCH:-(torch==[\d.]+)\}", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert f'ARG TORCH="{tested} ' in text
    for extra in re.findall(r"\.whl\)\[([\w,]+)\]", text):
        assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"])


def test_what_the_wheel_is_built_from_is_copied_into_the_image():
    kept = (ROOT / "containers" / "Containerfile.dockerignore").read_text(encoding="utf-8")
    configured = re.findall(r'^(?:path|license-files) = \[?"([^"]+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    for name in ("pyproject.toml", "README.md", "src", *configured):
        assert f"!{name}\n" in kept, name


def test_issue_forms_ask_for_something():
    for name in ("bug", "idea"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
        assert form["name"] and form["description"]
        assert any(part.get("validations", {}).get("required") for part in form["body"])
