"""The GGUF backend: the cut model for llama.cpp, in float16 and in q8_0, checked with llama.cpp itself.

The format has no place for a linear map after pooling. It is written beside the model for the client, which applies it.
"""

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from layerwise.core.errors import ExportError, InputError, MissingExtra
from layerwise.core.recipe import Recipe
from layerwise.core.templates import INPUT, parse_template
from layerwise.models.families.gguf_layouts import (
    gguf_layout,
    gguf_numbers,
    gguf_problem,
    gguf_weight,
    rotary_factors,
)
from layerwise.models.network import Network
from layerwise.models.servable import servable_problems
from layerwise.models.truncate import truncate_blocks
from layerwise.verbs.export.backends.backend import ExportJob, SavedExport, Variant
from layerwise.verbs.export.backends.gguf.runtime import (
    LENGTH_KEY,
    MAP_FILE,
    NORMALIZE_KEY,
    TOKENIZER_FILE,
    LlamaCppModel,
    load_gguf,
)
from layerwise.verbs.export.backends.gguf.vocabulary import added_tokens, vocabulary, write_vocabulary

PACKAGES = ("gguf", "xllamacpp")
HALF_FILE, Q8_FILE = "model-f16.gguf", "model-q8_0.gguf"
POOLINGS = {"mean": "MEAN", "last": "LAST", "first": "CLS"}  # names of the gguf package
MIN_COSINE = 0.9999  # weights, and keys and values of attention, are in float16
Q8_BLOCK = 32  # numbers that share a scale
NOT_WRITTEN = ("pooler.", "embeddings.position_ids", "rotary_emb.")
FLOAT32_NAMES = ("position_embd", "token_types")  # llama.cpp adds these in float32
SERVER = "llama-server -m PATH/{file} --embeddings --pooling {pooling} -c {context} -b {length} -ub {length}"
REQUEST = """curl localhost:8080/v1/embeddings -H 'Content-Type: application/json' \\
  -d '{"input": ["a text"], "embd_normalize": -1}'"""


@dataclass(frozen=True)
class GgufBackend:
    """Writes `model-f16.gguf`, `model-q8_0.gguf`, the tokenizer, and `map.safetensors` if the recipe has a map."""

    name: str = "gguf"

    def check_supported(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises if a package is missing, or llama.cpp would give other vectors."""
        if missing := [name for name in PACKAGES if find_spec(name) is None]:
            raise MissingExtra(f"--format gguf needs {', '.join(missing)}: pip install 'layerwise[gguf]'")
        if problem := gguf_problem(network.module.config):
            raise ExportError(f"--format gguf cannot write this model: {problem}; use --format onnx")
        if problems := llama_cpp_problems(network, recipe):
            raise InputError(f"llama.cpp cannot compute this recipe: {'; '.join(problems)}")
        vocabulary(network.tokenizer, embedding_rows(network.module))
        added_tokens(network.tokenizer)

    def save(self, job: ExportJob, folder: Path) -> SavedExport:
        """Writes both files, the tokenizer, and the map beside them."""
        cut = truncate_blocks(job.network.module, job.recipe.layer)
        for file, precision in ((HALF_FILE, "F16"), (Q8_FILE, "Q8_0")):
            write_gguf(job, cut, folder / file, precision)
        tokenizer = type(job.network.tokenizer.backend_tokenizer).from_str(
            job.network.tokenizer.backend_tokenizer.to_str()
        )
        tokenizer.no_padding()
        tokenizer.enable_truncation(job.max_length)
        tokenizer.save(str(folder / TOKENIZER_FILE))
        if job.linear is not None:
            save_file({k: getattr(job.linear, k).float().contiguous() for k in ("weight", "bias")}, folder / MAP_FILE)
        odd_texts = load_gguf(folder, HALF_FILE).split_odd_texts()
        otherwise = [text for text, same in odd_texts.items() if not same]
        pooling = job.recipe.pooling.replace("first", "cls")
        server = SERVER.format(file=HALF_FILE, pooling=pooling, length=job.max_length, context=job.max_length + 1)
        return SavedExport(
            loading_code=f"{server}\n{REQUEST}",
            loading_language="bash",
            requirements="llama.cpp",
            blocks=job.recipe.layer,
            packages=("transformers", *PACKAGES),
            record={"odd_texts": {"texts": len(odd_texts), "split_otherwise": otherwise}},
            notes=notes(job, otherwise),
            min_cosine=MIN_COSINE,
            variants={"q8_0": Variant(Q8_FILE, partial(load_gguf, folder, Q8_FILE))},
        )

    def load(self, folder: Path, device: torch.device) -> LlamaCppModel:
        """Loads the float16 file; it runs on the CPU, whatever the device."""
        return load_gguf(folder, HALF_FILE)


def llama_cpp_problems(network: Network, recipe: Recipe) -> list[str]:
    """What llama.cpp cannot compute, each with what to use instead."""
    if recipe.shipped:
        return ["the model as shipped has modules that it does not read; give its last layer by number"]
    problems = servable_problems(network, recipe)
    if parse_template(recipe.template).after:
        problems.append(f"its tokenizer does not add a template; use --template '{INPUT}'")
    return problems


def notes(job: ExportJob, otherwise: list[str]) -> list[str]:
    """What a client has to do itself, and what was found about the tokenizer."""
    lines = [
        f"llama.cpp refuses a text of more than {job.max_length} tokens; cut it first. `{TOKENIZER_FILE}` does, and "
        "llama.cpp also takes a list of token ids as input.",
        "With `embd_normalize` -1 the vectors are those that were measured; without it they are scaled to length 1.",
    ]
    if job.linear is not None:
        lines.append(
            f"**The linear map is not part of the GGUF files.** Apply it to the unscaled vectors: "
            f"`vector @ weight.T + bias`, with both from `{MAP_FILE}`."
        )
    if job.recipe.normalize:
        lines.append("Scale the result to length 1.")
    if otherwise:
        shown = ", ".join(map(repr, otherwise))
        lines.append(
            f"llama.cpp's tokenizer splits some odd texts into other tokens, so their vectors differ: {shown}."
        )
    return lines


def embedding_rows(module: Any) -> int:
    return int(module.get_input_embeddings().weight.shape[0])


def write_gguf(job: ExportJob, cut: Any, path: Path, precision: str) -> None:
    """One file: numbers of the config, vocabulary and weights; matrices in `precision`, the rest in float32."""
    import gguf

    layout, config = gguf_layout(cut.config), cut.config
    assert layout is not None, "check_supported refuses other families"
    writer = gguf.GGUFWriter(str(path), layout.architecture)
    for name, value in gguf_numbers(config, job.max_length).items():
        getattr(writer, f"add_{name}")(value)
    writer.add_pooling_type(gguf.PoolingType[POOLINGS[job.recipe.pooling]])
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{precision}"])
    writer.add_uint32(LENGTH_KEY, job.max_length)
    writer.add_bool(NORMALIZE_KEY, job.recipe.normalize)
    write_vocabulary(writer, job.network.tokenizer, embedding_rows(cut))
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == layout.architecture)
    names = gguf.get_tensor_name_map(architecture, job.recipe.layer)
    if (factors := rotary_factors(cut)) is not None:
        writer.add_tensor("rope_freqs.weight", factors.numpy())
    for name, weight in cut.state_dict().items():
        if name.startswith(NOT_WRITTEN):
            continue
        stored = names.get_name(layout.prefix + name, try_suffixes=(".weight", ".bias"))
        if stored is None:
            raise ExportError(f"GGUF has no name for the weight {name} of this model")
        data = gguf_weight(config, name, weight).numpy()
        kind = gguf.GGMLQuantizationType[precision_of(stored, data.shape, precision)]
        writer.add_tensor(stored, gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def precision_of(name: str, shape: tuple[int, ...], precision: str) -> str:
    """Matrices in the precision of the file, in float16 if their rows do not fit its blocks; the rest in float32."""
    if len(shape) == 1 or name.startswith(FLOAT32_NAMES):
        return "F32"
    return "F16" if precision == "Q8_0" and shape[-1] % Q8_BLOCK else precision
