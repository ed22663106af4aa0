"""Can a user's unlabelled texts choose the recipe? Three probes on own texts against the bundled sentences.

    python studies/recipes/own_probes.py encode MODEL DATA WIKITEXT OWN_FOLDER [--dtype bfloat16]
    python studies/recipes/own_probes.py choose DATA FOLDER OWN_FOLDER LAYERS.csv OUT.csv MODEL...

Own texts are up to 100 texts of each quick development task, without labels. `halves`: the first half of a text finds
the second; `views`: a text with typing errors finds its original; `lexical`: cosines agree with shared words. Each way
chooses one candidate per type of task among the layers of LAYERS.csv (every layer, plain or in the template prompteol,
with and without remove_top:8), by its mean over the own texts of that type. `sentences` chooses by the bundled
sentences, as `pick` does. FOLDER holds the vectors of `development.py encode --quick`.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from development import Store, encode_list, fitting_texts, quick_tasks, task_texts
from tried_probes import user_text_probes

from layerwise.inputs.source import hash_id
from layerwise.verbs.pick.probes import Probe, proxy_probes
from layerwise.verbs.pick.run import default_rulebook

OWN_TEXTS = 100
FORMS = ("plain:mean:none", "plain:mean:remove_top:8", "prompteol:last:none", "prompteol:last:remove_top:8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    encode = commands.add_parser("encode")
    for name in ("model", "data", "wikitext", "folder"):
        encode.add_argument(name, type=str if name == "model" else Path)
    encode.add_argument("--dtype", default="float32")
    choose = commands.add_parser("choose")
    for name in ("data", "folder", "own", "layers", "out"):
        choose.add_argument(name, type=Path)
    choose.add_argument("models", nargs="+")
    args = parser.parse_args()
    if args.command == "encode":
        texts = [text for probes in own_probes(args.data).values() for probe in probes for text in probe.texts]
        fit = fitting_texts(args.wikitext)
        encode_list(args.model, args.folder, ["plain", "prompteol"], args.dtype, [*fit, *texts], fit)
        return
    rows = [row for model in args.models for row in choices(model, args.data, args.folder, args.own, args.layers)]
    pd.DataFrame(rows).to_csv(args.out, index=False)
    print(pd.DataFrame(rows).groupby(["model", "way"], sort=False).score.mean().round(2))


def own_probes(data: Path) -> dict[str, list[Probe]]:
    """The probes on the own texts of each quick task."""
    found = {}
    for name, task in quick_tasks().items():
        texts = sorted(dict.fromkeys(task_texts(data, {name: task})), key=hash_id)
        long_enough = [text for text in texts if len(text.split()) >= 12]
        found[name] = user_text_probes((long_enough if len(long_enough) >= OWN_TEXTS // 2 else texts)[:OWN_TEXTS])
    return found


def choices(model: str, data: Path, folder: Path, own: Path, layers: Path) -> list[dict[str, Any]]:
    scores = pd.read_csv(layers).query("model == @model")
    scores["form"] = scores.template + ":" + scores.pooling + ":" + scores["map"]
    scores = scores[scores.form.isin(FORMS)].reset_index(drop=True)
    bundled, weights = Store(folder, model), default_rulebook().weights
    mine, tasks, probes = Store(own, model), quick_tasks(), own_probes(data)
    sentences, by_task = np.zeros(len(scores)), {name: {} for name in probes}
    for row in scores.itertuples():
        rows = bundled.mapped(row.template, row.pooling, row.layer, row.map)
        at = bundled.index
        sentences[row.Index] = sum(
            weights[probe.name] * probe.score(rows[[at[text] for text in probe.texts]]).mean()
            for probe in proxy_probes()
            if weights.get(probe.name)
        )
        rows = mine.mapped(row.template, row.pooling, row.layer, row.map)
        for name, of_task in probes.items():
            for probe in of_task:
                values = by_task[name].setdefault(probe.name, np.zeros(len(scores)))
                values[row.Index] = probe.score(rows[[mine.index[text] for text in probe.texts]]).mean()
    last = scores.index[(scores.form == FORMS[0])][-1]
    found = []
    for kind in dict.fromkeys(kind for _, kind in tasks.values()):
        of_kind = [by_task[name] for name, (_, task_kind) in tasks.items() if task_kind == kind]
        ways = {"last layer": last, "best": scores[kind].idxmax(), "sentences": int(sentences.argmax())}
        for way in ("halves", "views", "lexical"):
            values = [task[way] for task in of_kind if way in task]
            if values:
                ways[way] = int(np.mean(values, axis=0).argmax())
        for way, at in ways.items():
            chosen = scores.loc[at]
            found.append({"model": model, "type": kind, "way": way, "form": chosen.form, "layer": chosen.layer,
                          "score": chosen[kind]})  # fmt: skip
    return found


if __name__ == "__main__":
    main()
