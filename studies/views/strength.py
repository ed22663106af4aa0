"""How much views of a strength really change a text: letters changed, and words still eligible after the split.

python studies/views/strength.py TEXTS.parquet
"""

import argparse
from random import Random

import pandas as pd

from layerwise.inputs.perturbations.text import MIN_WORD_LENGTH, WORD, make_view, split_words
from layerwise.inputs.text import wikitext_paragraph


def distance(a: str, b: str) -> int:
    """Levenshtein's edit distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row, last = [i], row
        for j, y in enumerate(b, start=1):
            row.append(min(row[-1] + 1, last[j] + 1, last[j - 1] + (x != y)))
    return row[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts")
    parser.add_argument("--count", type=int, default=200)
    args = parser.parse_args()
    found = [t for t in pd.read_parquet(args.texts).text if wikitext_paragraph(t) and len(t.split()) >= 30]
    print("first words, strength: share of letters changed; eligible words before and after the split")
    for words in (16, 48):
        texts = [" ".join(t.split()[:words]) for t in found[: args.count]]
        for p in (0.1, 0.2, 0.3, 0.4, 0.5):
            pairs = [(t, make_view(t, 0, str(i), 1, p)) for i, t in enumerate(texts)]
            changed = sum(distance(a, b) for a, b in pairs) / sum(len(a) for a, _ in pairs)
            eligible = [
                sum(len(w) >= MIN_WORD_LENGTH for t in many for w in WORD.findall(t)) / len(texts)
                for many in (texts, [split_words(t, Random(i), p) for i, t in enumerate(texts)])
            ]
            print(f"{words} words, {p}: {changed:.3f}; {eligible[0]:.1f}, {eligible[1]:.1f}")


if __name__ == "__main__":
    main()
