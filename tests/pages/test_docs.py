"""Every page: snippets run or can be called as written, commands exist, links lead somewhere."""

import ast
import contextlib
import inspect
import io
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from places import ROOT

import layerwise
from layerwise import verbs
from layerwise.cli.parser import build_parser, parser_of

PAGES = sorted(
    path
    for folder in (".", "docs", "studies/*", "benchmarks")
    for path in ROOT.glob(f"{folder}/*.md")
    if not path.name.startswith(".")
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXECUTED = ("studies/paper/README.md", "docs/metrics.md")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXECUTED)
def test_every_snippet_prints_what_the_page_says(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # snippets read the committed tables
    blocks = BLOCK.findall(read(name))
    names: dict[str, object] = {}
    default = torch.get_default_dtype()
    try:
        for code, expected in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)  # noqa: S102
            assert printed.getvalue() == expected, code
    finally:
        torch.set_default_dtype(default)
    assert blocks


def public_function(called: ast.expr) -> object:
    """The public object behind `layerwise.name`; None for anything else."""
    if not (
        isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "layerwise"
    ):
        return None
    return getattr(layerwise, called.attr)  # an unknown name is an AttributeError


def check_calls(code: str) -> None:
    """Raises where the code is no Python, or calls a function of layerwise that does not exist or not so."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and (function := public_function(node.func)) is not None:
            if any(isinstance(given, ast.Starred) for given in node.args):
                continue
            given = {word.arg: None for word in node.keywords if word.arg}
            inspect.signature(function).bind(*node.args, **given)


@pytest.mark.parametrize("name", NAMES)
def test_every_python_snippet_calls_what_the_library_has(name):
    for code, _ in BLOCK.findall(read(name)):
        check_calls(code)


@pytest.mark.parametrize("code", ["layerwise.scann('m')", "layerwise.scan('m', metric='x')", "layerwise.scan('m'"])
def test_a_snippet_with_a_wrong_name_is_noticed(code):
    with pytest.raises((AttributeError, TypeError, SyntaxError)):
        check_calls(code)


def commands(text: str) -> Iterator[str]:
    """The layerwise commands of a page's blocks and of its inline code, each on one line."""
    blocks = [code for language, code in FENCE.findall(text) if language in ("", "bash", "console")]
    blocks += re.findall(r"(?:^ {4}.*\n)+", FENCE.sub("", text), re.MULTILINE)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        if found := re.match(r"\s*(?:\$ )?(?:ray job submit .*? -- )?(layerwise [a-z].*)", line):
            yield found[1]
    yield from re.findall(r"(?<!`)`(layerwise [a-z][^`]*)`", FENCE.sub("", text))


def verb_parsers() -> dict[str, ArgumentParser]:
    parser = build_parser(verbs.commands())
    return {verb: parser_of(parser, verb) for verb in [*verbs.commands(), "lab"]}


def check_command(command: str) -> None:
    """Raises where the verb or an option of a command does not exist; a whole command is also parsed."""
    words = shlex.split(command.replace("[", "").replace("]", ""), comments=True)
    if not words[1:]:
        return
    parsers = verb_parsers()
    verb = " ".join(words[1:3]) if words[1] == "lab" and words[2:] else words[1]
    assert verb in parsers, f"no verb {verb}: {command}"
    known = parsers[verb]._option_string_actions
    for word in words[2:]:
        assert not word.startswith("-") or word.split("=")[0] in known, f"no option {word}: {command}"


def parse_command(command: str) -> None:
    words = shlex.split(command, comments=True)
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        try:
            build_parser(verbs.commands()).parse_args(words[1:])
        except SystemExit:
            pytest.fail(f"{command}: {printed.getvalue()}")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_a_verb_and_options_that_exist(name):
    for command in commands(read(name)):
        check_command(command)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("docs", "README"))])
def test_every_command_of_a_block_can_be_parsed(name):
    text = "\n".join(f"```{language}\n{code}```" for language, code in FENCE.findall(read(name)))
    for command in commands(text):
        if "..." not in command:
            parse_command(command)


@pytest.mark.parametrize("command", ["layerwise scann MODEL", "layerwise scan MODEL --metric x"])
def test_a_command_with_a_wrong_name_is_noticed(command):
    with pytest.raises(AssertionError):
        check_command(command)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?)\s*$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


def broken_links(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead to no file or to no heading."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists():
            broken.append(target)
        elif anchor and anchor not in anchors(place.read_text(encoding="utf-8")):
            broken.append(target)
    return broken


@pytest.mark.parametrize("name", NAMES)
def test_every_relative_link_leads_to_a_file_and_a_heading(name):
    assert not broken_links(ROOT / name, read(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_list_within_a_list_is_indented_by_four(name):
    """The site shows an item that is indented less as one of the outer list."""
    assert re.findall(r"^ {1,3}(?:[-*+]|\d+\.) .*", FENCE.sub("", read(name)), re.MULTILINE) == []


def test_a_broken_link_or_anchor_is_noticed(tmp_path):
    text = "# One `head`, *two*\n[a](page.md) [b](#one-head-two) [c](none.md) [d](page.md#no) [e](https://x.org/y)"
    page = tmp_path / "page.md"
    page.write_text(text)
    assert broken_links(page, text) == ["none.md", "page.md#no"]
