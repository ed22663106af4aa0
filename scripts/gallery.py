"""Scans, picks and exports real models, and writes a report of each and one table for docs/gallery.md.

    python scripts/gallery.py MODELS DATA OUT [NAME...]

    python scripts/gallery.py --table OUT

MODELS has one folder per model, DATA the folders wikitext2 and fsdd. OUT gets gallery.csv and NAME.html. A model whose
page is there is not run again. If `pick` names a layer, it is exported; if it recommends keeping the last layer, the
model is shrunk to half of its blocks; speech models are only scanned. `--table` prints the table of the page.
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

import layerwise

TEXT_MODELS = ("smollm2-135m", "gemma3-270m", "stories15m", "stories260k", "all-minilm-l6-v2", "all-mpnet-base-v2",
               "gte-small", "paraphrase-minilm-l3-v2")  # fmt: skip
SPEECH_MODELS = ("whisper-tiny.en", "whisper-base")
SCANNED, CLIPS, SHRUNK_ON, WORDS = 96, 64, 600, 40


def paragraphs(path: Path, count: int) -> list[str]:
    """The first paragraphs of WikiText-2 that are not headings or fragments, each cut after WORDS words."""
    rows = pd.read_parquet(path)["text"]
    long = [row.split() for row in rows if len(row.split()) >= WORDS and not row.strip().startswith("=")]
    return [" ".join(words[:WORDS]) for words in long[:count]]


def visit(name: str, data: Path) -> dict[str, Any]:
    """One row of the table; writes the page NAME.html into the working folder."""
    run = f"run-{name}"
    if name in SPEECH_MODELS:
        table = layerwise.scan(name, layerwise.audio("clips.parquet", limit=CLIPS), out=run)
        row = facts_of(table)
    else:
        table = layerwise.scan(name, "texts.txt", max_length=64, out=run)
        row = facts_of(table) | chosen(name, run, data)
    layerwise.report(run, html=f"{name}.html")
    return {"model": name, **row}


def facts_of(table: layerwise.LayerTable) -> dict[str, Any]:
    """Size of the model, and at which layers its vectors use most directions and are most alike."""
    frame = table.where(norm="raw").to_pandas()
    curves = {metric: rows.set_index("layer").value for metric, rows in frame.groupby("metric")}
    assert table.model is not None
    return {
        "blocks": table.model.depth,
        "width": table.model.width,
        "inputs": int(frame.n.max()),
        "most_directions": int(curves["participation"].idxmax()),
        "most_alike": int(curves["anisotropy"].idxmax()),
    }


def chosen(name: str, run: str, data: Path) -> dict[str, Any]:
    """What `pick` says, and what comes of it."""
    picked = layerwise.pick(name, max_length=64)
    picked.save(run)
    gain = picked.gain
    found: dict[str, Any] = {
        "keep_last": picked.keep_last,
        "layer": picked.recipe.layer,
        "map": picked.recipe.transform,
    }
    if gain is not None and not picked.keep_last:
        found |= {"gain": round(gain.mean, 1), "gain_low": round(gain.low, 1), "gain_high": round(gain.high, 1)}
    made = f"small-{name}"
    if picked.keep_last:
        texts = paragraphs(data / "wikitext2" / "train.parquet", SHRUNK_ON)
        layerwise.shrink(name, texts, made, choose="even")
    else:
        layerwise.export(name, picked, made)
    record = json.loads(Path(made, "layerwise.json").read_text(encoding="utf-8"))
    return found | {
        "made": "shrink" if picked.keep_last else "export",
        "blocks_kept": record["blocks"]["after"],
        "parameters_before": record["parameters"]["before"],
        "parameters_after": record["parameters"]["after"],
        "time": round(record["encoding_times"][1]["ratio"], 2),  # on texts of 20 tokens
        "neighbours_shared": round(record["agreement"]["neighbour_overlap"], 2),
    }


def table_of(frame: pd.DataFrame) -> str:
    """The table in Markdown, one row per model."""
    head = "| model | `pick` says | made of it (blocks) | time | neighbours kept (%) |"
    lines = [head, "|---" * 5 + "|"]
    for row in frame.itertuples():
        if pd.isna(row.made):
            cells = ["only for texts", "", "", ""]
        else:
            how = f"{row.made} ({row.blocks_kept:.0f} of {row.blocks})"
            cells = [advice(row), how, f"{row.time:.2f}", f"{100 * row.neighbours_shared:.0f}"]
        name = f"[{row.model}](gallery/{row.model}.html)"
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines) + "\n"


def advice(row: Any) -> str:
    """What `pick` recommends, in a few words."""
    if row.keep_last:
        return "last layer"
    return f"layer {row.layer:.0f}, `{row.map}`: {row.gain:+.1f} ({row.gain_low:.1f} to {row.gain_high:.1f})"


def main() -> None:
    if sys.argv[1] == "--table":
        print(table_of(pd.read_csv(Path(sys.argv[2]) / "gallery.csv")), end="")
        return
    models, data, out = (Path(word).resolve() for word in sys.argv[1:4])
    out.mkdir(exist_ok=True)
    for name in sys.argv[4:] or [*TEXT_MODELS, *SPEECH_MODELS]:
        if (out / f"{name}.html").exists():
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # so that pages show short names
            os.symlink(models / name, name)
            os.symlink(data / "fsdd" / "test.parquet", "clips.parquet")
            Path("texts.txt").write_text("\n".join(paragraphs(data / "wikitext2" / "test.parquet", SCANNED)))
            row = visit(name, data)
            page = Path(f"{name}.html").read_bytes()
        table = out / "gallery.csv"
        earlier = pd.read_csv(table) if table.exists() else pd.DataFrame()
        pd.concat([earlier, pd.DataFrame([row])]).to_csv(table, index=False)
        (out / f"{name}.html").write_bytes(page)
        print(row, flush=True)


if __name__ == "__main__":
    main()
