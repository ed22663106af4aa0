"""What an export is, in a few lines: printed by the command line, and used by the model card.

Every line says what is compared with what: an export is faithful to its layer, which says nothing about its quality.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from layerwise.core.display import command_line
from layerwise.core.recipe import Recipe
from layerwise.runs.exported import time_words

EXAMPLE_TASK = "STSBenchmark"  # of mteb: small, and about similarity


def summary_lines(record: Mapping[str, Any], out: str | Path) -> list[str]:
    """The certificate of the export in `out`, in some lines that are still to be wrapped.

    A line that begins with a space, such as a command, must stay on one line.
    """
    recipe = Recipe.from_record(record["recipe"], "the certificate")
    name = Path(record["model"]["name"]).name
    what = model_words(record, recipe, name)
    noun = inputs_noun(record)
    faithful = f"faithful to {what}: {faithful_words(record)} on {record['texts']} {noun}"
    lines = [
        f"{out}: {what}, {size_words(record)}",
        *undone_lines(record.get("shrunk") or {}, name),
        faithful,
        *(f"agreement with {name} as shipped on {words}" for words in agreement_words(record)),
        *group_warnings(record),
        f"encoding time: {time_words(record['encoding_times'])}",
    ]
    lines += variant_lines(record)
    if compatibility := (how_made(record) or {}).get("compatibility"):
        lines += compatibility_lines(compatibility, name)
    if record["scores"]:
        return [*lines, f"scores of this recipe from the eval run: {score_words(record['scores'])}"]
    if classifier := record.get("classifier"):
        return [*lines, *classifier_lines(classifier, recipe)]
    if record["whole_model"]:
        return lines  # its quality is the original's
    command = eval_command(record, out)
    quality = f"quality on a task, compared with {name}: not measured"
    return [*lines, f"{quality}; to measure it:", f"  {command}"] if command else [*lines, quality]


def classifier_lines(found: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """What the classifier scores, against the last layer; and how sure it is."""
    layers = found["layers"]
    chosen = next(one for one in layers if (one["layer"], one["norm"]) == (recipe.layer, recipe.norm))
    return [
        f"classifier: {found['label']}, {len(found['classes'])} classes, trained on {found['train']:,} examples of "
        f"{found['data']}; layer chosen on held-out training examples",
        f"accuracy on {chosen['n']:,} test examples: {accuracy_words(chosen)}; last layer "
        f"{accuracy_words(layers[-1])}; most frequent class {found['most_frequent']:.1f}",
        *([calibration_words(found["calibration"])] if found["calibration"] else []),
    ]


def accuracy_words(one: Mapping[str, Any]) -> str:
    return f"{one['test']:.1f} ({one['ci_low']:.1f} to {one['ci_high']:.1f})"


def calibration_words(found: Mapping[str, float]) -> str:
    return (
        f"calibration error {found['error_before']:.3f}, and {found['error_after']:.3f} with all logits divided by "
        f"{found['temperature']:.2f}"
    )


def faithful_words(record: Mapping[str, Any]) -> str:
    """The number that the vectors were judged by: their difference, or their cosine in half precision."""
    if record.get("required_cosine"):
        return f"lowest cosine {record['min_cosine']:.6f} ({record['required_cosine']} was required)"
    return f"largest difference {record['max_difference']:.1e}"


def variant_lines(record: Mapping[str, Any]) -> list[str]:
    """One line per smaller file: its size, its cosine to the measured vectors, and its time."""
    return [
        f"{name} ({found['file']}, {found['bytes'] / 1e6:.1f} MB): cosine to the measured vectors "
        f"{found['min_cosine']:.4f} at least, {found['mean_cosine']:.4f} on average; encoding time "
        f"{time_words(found['encoding_times'])}"
        for name, found in record.get("variants", {}).items()
    ]


def how_made(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How a shrunk or static model was made; None for a layer as it is."""
    return record.get("shrunk") or record.get("static")


def model_words(record: Mapping[str, Any], recipe: Recipe, name: str) -> str:
    """What the vectors are: those of a recipe, or of a shrunk or static model."""
    if found := record.get("classifier"):
        return f"a classifier of {found['label']} on {recipe_words(recipe, name)}"
    if static := record.get("static"):
        fitted = {"teacher": "fitted to give its vectors", "none": "as they are"}
        mapped = fitted.get(static["map"], f"with the map {static['map']}")
        return f"{static['rows']:,} token vectors from layer {static['layer']} of {name}, {mapped}"
    shrunk = record.get("shrunk")
    if not shrunk:
        return recipe_words(recipe, name)
    if shrunk["student"]:
        return f"{Path(shrunk['student']['name']).name} with a map ({shrunk['map']}) to the vectors of {name}"
    made = "trained to give its vectors" if was_trained(shrunk) else "with a linear map"
    return f"blocks {shrunk['blocks']} of {name}, {made}"


def was_trained(shrunk: Mapping[str, Any]) -> bool:
    """True if trained weights were kept; False for a linear map, which is also kept if training did not improve it."""
    training = shrunk["training"]
    return bool(training) and bool(training["result"]["kept_step"])


def undone_lines(shrunk: Mapping[str, Any], name: str) -> list[str]:
    """What became of a training that did not improve the linear map, and what to try."""
    training = shrunk.get("training")
    if not training or was_trained(shrunk):
        return []
    result = training["result"]
    return [
        f"training was undone: after {result['steps']:,} steps it was no better than the linear map (mean cosine "
        f"{result['agreement_before']:.4f} with {name}); train longer, or with a lower --learning-rate than "
        f"{training['learning_rate']:g}"
    ]


def group_words(record: Mapping[str, Any]) -> str:
    """The lowest agreement behind the mean of a shrunk or static model: of its worst texts, and of its worst group."""
    found = (how_made(record) or {}).get("agreement")
    if not found:
        return ""
    everything, *groups = found["groups"]
    words = f"; worst 5 % of the texts: below {everything['worst_cosine']:.2f}"
    if record["agreement"]["mean_cosine"] is None:  # a static model, whose mean was subtracted
        words = (
            f"; mean cosine after both means are subtracted {everything['mean_cosine']:.2f}, worst 5 % of the texts: "
            f"below {everything['worst_cosine']:.2f}"
        )
    if groups:
        worst = min(groups, key=lambda group: group["mean_cosine"])
        words += (
            f"; lowest for {worst['name']} ({worst['texts']}): mean cosine {worst['mean_cosine']:.2f}, worst 5 % below "
            f"{worst['worst_cosine']:.2f}"
        )
    return words


def group_warnings(record: Mapping[str, Any]) -> list[str]:
    """What the agreement by kind and length of texts warns of."""
    found = (how_made(record) or {}).get("agreement")
    return [f"note: {warning}" for warning in found["warnings"]] if found else []


SEARCHES = {
    "pairs": "search with {searched} held-out pairs among {documents:,} documents",
    "first": "search with {searched} held-out queries among {documents:,} documents for what {name} finds first",
    "halves": "search with {searched} held-out long texts, whose first half is to find the second half",
}
CASES = {"old_old": ("old", "old"), "new_old": ("new", "old"), "old_new": ("old", "new"), "new_new": ("new", "new"),
         "mixed": ("new", "half new")}  # fmt: skip


def compatibility_lines(found: Mapping[str, Any], name: str) -> list[str]:
    """What a search finds with vectors of the original and of this model, and what to do with an index."""
    lines, cases = [], found["cases"]
    if cases:
        lines = [
            search_words(found, name),
            f"  {'queries':9}{'documents':11}{'MRR':24}lost",
            *(f"  {q:9}{d:11}{mrr:24}{lost}".rstrip() for q, d, mrr, lost in case_rows(cases)),
            f"  re-embedding: {mean_words(cases['gain'], '+')} for new queries",
        ]
    return [*lines, f"your index: {found['answer']}"]


def search_words(found: Mapping[str, Any], name: str) -> str:
    """What was searched for, and what the columns of the table are."""
    what = SEARCHES[found["test"]].format(**{**found, "name": name})
    return f"{what}: mean reciprocal rank (MRR) and what is lost, with 95 % intervals; old: {name}, new: this model"


def case_rows(cases: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Whose queries, whose documents, the MRR, and its loss; the original itself loses nothing."""
    return [
        (*models, mean_words(cases[key]["mrr"]), "" if key == "old_old" else mean_words(cases[key]["loss"]))
        for key, models in CASES.items()
    ]


def mean_words(found: Mapping[str, Any], sign: str = "") -> str:
    """`0.012 (0.004 to 0.020)`."""
    mean, low, high = (f"{round(number, 3) + 0.0:{sign}.3f}" for number in (found["mean"], *found["interval"]))
    return f"{mean} ({low} to {high})"


def recipe_words(recipe: Recipe, name: str) -> str:
    """`layer 8 of gte-small`, `gte-small as shipped`, with the map and the final norm where there are any."""
    normed = " behind the final norm" if recipe.norm == "normed" else ""
    mapped = f" with the map {recipe.transform}" if recipe.transform != "none" else ""
    return f"{name} as shipped{mapped}" if recipe.shipped else f"layer {recipe.layer} of {name}{normed}{mapped}"


def size_words(record: Mapping[str, Any]) -> str:
    """`9 of 12 blocks, 28.0 of 33.4 million parameters`; without blocks where the format does not say."""
    blocks, (after, before) = record["blocks"], (record["parameters"][name] for name in ("after", "before"))
    of_blocks = f"{blocks['after']} of {blocks['before']} blocks, " if blocks["after"] else ""
    small, large = (f"{n / 1e6:.1f} million" if before >= 1e6 else f"{n:,}" for n in (after, before))
    if (record.get("shrunk") or {}).get("student"):
        return f"{blocks['after']} blocks and {small} parameters, instead of {blocks['before']} and {large}"
    if after > before:  # a map was added
        return f"{of_blocks}{small} parameters with its map ({large} in the original)"
    return f"{of_blocks}{small.removesuffix(' million')} of {large} parameters"


def inputs_noun(record: Mapping[str, Any]) -> str:
    """`texts` or `images`."""
    return f"{record['input_kind']}s"


def agreement_words(record: Mapping[str, Any]) -> Iterator[str]:
    """`120 demo texts: mean cosine 0.61, 43 % of the 10 nearest neighbours shared`, or why a number is missing.

    Nothing for a classifier: its logits are no vectors of the original.
    """
    if (agreement := record["agreement"]) is None:
        return
    noun = inputs_noun(record)
    texts, source = agreement["texts"], agreement["source"]
    numbers = []
    if agreement["mean_cosine"] is not None:
        numbers.append(f"mean cosine {agreement['mean_cosine']:.2f}")
    if agreement["neighbour_overlap"] is not None:
        shared = f"{100 * agreement['neighbour_overlap']:.0f} %"
        numbers.append(f"{shared} of the {agreement['neighbours']} nearest neighbours shared")
    note = f"({agreement['note']})" if agreement["note"] else ""
    found = " ".join(filter(None, (", ".join(numbers), note)))
    where = f"{texts} {'demo texts' if source == 'demo' else f'{noun} ({source})'}" if texts else noun
    yield f"{where}: {found}{group_words(record)}"


def score_words(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{task} {value:.2f}" for task, value in scores.items())


def eval_command(record: Mapping[str, Any], out: str | Path) -> str:
    """The command that scores the exported folder on a task; "" where eval cannot read the folder."""
    if record["backend"] != "sentence_transformers" or inputs_noun(record) != "texts":
        return ""
    words = ["layerwise", "eval", str(out), "--tasks", EXAMPLE_TASK, "--layers", "last", "--out", f"{out}-scores"]
    return command_line(words)
