"""The serving table of an export: which programs give its vectors, and how that is known."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from layerwise.core.templates import parse_template
from layerwise.inputs.modalities import kind_of
from layerwise.models.families.gguf_layouts import gguf_problem
from layerwise.models.servable import servable_problems
from layerwise.verbs.export.backends.backend import ExportJob
from layerwise.verbs.export.backends.gguf.backend import MIN_COSINE
from layerwise.verbs.export.vllm import WAYS, VllmCheck

Answer = Literal["exact", "needs a setting", "other vectors", "cannot read it"]
RUN = "run on this export"
RUN_ELSEWHERE = "run on other exports (studies/serve)"
BY_SOURCE = "by its source code, not run"
GRAPH_PROGRAMS = ("ONNX Runtime", "transformers.js", "fastembed")
SCALED = "it scales vectors to length 1 unless the request says otherwise"


@dataclass(frozen=True)
class Serving:
    """One row: a program, whether it gives the vectors of this export, what to do, and how that is known."""

    program: str
    vectors: Answer
    note: str
    known: str


def serving_rows(backend: str, job: ExportJob, *, exact_blocks: bool) -> list[dict[str, str]]:
    """The rows for an export in this format; none for a format from outside. `exact_blocks`: no extra block is kept."""
    formats = {
        "sentence_transformers": folder_rows,
        "onnx": onnx_rows,
        "openvino": openvino_rows,
        "gguf": gguf_rows,
    }
    rows = formats.get(backend)
    return [asdict(row) for row in rows(job, exact_blocks)] if rows else []


def folder_rows(job: ExportJob, exact_blocks: bool) -> list[Serving]:
    """A folder of sentence-transformers: servers read it right only if the recipe is servable."""
    if kind_of(job.network.preprocessor) != "text" or job.network.depth == 0:  # others were not tried with these
        return [Serving("sentence-transformers", "exact", "", RUN)]
    problems = servable_problems(job.network, job.recipe)
    if not problems and not exact_blocks:
        problems = ["it has one block more than its layer; export it with --servable"]
    reason = "; ".join(problems)
    servers = {
        "Text Embeddings Inference": (f"if it supports this architecture; {SCALED}", BY_SOURCE),
        "vLLM": ("with --runner pooling, if it supports this architecture", RUN_ELSEWHERE),
    }
    return [
        Serving("sentence-transformers", "exact", "", RUN),
        *(
            Serving(name, "other vectors" if problems else "exact", reason or note, BY_SOURCE if problems else known)
            for name, (note, known) in servers.items()
        ),
        *(Serving(name, "cannot read it", "export with --format onnx", BY_SOURCE) for name in GRAPH_PROGRAMS),
        llama_cpp_row(job, reason),
    ]


def with_vllm_run(rows: Sequence[Mapping[str, str]], check: VllmCheck) -> list[dict[str, str]]:
    """The rows, with what was measured in vLLM in place of what its source code lets expect."""
    note = "; ".join(
        [f"{WAYS[way]} differs by {found:.1e} of the largest entry" for way, found in check.differences.items()]
        + [f"{WAYS[way]}: {error}" for way, error in check.errors.items()]
    )
    answer: Answer = "cannot read it" if check.errors else "exact" if check.is_exact else "other vectors"
    measured = Serving("vLLM", answer, f"with --runner pooling, in float32; {note}", f"{RUN} with vLLM {check.version}")
    return [asdict(measured) if row["program"] == measured.program else dict(row) for row in rows]


def llama_cpp_row(job: ExportJob, reason: str) -> Serving:
    """llama.cpp reads GGUF only, which is an export of its own where it can compute the recipe."""
    if problem := gguf_problem(job.network.module.config):
        reason = f"--format gguf cannot write it: {problem}"
    elif not reason and parse_template(job.recipe.template).text:
        reason = "its tokenizer does not add the template"
    return Serving("llama.cpp", "cannot read it", reason or "export with --format gguf", BY_SOURCE)


def gguf_rows(job: ExportJob, exact_blocks: bool) -> list[Serving]:
    """The GGUF file has everything but the linear map."""
    limit = f"in float16 (cosine at least {MIN_COSINE}), with -b and -ub {job.max_length}; longer texts are refused"
    client = f"apply map.safetensors to the unscaled vectors; {limit}"
    mapped = job.linear is not None
    return [
        Serving("llama.cpp", "needs a setting" if mapped else "exact", client if mapped else limit, RUN),
        *not_read("sentence-transformers", "Text Embeddings Inference", "vLLM", *GRAPH_PROGRAMS),
    ]


def onnx_rows(job: ExportJob, exact_blocks: bool) -> list[Serving]:
    """The graph holds the whole computation; what may lack is a prompt, and the end of texts that are too long."""
    template = parse_template(job.recipe.template)
    prompted = bool(template.before and not template.after)
    answer: Answer = "needs a setting" if prompted else "exact"
    prompt = f"put {template.before!r} before every text" if prompted else ""
    cut = "a text that is too long loses its end tokens: shorten long texts first"
    return [
        Serving("ONNX Runtime", answer, prompt, RUN),
        Serving("transformers.js", "needs a setting", f"{prompt}; {cut}" if prompt else cut, RUN_ELSEWHERE),
        Serving("fastembed", answer, prompt or "with PoolingType.DISABLED", RUN_ELSEWHERE),
        *not_read("sentence-transformers", "Text Embeddings Inference", "vLLM", "llama.cpp"),
    ]


def openvino_rows(job: ExportJob, exact_blocks: bool) -> list[Serving]:
    """The converted graph."""
    template = parse_template(job.recipe.template)
    prompted = bool(template.before and not template.after)
    note = f"put {template.before!r} before every text" if prompted else ""
    return [
        Serving("OpenVINO", "needs a setting" if prompted else "exact", note, RUN),
        *not_read("sentence-transformers", "Text Embeddings Inference", "vLLM", "llama.cpp"),
    ]


def not_read(*programs: str) -> list[Serving]:
    notes = {program: "export with --format onnx" for program in GRAPH_PROGRAMS} | {
        "llama.cpp": "export with --format gguf"
    }
    return [
        Serving(program, "cannot read it", notes.get(program, "export without --format"), BY_SOURCE)
        for program in programs
    ]


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows as a Markdown table; nothing without rows."""
    if not rows:
        return []
    lines = ["| program | vectors | note | how this is known |", "|---|---|---|---|"]
    cells = ([row[name].replace("|", "\\|") for name in ("program", "vectors", "note", "known")] for row in rows)
    return ["## Where it can be served", "", *lines, *(f"| {' | '.join(cell)} |" for cell in cells), ""]
