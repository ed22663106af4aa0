"""Ceilings: whoever adds a page or a link takes another away, or raises the number here openly. Those of verbs and
options are in tests/cli/test_terminal.py."""

import re

from places import ROOT

MOST_WORDS, MOST_LINKS = 25_000, 30


def test_readme_and_docs_together_have_few_words():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    counts = {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert sum(counts.values()) <= MOST_WORDS, sorted(counts.items(), key=lambda item: -item[1])[:5]


def test_the_sidebar_has_few_links():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    links = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    assert 20 < len(links) <= MOST_LINKS and len(set(links)) == len(links)


def test_the_list_of_studies_is_complete():
    page = (ROOT / "studies" / "README.md").read_text(encoding="utf-8")
    titles = {
        path.parent.name: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for path in ROOT.glob("studies/*/README.md")
    }
    assert (
        dict((name, title) for title, name in re.findall(r"^- \[(.*)\]\((\w+)/README\.md\)$", page, re.MULTILINE))
        == titles
    )
