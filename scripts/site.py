"""Builds the documentation site from the pages of this repository; any warning is a failure.

    pip install '.[docs]'
    python scripts/site.py OUT

Pages keep their places, so that links work on the site as they do in the repository: README.md is the front page, and
whatever a page links to is copied. The references of commands and of Python are made from parsers and docstrings.
Notebooks become pages.
"""

import argparse
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from notebooks import NOTEBOOKS, as_page

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs", "studies",
         "benchmarks", "examples")  # fmt: skip
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
# Browsers start no worker for a page from a disk, so the search runs in a hidden frame there.
WORKER_IN_FRAME = """if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        document.body.append(frame);
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = () => resolve(inside);
        frame.contentDocument.head.append(script);
      });
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
"""
# The theme makes tables and code wider than pages, and hides the scroll bars of those that are still too wide.
STYLE = """.md-typeset table:not([class]) th { min-width: 0; }
.md-typeset pre > code { font-size: 0.78em; }
.md-typeset pre > code, .md-typeset__scrollwrap {
  overflow-x: auto; scrollbar-color: var(--md-default-fg-color--lighter) transparent;
}
"""
# The verbs come first, in the order of the first screen; then the packages that their arguments and results are of.
PACKAGES = {
    "inputs": "Texts, audio, images and labels", "core.recipe": "Models, recipes and runs",
    "metrics": "Metrics and readings of your own", "core.errors": "Errors",
}  # fmt: skip


def tracked_pages() -> list[Path]:
    """The Markdown files of the repository that are pages, relative to its root."""
    listed = subprocess.run(["git", "ls-files", *PAGES], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines() or [str(p.relative_to(ROOT)) for place in PAGES for p in files_under(place)]
    return [Path(name) for name in names if name.endswith(".md")]


def files_under(place: str) -> Iterator[Path]:
    """The files of a folder, or the file itself; for a copy of the repository without git."""
    path = ROOT / place
    yield from (p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path] if path.is_file() else []


def gather(target: Path) -> None:
    """Copies the pages and whatever they link to."""
    for page in tracked_pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, _ in LINK.findall(FENCE.sub("", text)):
            copy_linked(page, name, target)
        place = target / ("index.md" if page == Path("README.md") else page)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(with_names_of_site(without_folder_links(page, text)), encoding="utf-8")
    for path in NOTEBOOKS.glob("*.ipynb"):
        place = target / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        text = as_page(json.loads(path.read_text(encoding="utf-8")), path.name)
        place.with_suffix(".md").write_text(with_names_of_site(text), encoding="utf-8")


def copy_linked(page: Path, name: str, target: Path) -> None:
    """A file that a page links to; pages themselves are copied in any case."""
    if "://" in name or name.startswith("mailto:"):
        return
    source = (ROOT / page.parent / name).resolve()
    if source.is_file() and source.is_relative_to(ROOT) and source.suffix != ".md":
        place = target / source.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)


def without_folder_links(page: Path, text: str) -> str:
    """A site has no page for a folder: its name stays, without the link."""

    def shown(link: re.Match[str]) -> str:
        is_folder = (ROOT / page.parent / link[1]).is_dir()
        return link[0].lstrip("!").partition("](")[0].lstrip("[") if is_folder else link[0]

    return LINK.sub(shown, text)


def with_names_of_site(text: str) -> str:
    """Links to the front page and to the pages of notebooks by their names on the site."""
    text = re.sub(r"\]\(((?:\.\./)*)README\.md(#[^)]*)?\)", r"](\1index.md\2)", text)
    return re.sub(r"(?<!Download this notebook)\]\(([^)\s]+)\.ipynb\)", r"](\1.md)", text)


def commands_page() -> str:
    """The help of every command."""
    from layerwise.cli.parser import build_parser
    from layerwise.verbs import commands

    parser = build_parser(commands())
    parts = ["# Commands", "What `layerwise COMMAND --help-all` prints."]
    for name in commands():
        parts += [f"## {name}", f"```text\n{help_of(parser, name)}\n```"]
    return "\n\n".join(parts) + "\n"


def help_of(parser: Any, verb: str) -> str:
    """The help of a command, with all options."""
    from layerwise.cli.parser import VerbParser, parser_of

    found = parser_of(parser, verb)
    assert isinstance(found, VerbParser)
    return found.format_whole_help().rstrip()


def python_page() -> str:
    """Every public name, in groups, from its docstring."""
    import layerwise
    from layerwise.cli.parser import DOORS
    from layerwise.verbs import commands

    titles = {
        f"verbs.{verb}.": DOORS[command.DOOR].capitalize() for verb, command in commands().items() if " " not in verb
    }
    titles |= {f"{package}.": title for package, title in PACKAGES.items()}
    groups: dict[str, list[str]] = {title: [] for title in titles.values()}
    for name in sorted(layerwise.__all__, key=str.lower):
        if name == "__version__":
            continue
        found = getattr(layerwise, name)
        module = str(getattr(found, "__module__", ""))
        if (
            not getattr(found, "__doc__", None)
            or not hasattr(found, "__qualname__")
            or not module.startswith("layerwise")
        ):
            continue
        place = module.removeprefix("layerwise.") + "."
        group = next((title for start, title in titles.items() if place.startswith(start)), PACKAGES["core.recipe"])
        groups[group].append(f"### layerwise.{name}\n\n::: {module}.{found.__qualname__}")
    groups["layerwise.functional"] = functional_names()
    parts = ["# Python", "Every public name. The examples are run by the tests."]
    for title, names in groups.items():
        parts += [f"## {title}", *names]
    return "\n\n".join(parts) + "\n"


def functional_names() -> list[str]:
    """The metrics as plain functions of tensors."""
    functional = import_module("layerwise.functional")
    found = [(name, getattr(functional, name)) for name in functional.__all__]
    return [f"### functional.{name}\n\n::: {f.__module__}.{f.__qualname__}" for name, f in found]


def build(out: Path) -> None:
    """Gathers the pages, and builds the site; raises SystemExit on a warning."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        gather(pages)
        (pages / "assets").mkdir()
        (pages / "assets" / "site.css").write_text(STYLE, encoding="utf-8")
        (pages / "assets" / "iframe-worker.js").write_text(WORKER_IN_FRAME, encoding="utf-8")
        (pages / "reference").mkdir()
        (pages / "reference" / "commands.md").write_text(commands_page(), encoding="utf-8")
        (pages / "reference" / "python.md").write_text(python_page(), encoding="utf-8")
        config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(out.resolve()))
        try:
            build_site(config)
        except Abort as error:
            sys.exit(str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder that does not exist yet, or a site built before")
    out: Path = parser.parse_args().out
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if out.exists() and any(out.iterdir()) and not (out / "sitemap.xml").is_file():
        sys.exit(f"{out} holds something that is no site; name another folder")
    build(out)
    print(f"open {out / 'index.html'}")


if __name__ == "__main__":
    main()
