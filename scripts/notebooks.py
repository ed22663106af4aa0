"""Runs the notebooks of examples/notebooks, and turns them into pages.

    python scripts/notebooks.py MODELS

runs each with the model that it names, from the folder MODELS, and stores what its cells show. Cells are run in order
in one namespace, in a temporary folder, as Jupyter would. It needs no Jupyter.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
MODEL = re.compile(r'^MODEL = "(?:[^"/]+/)?([^"/]+)"', re.MULTILINE)  # the last part of a hub id
DPI = 160  # as wide as a page, and a few kB: notebooks are kept in git


def run(notebook: dict[str, Any], model: str) -> None:
    """Runs all cells with another model, and stores their outputs in place; raises what a cell raises."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code_cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code_cells, start=1):
        source = MODEL.sub(lambda _: f"MODEL = {model!r}", "".join(cell["source"]))
        cell["outputs"], cell["execution_count"] = list(shown_by(source, names, number)), number


def shown_by(source: str, names: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """What a cell prints, its last expression, and its figures."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None  # noqa: S307
    if printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        yield {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
    for picture in new_figures():
        yield {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture}}


def new_figures() -> Iterator[str]:
    """The open figures of matplotlib as PNG in base64; they are closed."""
    if (plt := sys.modules.get("matplotlib.pyplot")) is None:
        return
    from PIL import Image

    for number in plt.get_fignums():
        drawn, small = io.BytesIO(), io.BytesIO()
        plt.figure(number).savefig(drawn, format="png", dpi=DPI, bbox_inches="tight")
        Image.open(drawn).convert("RGB").quantize(32).save(small, format="png", optimize=True)
        plt.close(number)
        yield base64.b64encode(small.getvalue()).decode("ascii")


def as_page(notebook: dict[str, Any], name: str) -> str:
    """A notebook in Markdown: its code, and below it what it shows."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text")})
            if "image/png" in data:
                parts.append(f"![The figure that this cell draws](data:image/png;base64,{data['image/png']})")
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    title, rest = parts[0].split("\n", 1)
    return "\n\n".join([title, f"[Download this notebook]({name})", rest.strip(), *parts[1:]]) + "\n"


def main() -> None:
    models = Path(sys.argv[1]).resolve()
    folders = {path.name.lower(): path for path in models.iterdir()}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        (name,) = (found for cell in notebook["cells"] for found in MODEL.findall("".join(cell["source"])))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.symlink(folders[name.lower()], name)
            run(notebook, name)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"ran {path.name} with {name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
