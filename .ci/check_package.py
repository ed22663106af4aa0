"""What was built is complete, and works where only its own requirements are installed: `files DIST` or `works`."""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
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
    print(f"{sdist.name} holds {len(tracked)} files of the repository, {wheel.name} {len(package)} of the package")


def refuse(missing: set[str], built: Path) -> None:
    if missing:
        sys.exit(f"{built.name} lacks {', '.join(sorted(missing))}. See [tool.hatch.build] in pyproject.toml.")


def check_works() -> None:
    """A scan, a pick and a report of a tiny random model: they read every file that is not code."""
    import layerwise

    if ROOT in Path(layerwise.__file__).resolve().parents:
        sys.exit(f"layerwise was imported from {layerwise.__file__}, not from the environment")
    sys.path.insert(0, str(ROOT / "tests"))
    from families import make_model, make_tokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        make_model("bert").save_pretrained(f"{folder}/model")
        make_tokenizer().save_pretrained(f"{folder}/model")
        run("--version", folder)
        run("metrics", folder)
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
    check_files(Path(sys.argv[2])) if sys.argv[1] == "files" else check_works()
