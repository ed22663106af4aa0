"""How tokenizers read pick's bundled sentences: a row per tokenizer and language, and whether pick answers for it.

python studies/recipes/tokenizer_fit.py tokenizer_fit.csv MODEL ...
"""

import sys
from pathlib import Path

import pandas as pd
from transformers import AutoTokenizer

from layerwise.verbs.pick.fitness import tokenizer_fit
from layerwise.verbs.pick.probes import LANGUAGES, proxy_texts


def main(out: str, *models: str) -> None:
    rows = []
    for model in models:
        tokenizer = AutoTokenizer.from_pretrained(model)
        for language in LANGUAGES:
            fit = tokenizer_fit(tokenizer, proxy_texts(language))
            rows.append(
                {
                    "tokenizer": Path(model).name, "vocabulary": len(tokenizer), "language": language,
                    "unknown %": round(100 * fit.unknown, 1), "byte fallback %": round(100 * fit.byte_fallback, 1),
                    "alike %": round(100 * fit.alike, 1), "tokens per letter": round(fit.tokens_per_letter, 2),
                    "refused": "yes" if fit.problems else "no",
                }
            )  # fmt: skip
    table = pd.DataFrame(rows)
    table.to_csv(out, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
