"""Writes the tables of README.md from the CSV files: `python table.py`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
NAMES = {"smollm2-135m": "SmolLM2-135M", "gemma3-270m": "Gemma3-270M"}


def lines(head: str, rows: Iterator[list[object]]) -> str:
    columns = head.split(", ")
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in cells)


def case_of(row: pd.Series) -> str:
    mapped = "" if row.get("transform", "none") == "none" else f", {row['transform']}"
    if row.model.endswith(" shrunk"):
        return f"{row.model.removesuffix(' shrunk')}, shrunk to 3 blocks and a map"
    return f"{NAMES.get(row.model, row.model)}, layer {row.layer}{mapped}"


def differences() -> str:
    """Largest differences as parts of the largest entry; cosines; sizes."""
    table = pd.read_csv(HERE / "differences.csv")
    order = {case: i for i, case in enumerate(dict.fromkeys(table.model + table["transform"]))}
    table = table.assign(place=(table.model + table["transform"]).map(order)).sort_values("place", kind="stable")

    def rows() -> Iterator[list[object]]:
        for _, row in table.iterrows():
            found = [row[name] / row.largest_entry for name in ("padded", "alone", "uncut")]
            parts = ["not run" if pd.isna(part) else f"{part:.1e}" for part in found]
            yield [case_of(row), row.runtime, row.precision, *parts, f"{row.min_cosine:.6f}", f"{row.megabytes:.1f}"]

    return lines("model, runtime, precision, padded, alone, not cut, lowest cosine, MB", rows())


def quantised() -> str:
    table = pd.read_csv(HERE / "quantised.csv")

    def rows() -> Iterator[list[object]]:
        for _, row in table.iterrows():
            change = f"{row.change:+.2f} ({row.low:+.2f} to {row.high:+.2f})"
            precision = f"{row.runtime} {row.precision}"
            yield [case_of(row), row.task, precision, f"{row.float32:.2f}", change, f"{row.mean_cosine:.4f}"]

    return lines("model, task, precision, float32, change, mean cosine", rows())


def latency() -> str:
    table = pd.read_csv(HERE / "latency.csv")

    def rows() -> Iterator[list[object]]:
        for _, row in table.iterrows():
            times = [f"{row[c]:.2f} ({row[f'{c}_low']:.2f} to {row[f'{c}_high']:.2f})" for c in ("cpu", "wall")]
            name = case_of(row) if row.which == "cut" else f"{NAMES.get(row.model, row.model)}, whole"
            yield [name, f"{row.runtime} {row.precision}", *times, f"{row.megabytes:.1f}", f"{row['size']:.2f}"]

    return lines("model, runtime, times as fast (CPU), times as fast (clock), MB, part of the whole", rows())


def servable() -> str:
    table = pd.read_csv(HERE / "servable.csv")
    others = {"all_dimensions": "the best recipe (not servable)", "last": "the last layer, mean (servable)"}

    def rows() -> Iterator[list[object]]:
        for _, row in table.iterrows():
            found = f"{row.difference:+.1f} ({row.low:+.1f} to {row.high:+.1f})"
            yield [NAMES[row.model], f"{row.servable:.1f}", others[row.against], f"{row.other:.1f}", found]

    return lines("model, servable recipe, against, its score, difference", rows())


def certificates() -> str:
    table = pd.read_csv(HERE / "certificates.csv")

    def rows() -> Iterator[list[object]]:
        for _, row in table.iterrows():
            yield [
                case_of(row),
                row.norm,
                row.texts,
                f"{row.float16:.6f}",
                f"{row.q8_0:.6f}",
                f"{row.other_tokens} of 12",
            ]

    return lines("model, norm, texts, float16, q8_0, odd texts split otherwise", rows())


def vllm() -> str:
    table = pd.read_csv(HERE / "vllm.csv", keep_default_na=False, dtype=str)

    def rows() -> Iterator[list[object]]:
        for _, row in table.iterrows():
            yield [row.export, *(row[way] or "does not start" for way in ("python", "server"))]

    return lines("export, its Python interface, its HTTP server", rows())


TABLES = {
    "certificates": certificates,
    "differences": differences,
    "quantised": quantised,
    "latency": latency,
    "servable": servable,
    "vllm": vllm,
}


def block(name: str) -> str:
    return f"<!-- {name}: written by table.py -->\n{TABLES[name]()}\n<!-- end of {name} -->"


def main() -> None:
    page = HERE / "README.md"
    text = page.read_text(encoding="utf-8")
    for name in TABLES:
        if (HERE / f"{name}.csv").exists():
            pattern = f"<!-- {name}: written.*?<!-- end of {name} -->"
            text = re.sub(pattern, lambda match, name=name: block(name), text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
