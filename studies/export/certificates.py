"""Exports real models at chosen layers and scores the folders by plain mteb, beside layerwise's own rows.

    python studies/export/certificates.py MODELS ROOT OUT

MODELS holds the model folders, ROOT is a data root (studies/eval/prepare.py). Writes certificates.csv and scores.csv.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

import layerwise
from layerwise import Recipe
from layerwise.core.quiet import quiet_libraries
from layerwise.verbs.eval.scoring import content_cache, load_task
from layerwise.verbs.eval.tasks import choose_tasks

CASES = [
    ("smollm2-135m", Recipe(1), "compact"),
    ("smollm2-135m", Recipe(9), "compact"),
    ("smollm2-135m", Recipe(12), "compact"),
    ("smollm2-135m", Recipe(12), "portable"),
    ("smollm2-135m", Recipe(9, tokens="no_first", template="\n{text}"), "compact"),
    ("smollm2-135m", Recipe(9, transform="remove_top:3"), "compact"),
    ("gemma3-270m", Recipe(5), "compact"),
    ("gemma3-270m", Recipe(14, tokens="no_first", transform="remove_top:3"), "compact"),
    ("gte-small", Recipe(12), "compact"),
    ("gte-small", Recipe(8), "portable"),
    ("all-minilm-l6-v2", Recipe(3), "compact"),
    ("stories15m", Recipe(3), "compact"),
    ("stories15m", Recipe(4, tokens="no_first", transform="whiten"), "portable"),
]
QUICK, MORE = "BIOSSES", "BIOSSES,TrecQAReranking,AmazonCounterfactualClassification"  # MORE: small models only
SMALL = ("all-minilm-l6-v2", "stories15m")


def plain_scores(folder: Path, tasks: str, root: Path, cache: Path) -> dict[str, float]:
    """What someone without layerwise measures: mteb on SentenceTransformer(folder)."""
    import mteb
    from sentence_transformers import SentenceTransformer

    found = {}
    for choice in choose_tasks(tasks, root):
        with quiet_libraries(), content_cache(choice, cache):
            model = SentenceTransformer(str(folder), device="cpu")
            result = mteb.evaluate(model, load_task(choice), cache=None, show_progress_bar=False, co2_tracker=False)
        found[choice.name] = 100 * float(result.task_results[0].get_score())
    return found


def main(models: Path, root: Path, out: Path) -> None:
    proofs, scores = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, recipe, mode) in enumerate(CASES):
            folder, words = (
                Path(scratch) / str(number),
                f"{recipe.tokens} {recipe.transform} {recipe.template!r}",
            )
            tasks = MORE if name in SMALL else QUICK
            spec, fit = str(models / name), "demo" if recipe.transform != "none" else None
            recipe = Recipe(**{**vars(recipe), "max_length": 256})
            layerwise.export(spec, recipe, folder, mode=mode, fit=fit)
            proof = json.loads((folder / "layerwise.json").read_text())
            before, after = proof["parameters"]["before"], proof["parameters"]["after"]
            row = {
                "model": name,
                "layer": recipe.layer,
                "mode": mode,
                "recipe": words,
                "blocks": proof["route"]["keep"],
            }
            row |= {key: proof[key] for key in ("max_difference", "largest_entry", "bytes")}
            row["relative_latency"] = proof["encoding_times"][1]["ratio"]  # on texts of 20 tokens
            proofs.append(row | {"parameters": after, "of": before})
            table = layerwise.eval(
                spec, tasks, data_root=root, out=Path(scratch) / f"eval-{number}", recipes=recipe, fit=fit
            )
            plain = plain_scores(folder, tasks, root, Path(scratch) / "datasets")
            for measured in table:
                line = {
                    "model": name,
                    "layer": recipe.layer,
                    "mode": mode,
                    "recipe": words,
                    "task": measured.metric,
                }
                scores.append(line | {"eval": measured.value, "plain_mteb": plain[measured.metric]})
            shutil.rmtree(folder)
            pd.DataFrame(proofs).to_csv(out / "certificates.csv", index=False)
            pd.DataFrame(scores).to_csv(out / "scores.csv", index=False)
            print(proofs[-1], scores[-1], flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
