"""Draws overhead.csv: the cost of a scan by the length of prompts, and what it is made of.

python -m benchmarks.overhead_picture OUT.png
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

NAMES = {
    "neox-410m": "GPT-NeoX, width 1024", "neox-70m": "GPT-NeoX, width 512", "smollm2-135m": "SmolLM2-135M, width 576",
    "all-minilm-l6-v2": "all-MiniLM-L6-v2, width 384",
}  # fmt: skip
PARTS = ["gram", "eigenvalues", "curvature", "pooling", "accumulators", "other readings"]
LENGTH = 256  # of the second picture
COLORS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"]


def draw(table: pd.DataFrame, out: Path) -> None:
    scans = table[(table.run == "lengths") & (table.way == "scan") & (table.dtype == "float32")]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for color, (name, label) in zip(COLORS, NAMES.items(), strict=False):
        rows = scans[scans.model == name].sort_values("tokens")
        errors = [rows.cpu - rows.cpu_low, rows.cpu_high - rows.cpu]
        left.errorbar(rows.tokens, rows.cpu, yerr=errors, marker="o", capsize=3, color=color, label=label)
    left.set(xscale="log", xlabel="tokens per prompt", ylabel="CPU time, forward pass alone = 1", ylim=(0.9, 1.8))
    left.set_xticks(sorted(scans.tokens.unique()), [str(n) for n in sorted(scans.tokens.unique())])
    left.minorticks_off()
    left.set_title("A scan with all metrics without views, every layer")
    left.legend(frameon=False)
    at = scans[scans.tokens == LENGTH].set_index("model").reindex([name for name in NAMES if name in set(scans.model)])
    start = pd.Series(0.0, index=at.index)
    labels = [NAMES[name].replace(", ", "\n") for name in at.index]
    for color, part in zip(COLORS, PARTS, strict=True):
        right.barh(labels, at[part], left=start, color=color, label=part)
        start = start + at[part]
    right.invert_yaxis()
    right.set(xlabel="share of the forward pass")
    right.set_title(f"What it is made of, {LENGTH} tokens")
    right.legend(
        frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.13), ncols=6, columnspacing=0.8, handlelength=1
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=90)


if __name__ == "__main__":
    draw(pd.read_csv(Path(__file__).with_name("overhead.csv")), Path(sys.argv[1]))
