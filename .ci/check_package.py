"""What was built is complete, and works where only its own requirements are installed.

check_package.py files DIST        the files and the metadata of sdist and wheel
check_package.py works             the installed package
check_package.py version DIST TAG  they have the version of a tag: v0.1.0
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parent.parent


def check_files(dist: Path) -> None:
    """The sdist holds every file of the repository, the wheel every file of the package."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = set(listed.splitlines())
    [sdist], [wheel] = dist.glob("*.tar.gz"), dist.glob("*.whl")
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    refuse(tracked - in_sdist, sdist)
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    refuse(package - set(zipfile.ZipFile(wheel).namelist()), wheel)
    check_metadata(wheel)
    print(f"{sdist.name} holds {len(tracked)} files of the repository, {wheel.name} {len(package)} of the package")


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode("utf-8"))


def check_metadata(wheel: Path) -> None:
    """What PyPI shows is complete, and its links lead to the repository."""
    fields = metadata_of(wheel)
    needed = ["Summary", "License-Expression", "Keywords", "Classifier", "Project-URL", "Requires-Python"]
    if absent := [name for name in needed if not fields[name]]:
        sys.exit(f"the metadata of {wheel.name} lack {', '.join(absent)}")
    page, address = fields.get_payload(), os.environ["LAYERWISE_REPOSITORY"]
    if relative := re.findall(r"\]\((?![a-z]+:|#)[^)\s]+\)", page):
        sys.exit(f"the description of {wheel.name} has relative links, which are broken on PyPI: {relative}")
    named = f"Homepage, {address}" in fields.get_all("Project-URL", [])
    if not named or f"]({address}/blob/HEAD/docs/quickstart.md)" not in page:
        sys.exit(f"{wheel.name} does not name its repository, {address}")


def check_version(dist: Path, tag: str) -> None:
    """A release has the version of its tag; a wrong one could never be replaced on PyPI."""
    names = [path.name for path in dist.iterdir()]
    version = tag.removeprefix("v")
    expected = {f"layerwise-{version}.tar.gz", f"layerwise-{version}-py3-none-any.whl"}
    if not tag.startswith("v") or set(names) != expected:
        sys.exit(f"{dist} holds {', '.join(sorted(names))}; a release {tag} is {' and '.join(sorted(expected))}")
    print(f"{dist} holds version {version}")


def refuse(missing: set[str], built: Path) -> None:
    if missing:
        sys.exit(f"{built.name} lacks {', '.join(sorted(missing))}. See [tool.hatch.build] in pyproject.toml.")


def check_works() -> None:
    """A scan, a pick and a report of a tiny random model: they read every file that is not code."""
    import layerwise

    if ROOT in Path(layerwise.__file__).resolve().parents:
        sys.exit(f"layerwise was imported from {layerwise.__file__}, not from the environment")
    sys.path.insert(0, str(ROOT / "tests"))
    from families import make_reader
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        for part in make_reader("bert"):  # a model, and a tokenizer that knows the bundled sentences
            part.save_pretrained(f"{folder}/model")
        run("--version", folder)
        run("scan --metrics list", folder)
        run("scan model --limit 20 --max-length 64 --out run", folder)
        run("pick run", folder)
        run("report run --html page.html", folder)
        if (Path(folder) / "page.html").stat().st_size < 20_000:
            sys.exit("the report has no scripts or styles")
    print(f"layerwise {layerwise.__version__} works as installed in {Path(layerwise.__file__).parent}")


def run(words: str, folder: str) -> None:
    command = [Path(sys.executable).with_name("layerwise"), *words.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode or not (done.stdout + done.stderr).strip():
        sys.exit(f"`layerwise {words}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "files":
        check_files(Path(words[0]))
    elif verb == "version":
        check_version(Path(words[0]), words[1])
    else:
        check_works()
