"""Commands, snippets and outputs of the documentation: what is run by a test, and what is not, with the reason.

    python tests/snippets.py

prints the counts. A block of code is run by tests/pages/test_snippets.py, unless a comment stands above it:

    <!-- run by tests/test_x.py -->           another test runs it
    <!-- not run here: reason -->             nothing runs it
    <!-- not run here (words): reason -->     nothing runs its commands that contain these words

An output right below a block goes with it. A block without a language is a drawing or a list, and has no commands.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from places import ROOT

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
KINDS = {"bash": "commands", "console": "commands", "python": "snippets", "text": "outputs"}
OTHER_KINDS = {"yaml": "snippets", "json": "snippets", "sql": "snippets", "js": "snippets"}
BLOCK = re.compile(
    r"(?P<marks>(?:^ *<!-- (?:run by|not run here).*? -->\n)*)^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"<!-- (run by|not run here)(?: \((.*?)\))?:? ?(.*?) -->")


@dataclass(frozen=True)
class Item:
    """One command, Python block or output, and what the page says about running it."""

    page: str
    kind: str
    text: str
    language: str = ""
    elsewhere: str = ""  # the test that runs it
    reason: str = ""  # why nothing runs it

    @property
    def is_run_here(self) -> bool:
        return not self.elsewhere and not self.reason


def items_of(page: str, text: str) -> Iterator[Item]:
    """The commands (one per line, continued lines joined), snippets and outputs of a page, in order."""
    end, marks = 0, []
    for block in BLOCK.finditer(text):
        kind = (KINDS | OTHER_KINDS).get(block["language"])
        if kind is None:
            continue
        code = re.sub(rf"^{block['indent']}", "", block["code"], flags=re.MULTILINE)
        found = command_lines(code) if kind == "commands" else [code]
        if block.start() != end + 1 or block["language"] != "text":  # an output right below a block belongs to it
            marks = MARK.findall(block["marks"])
        end = block.end()
        yield from (marked(Item(page, kind, one, block["language"]), marks) for one in found)


def command_lines(code: str) -> list[str]:
    lines = re.sub(r"\\\n\s*", "", code).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def marked(item: Item, marks: list[tuple[str, str, str]]) -> Item:
    for what, words, rest in marks:
        if words in item.text:  # no words: all of them
            item = replace(item, elsewhere=rest) if what == "run by" else replace(item, reason=rest)
    return item


def all_items() -> list[Item]:
    return [item for page in PAGES for item in items_of(page, (ROOT / page).read_text(encoding="utf-8"))]


def counts(items: list[Item]) -> dict[str, tuple[int, int]]:
    """For each kind: how many are run by a test, and how many there are."""
    total = Counter(item.kind for item in items)
    run = Counter(item.kind for item in items if not item.reason)
    return {kind: (run[kind], total[kind]) for kind in ("commands", "snippets", "outputs")}


if __name__ == "__main__":
    everything = all_items()
    for kind, (run, total) in counts(everything).items():
        print(f"{kind}: {run} of {total} are run by a test")
    for reason, number in Counter(item.reason for item in everything if item.reason).most_common():
        print(f"{number:4d} not run here: {reason}")
