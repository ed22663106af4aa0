"""The first screen: what `layerwise` and `layerwise --help` print. It fits a terminal of 80 columns and 24 lines."""

# What most people do, in this order.
STEPS = {
    "measure": "layerwise scan MODEL --data texts.txt --out run",
    "choose": "layerwise pick MODEL --save run",
    "deploy": "layerwise export MODEL --layer run:auto --out small",
    "look": "layerwise report run --html report.html",
}
OTHERS = {
    "Other verbs; `layerwise VERB --help` lists the options of each": {
        "eval": "score every layer on MTEB tasks, or on labelled data of your own",
        "probe": "train classifiers on every layer: where can a label be read?",
        "compare": "what differs between runs: fine-tunes, sizes, checkpoints",
        "embed": "vectors of any layer, one per text, as Parquet",
        "shrink": "fewer blocks of an embedding model, in the same vector space",
        "campaign": "many models, data sets and settings from one file",
        "doctor": "check that layerwise reads a model correctly",
        "lab": "for people who study layers: audit, correlate, stress, views, data, ...",
    },
}


def first_screen() -> str:
    """The four steps with a command each, and the other verbs with one line each."""
    lines = ["layerwise looks inside networks layer by layer. MODEL is a hub id or a folder."]
    lines += [f"  {what:11}{command}" for what, command in STEPS.items()]
    for title, verbs in OTHERS.items():
        lines += [f"{title}:", *(f"  {verb:11}{line}" for verb, line in verbs.items())]
    return "\n".join(lines)
