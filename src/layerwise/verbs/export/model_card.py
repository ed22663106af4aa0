"""The model card: how to use the model, what it is, what was checked and what was not, and the hub's metadata."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerwise.core.recipe import Recipe
from layerwise.core.templates import parse_template
from layerwise.models.network import Network
from layerwise.runs.exported import time_words
from layerwise.runs.table import LayerTable
from layerwise.runs.tasks import TaskRecord, task_records
from layerwise.verbs.export.backends.backend import ExportJob, SavedExport
from layerwise.verbs.export.serving import table_lines
from layerwise.verbs.export.summary import (
    accuracy_words,
    agreement_words,
    calibration_words,
    case_rows,
    eval_command,
    faithful_words,
    group_warnings,
    how_made,
    inputs_noun,
    mean_words,
    model_words,
    score_words,
    search_words,
    size_words,
    variant_lines,
    was_trained,
)


def model_card(job: ExportJob, saved: SavedExport, record: Mapping[str, Any], scores: LayerTable | None) -> str:
    """The README.md of the folder."""
    name = one_line(Path(job.whole.name).name)
    title = f"{name}, as shipped" if job.recipe.shipped else f"Layer {job.recipe.layer} of {name}"
    if record["shrunk"]:
        title = f"{name} with {saved.blocks} of {job.whole.depth} blocks"
        if other := record["shrunk"]["student"]:
            title = f"{one_line(Path(other['name']).name)} in the space of {name}"
    if record["static"]:
        title = f"Static model from {name}"
    if record["classifier"]:
        title = f"Classifier of {one_line(record['classifier']['label'])} on layer {job.recipe.layer} of {name}"
    return "\n".join([
        metadata(job.whole, job.recipe, saved, scores), "",
        f"# {title}", "",
        "## How to use", "",
        f"```{saved.loading_language}", saved.loading_code, "```", "",
        *([f"Needs {saved.requirements}.", ""] if saved.requirements else []),
        *(line for note in saved.notes for line in (note, "")),
        "## What it is", "", *what_it_is(job, record, name), "",
        *template_section(job.recipe),
        *table_lines(record["serving"]),
        "## What was checked", "", *what_was_checked(job, record, name), "",
        "## What was not measured", "", *what_was_not_measured(job, record, name), "",
    ])  # fmt: skip


def what_it_is(job: ExportJob, record: Mapping[str, Any], name: str) -> list[str]:
    usual = asdict(Recipe(job.recipe.layer))
    words = [f"{field} {word}" for field, word in asdict(job.recipe).items() if word != usual[field]]
    if inputs_noun(record) != "texts":  # they are read whole
        words = [word for word in words if not word.startswith("max_length")]
    settings = f" Settings: {', '.join(map(one_line, words))}." if words and not how_made(record) else ""
    fitted_on, noun = record["fitted_on"], inputs_noun(record)
    return [
        f"An embedding model that gives the vectors of {one_line(model_words(record, job.recipe, name))}, made with "
        f"layerwise {record['versions']['layerwise']}. It has {size_words(record)}.{settings}",
        *(["", f"How the layer was chosen: {one_line(record['chosen_by'])}."] if record["chosen_by"] else []),
        *(["", f"The linear map was fitted without labels on {describe_fit(fitted_on, noun)}."] if fitted_on else []),
        *([*shrunk_lines(record["shrunk"], name)] if record["shrunk"] else []),
        *([*static_lines(record["static"], name)] if record["static"] else []),
        *([*classifier_section(record["classifier"])] if record["classifier"] else []),
    ]


def classifier_section(found: Mapping[str, Any]) -> list[str]:
    """The classes, how they are read from the logits, and the table of layers that the choice was made from."""
    classes = ", ".join(map(one_line, found["classes"]))
    rows = [
        f"| {one['layer']}{' behind the final norm' if one['norm'] == 'normed' else ''} | {one['validation']:.1f} | "
        f"{accuracy_words(one)} |"
        for one in found["layers"]
    ]
    lines = [
        "", "What `encode` gives are logits, one per class. The largest one is the prediction, and `config.json` has "
        f"the names (`id2label`). The {len(found['classes'])} classes: {classes}.",
        "", f"The head is a logistic regression on {found['train']:,} labelled examples of {one_line(found['data'])} "
        f"(fingerprint {found['data_fingerprint']}). The layer was chosen on a held-out fifth of them, and the test "
        f"says what that is worth. Always the most frequent class: {found['most_frequent']:.1f}.",
        "", "| layer | accuracy, held-out training examples | accuracy, test (95 %) |", "|---|---|---|", *rows,
    ]  # fmt: skip
    if found["calibration"]:
        lines += ["", f"Are the probabilities right? {calibration_words(found['calibration']).capitalize()}."]
    return lines


def shrunk_lines(shrunk: Mapping[str, Any], name: str) -> list[str]:
    """How a shrunk model was made; its vectors are in the space of the original's."""
    lines = [
        "", f"Its vectors are in the space of {name}: they imitate those of the whole model. The linear map "
        f"after pooling was fitted without labels on {describe_fit(shrunk['fitted_on'])}.",
    ]  # fmt: skip
    if training := shrunk.get("training"):
        made = training.get("made_requests", 0)
        requests = f" and {made:,} made requests (forms with random words)" if made else ""
        steps = f"{training['steps']:,} steps on the same texts{requests}, without labels"
        better, worse = (
            f"It was then trained for {steps}.",
            f"Training it for {steps}, made it no better and was undone.",
        )
        lines += ["", better if was_trained(shrunk) else worse]
    return lines


def static_lines(static: Mapping[str, Any], name: str) -> list[str]:
    """How a static model was made."""
    words = f", of which {static['words']:,} are words that were added" if static["words"] else ""
    lines = [
        "", f"It has no transformer: a text's vector is the mean of one vector per token. There are {static['rows']:,} "
        f"such vectors of {static['dimensions']} dimensions{words}, in {static['dtype']}. The order of words has no "
        "effect, and texts of any length are read whole. Prompts are not used.",
    ]  # fmt: skip
    if fitted_on := static["fitted_on"]:
        lines += ["", f"They were fitted without labels on {describe_fit(fitted_on)}."]
    if static["space"] == "teacher":
        lines += ["", f"Its vectors are in the space of {name}, with their mean subtracted."]
    return lines


def template_section(recipe: Recipe) -> list[str]:
    """Which formats keep the template; nothing without one."""
    template = parse_template(recipe.template)
    if not template.text:
        return []
    if not template.after:
        kept = (
            f"Every text is read after the prompt {quoted(template.before)}. sentence-transformers puts it there; with "
            "any other program, put it before the text yourself."
        )
        return ["## Template", "", kept, ""]
    return [
        "## Template", "",
        f"Every text is read between {quoted(template.before)} and {quoted(template.after)}. The tokenizer adds both, "
        "so pass plain texts. A text that is too long is cut; the template is not.", "",
        "- Kept by programs that read `tokenizer.json` as it is: sentence-transformers, transformers (fast "
        "tokenizers), Text Embeddings Inference, and ONNX files that are used with this tokenizer. transformers.js "
        "keeps it too, but cuts an input that is too long at its end, so that text after the input is lost: shorten "
        "long texts first.",
        "- Dropped by programs that build their own tokenizer: llama.cpp and other users of GGUF files, and "
        "conversions to a slow tokenizer. They give other vectors; do not use them with this model.",
        "- `add_special_tokens=False` leaves the template out.", "",
    ]  # fmt: skip


def quoted(text: str) -> str:
    """The text as code in Markdown, with line breaks and quotes visible."""
    shown = repr(text)
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def what_was_checked(job: ExportJob, record: Mapping[str, Any], name: str) -> list[str]:
    differs = f"{record['max_difference']:.1e} (largest entry {record['largest_entry']:.3g})"
    cosine = f"; {faithful_words(record)}" if record.get("required_cosine") else ""
    original, noun = None if how_made(record) else record["difference_from_original"], inputs_noun(record)
    return [
        f"- Faithful to {one_line(model_words(record, job.recipe, name))}: on {record['texts']} {noun}, the vectors "
        f"differ from the measured ones by at most {differs}{cosine}.",
        *([f"- Against `{name}` itself they differ by at most {original:.1e}."] if original is not None else []),
        *(f"- Agreement with {name} as shipped on {one_line(words)}." for words in agreement_words(record)),
        *(f"- {line[0].upper()}{line[1:]}." for line in group_warnings(record)),
        *(f"- {line}." for line in variant_lines(record)),
        *index_lines(record, name),
        f"- Time to encode, measured on one machine: {time_words(record['encoding_times'])}.",
        *([f"- Scores on tasks: {one_line(score_words(record['scores']))}."] if record["scores"] else []),
    ]


def index_lines(record: Mapping[str, Any], name: str) -> list[str]:
    """The searches and the advice, as items of a list."""
    found = (how_made(record) or {}).get("compatibility")
    if not found:
        return []
    lines = [f"- Your index: {found['answer']}."]
    if cases := found["cases"]:
        what = one_line(search_words(found, name))
        lines += [
            f"- {what[0].upper()}{what[1:]}:",
            *(
                f"  - {queries} queries, {documents} documents: {mrr}{f', lost {lost}' if lost else ''}"
                for queries, documents, mrr, lost in case_rows(cases)
            ),
            f"  - re-embedding the documents: {mean_words(cases['gain'], '+')} for new queries",
        ]
    return lines


def what_was_not_measured(job: ExportJob, record: Mapping[str, Any], name: str) -> list[str]:
    if record["whole_model"]:
        return [f"Quality on a task. The model is a copy of {name}, so its scores are those of {name}."]
    other = "other tasks" if record["scores"] else "a task"
    subject = f"layer {job.recipe.layer}"
    if made := how_made(record):
        subject = "the blocks and the map that were measured" if record["shrunk"] else "the vectors that were fitted"
    lines = [
        f"Quality against {name} on {other}. The checks above show that this model is faithful to "
        f"{subject}; they do not show that {subject} {'are' if made else 'is'} as good as the whole model."
    ]
    if command := eval_command(record, "PATH"):
        lines += ["", "To score it on a task, and the original in the same way:", "", "```bash", command, "```"]
    return lines


def describe_fit(fitted_on: Mapping[str, Any], noun: str = "texts") -> str:
    """What a map was fitted on, in words."""
    return f"{fitted_on['count']:,} {noun} ({one_line(fitted_on['name'])}, fingerprint {fitted_on['fingerprint']})"


def one_line(text: str) -> str:
    """The text with line breaks and control characters written out: names come from files, templates from users."""
    return text.encode("unicode_escape").decode() if not text.isprintable() else text


def metadata(network: Network, recipe: Recipe, saved: SavedExport, scores: LayerTable | None) -> str:
    """The YAML block at the top: base model, its licence, and the scores of this recipe as a model index."""
    from huggingface_hub import EvalResult, ModelCardData

    filters = asdict(recipe.readout) | {name: getattr(recipe, name) for name in ("transform", "normalize", "template")}
    tasks = task_records(scores.run) if scores else {}
    results = []
    for row in scores.where(**filters) if scores else ():
        task = tasks.get(row.metric, TaskRecord(row.metric, "main_score"))  # records may be edited by hand
        results.append(
            EvalResult(
                task_type="sentence-similarity",
                task_name=task.type,
                dataset_type=f"mteb/{row.metric}",
                dataset_name=row.metric,
                metric_type=task.score,
                metric_value=round(row.value, 4),
            )
        )
    name = network.name
    content: dict[str, Any] = {
        "library_name": saved.library,
        "pipeline_tag": "sentence-similarity",
        "tags": [*([saved.library] if saved.library else []), "layerwise"],
        "base_model": name if "/" in name and not name.startswith(("/", ".")) else None,
        "license": base_licence(name, network.revision),
    }
    if results:
        content |= {"model_name": f"{Path(name).name}-layer-{recipe.layer}", "eval_results": results}
    return f"---\n{ModelCardData(**content).to_yaml()}\n---"


def base_licence(name: str, revision: str) -> str | None:
    """The licence in the base model's card; None if it has none or cannot be read."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.repocard import metadata_load

    try:
        path = Path(name) / "README.md"
        if not Path(name).is_dir():
            path = Path(hf_hub_download(name, "README.md", revision=revision))
        found = (metadata_load(path) or {}).get("license")
        return found if isinstance(found, str) else None
    except (OSError, ValueError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError):
        return None
