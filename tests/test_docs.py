"""The snippets in the docs run, and print what the page says they print."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize("page", ["theory.md"])
def test_every_snippet_prints_what_the_page_says(page, monkeypatch):
    monkeypatch.chdir(DOCS.parent)  # snippets read the committed tables
    blocks = BLOCK.findall((DOCS / page).read_text())
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
    assert len(blocks) > 5
