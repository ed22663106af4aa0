"""The documentation site: it builds without a warning, and answers are within three clicks of its front page."""

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest
from places import ROOT

# Chosen before the site was built: what users of each kind ask first, and a phrase of the answer.
QUESTIONS = {
    "How do I install it?": "pip install",
    "Which layer of my model makes the best embeddings?": "layerwise pick MODEL",
    "Can I use the result without layerwise?": "plain folder for sentence-transformers",
    "How do I make my embedding model faster?": "layerwise shrink MODEL",
    "Can I keep my index?": "you can keep your index: new queries in old documents",
    "What does prompt entropy mean?": "matrix entropy",
    "How do I score the layers on my own labels?": "layerwise eval",
    "How do I run it on many GPUs?": "--engine ray",
    "Does it send anything anywhere, or run foreign code?": "trust_remote_code",
    "How do I add a metric of my own?": "metrics=[",
}
CLICKS = 3


class Links(HTMLParser):
    """The links and the text of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.words = [], []

    def handle_starttag(self, tag, attributes):
        if tag == "a" and (link := dict(attributes).get("href")):
            self.links.append(link)

    def handle_data(self, data):
        self.words.append(data)


class Prose(HTMLParser):
    """The text of every paragraph and list item of a page, without that of the navigation and of code."""

    def __init__(self):
        super().__init__()
        self.texts, self.inside = [], []

    def handle_starttag(self, tag, attributes):
        if tag in ("p", "li", "nav", "pre"):
            self.inside.append(tag)
            self.texts.append("")

    def handle_endtag(self, tag):
        if tag in self.inside:
            self.inside.pop()
            self.texts.append("")

    def handle_data(self, data):
        if self.inside and not {"nav", "pre"} & set(self.inside):
            self.texts[-1] += data


def lost_items(html):
    """The lines of paragraphs and list items that were written as items of a list, and are not shown as such."""
    prose = Prose()
    prose.feed(html)
    return [
        line for text in prose.texts for line in text.strip().splitlines() if re.match(r" *([-*+]|\d+\.) +\S", line)
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    out = tmp_path_factory.mktemp("site") / "built"
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "site.py", out], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "WARNING" not in made.stderr
    return out


def read(page):
    parser = Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def test_answers_are_within_three_clicks(site):
    """A click follows a link in the text or in the navigation of a page."""
    distance, queue = {site / "index.html": 0}, [site / "index.html"]
    answered = {}
    for page in queue:
        parsed = read(page)
        text = re.sub(r"\s+", " ", "".join(parsed.words)).lower()
        for question, phrase in QUESTIONS.items():
            if phrase.lower() in text:
                answered.setdefault(question, distance[page])
        for link in parsed.links:
            target = (page.parent / unquote(urldefrag(link).url)).resolve()
            if "://" not in link and target.suffix == ".html" and target.is_file() and target not in distance:
                distance[target] = distance[page] + 1
                queue.append(target)
    assert answered.keys() == QUESTIONS.keys()
    assert max(answered.values()) <= CLICKS, answered


def test_every_page_is_reached_and_no_link_is_broken(site):
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 40
    for page in pages:
        for link in read(page).links:
            path = unquote(urldefrag(link).url)
            if path and "://" not in path and not path.startswith("mailto:"):
                assert (page.parent / path).resolve().exists(), f"{page.relative_to(site)} links to {link}"


def test_every_list_is_shown_as_a_list(site):
    """Unlike GitHub, the site shows a list without an empty line before it as part of the paragraph above."""
    lost = {str(page.relative_to(site)): lost_items(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert {page: lines for page, lines in lost.items() if lines} == {}


def test_a_list_inside_a_paragraph_is_noticed():
    assert lost_items("<nav><li>\n1. a\n</li></nav><p>Two:\n- <b>b</b>\n1. c</p><pre>- d</pre>") == ["- b", "1. c"]
    assert lost_items("<ul>\n<li>\n<p>e - f,\n2 g, 1.5 h</p>\n</li>\n<li>i</li>\n</ul>") == []


def test_no_two_entries_of_the_navigation_have_one_name(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    (navigation,) = re.findall(r'<nav class="md-nav md-nav--primary.*?<div class="md-content"', page, re.DOTALL)
    titles = [re.sub(r"<.*?>", "", title).strip() for title in re.findall(r"<a .*?</a>", navigation, re.DOTALL)]
    assert len(titles) > 25 and sorted(titles) == sorted(set(titles))


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_cut_off(site, chromium, width):
    """On a laptop, the pages that are read first need no scrolling sideways; on a phone, only code and tables do."""
    page = chromium.new_page(viewport={"width": width, "height": 900})
    inside = "article pre > code, article .md-typeset__scrollwrap" if width > 1000 else "html"
    for name in ("index", "docs/quickstart", "docs/pick", "docs/shrink", "docs/architecture"):
        page.goto((site / f"{name}.html").as_uri())
        cut = page.evaluate(
            """(inside) => [...document.querySelectorAll(inside)]
                .filter((box) => box.scrollWidth > box.clientWidth + 1)
                .map((box) => box.textContent.trim().slice(0, 60))""",
            inside,
        )
        assert cut == [], name
    page.close()


def test_references_cover_every_command_and_name(site):
    import layerwise
    from layerwise.verbs import commands as verbs

    commands, python = ("".join(read(site / "reference" / f"{name}.html").words) for name in ("commands", "python"))
    assert all(f"usage: layerwise {verb}" in commands for verb in verbs())
    functions = [name for name in layerwise.__all__ if name.islower() and callable(getattr(layerwise, name))]
    assert len(functions) > 20 and all(f"layerwise.{name}" in python for name in functions)
    assert ">>>" in python


def test_nothing_is_loaded_from_elsewhere(site):
    """A page that is opened offline shows everything, and nobody learns that it was opened."""
    for page in (site / "index.html", site / "reference" / "python.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(
            r'<(?:script|img|iframe)[^>]*src="https?://|<link[^>]*stylesheet[^>]*href="https?://', text
        )


def test_search_works_in_a_page_from_a_disk(site, chromium):
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.type("input.md-search__input", "anisotropy")
    page.wait_for_selector(".md-search-result__link", timeout=20_000)
    assert "Metrics" in [link.inner_text() for link in page.query_selector_all(".md-search-result__link h1")]
    page.close()


def test_a_folder_that_is_no_site_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "site.py", tmp_path], capture_output=True, text=True, timeout=100
    )
    assert made.returncode and "no site" in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_page_of_questions_quotes_real_messages():
    page = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    quoted = re.findall(r'^\| "([^"]+)"', page, re.MULTILINE)
    source = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    source = re.sub(r'"\s*f?"', "", source)  # messages that go on in the next line
    assert len(quoted) >= 7
    assert [words for words in quoted if words not in source] == []


def test_figures_of_notebooks_can_be_read():
    notebooks = [path.read_text(encoding="utf-8") for path in (ROOT / "examples" / "notebooks").glob("*.ipynb")]
    figures = [base64.b64decode(found) for text in notebooks for found in re.findall(r'"image/png": "([^"]+)"', text)]
    assert figures and all(int.from_bytes(figure[16:20], "big") >= 500 for figure in figures)  # pixels wide
