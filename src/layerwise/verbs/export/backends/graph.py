"""One ONNX graph from token ids to the final vector: cut model, pooling, linear map and normalisation inside.

The formats `onnx` and `openvino` share it, and the tokenizer files beside it.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from layerwise.core.errors import ExportError, InputError, MissingExtra
from layerwise.core.files import write_json
from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Recipe
from layerwise.models.network import Network
from layerwise.verbs.export.backends.backend import BATCH_SIZE, ExportJob
from layerwise.verbs.export.backends.sentence_transformers.backend import SentenceTransformersBackend

INPUTS, OUTPUT = ("input_ids", "attention_mask"), "sentence_embedding"
PARAMETERS_KEY = "layerwise.parameters"  # in the metadata of the graph
MOST_BYTES = 2**31 - 2**24  # of one ONNX file, which must stay below 2 GB
TOKENIZER_FILES = ("config.json", "config_sentence_transformers.json", "tokenizer.json", "tokenizer_config.json")
TOLERANCE = 1e-5  # relative to the largest entry: another runtime, with other kernels
SOURCE = SentenceTransformersBackend()


def check_graph_support(network: Network, recipe: Recipe, mode: str, extra: str, packages: Sequence[str]) -> None:
    """Raises if a package is missing, or the recipe cannot be one graph."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise MissingExtra(f"--format {extra} needs {', '.join(missing)}: pip install 'layerwise[{extra}]'")
    SOURCE.check_supported(network, recipe, mode)
    _, excluded = SOURCE.plan(network, recipe, mode)
    if excluded.prompt:
        raise InputError(f"--format {extra} cannot leave the tokens of a prompt out of the mean; use --tokens all")
    if recipe.shipped and network.shipped is not None and network.shipped.own_encode_reason:
        reason = network.shipped.own_encode_reason
        raise ExportError(f"the model as shipped cannot be one graph ({reason}); choose its last layer by number")


class Graph(nn.Module):
    """The modules of a SentenceTransformer as one function of token ids and their mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Both (B, T); returns (B, E)."""
        features = self.model({"input_ids": input_ids, "attention_mask": attention_mask})
        vectors: Tensor = features[OUTPUT]
        return vectors


def save_graph(job: ExportJob, folder: Path, path: Path) -> int:
    """Writes the graph to `path` and the tokenizer files to `folder`; returns the number of blocks."""
    from sentence_transformers import SentenceTransformer

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".graph.") as scratch:
        blocks = SOURCE.save(job, Path(scratch)).blocks
        with quiet_libraries():
            model = SentenceTransformer(scratch, device="cpu").float().eval()
        parameters = sum(weight.numel() for weight in model.parameters())
        if 4 * parameters > MOST_BYTES:
            size = f"{parameters / 1e6:.0f} million parameters"
            raise ExportError(f"{size} in float32 do not fit into one ONNX file, which has at most 2 GB")
        path.parent.mkdir(exist_ok=True)
        write_graph(Graph(model).eval(), model.tokenizer, path, parameters)
        for name in TOKENIZER_FILES:
            shutil.copyfile(Path(scratch) / name, folder / name)
    complete_tokenizer(folder, job.max_length)
    return blocks


def write_graph(graph: Graph, tokenizer: Any, path: Path, parameters: int) -> None:
    sample = tokenizer(["one two three", "four"], padding=True, return_tensors="pt")
    shape = {0: "batch", 1: "tokens"}
    inputs = tuple(sample[name] for name in INPUTS)
    try:
        with quiet_libraries(), quiet_root_logger(), torch.inference_mode():
            program: Any = torch.onnx.export(
                graph, inputs, dynamo=True, input_names=list(INPUTS), output_names=[OUTPUT],
                dynamic_shapes=(shape, shape), external_data=False, verbose=False,
            )  # fmt: skip
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ExportError(f"torch cannot turn this model into an ONNX graph: {reason}") from error
    program.model.metadata_props[PARAMETERS_KEY] = str(parameters)
    program.save(str(path), external_data=False)


def complete_tokenizer(folder: Path, max_length: int) -> None:
    """Writes what readers of tokenizer files expect: length and padding in tokenizer.json, special tokens in a file."""
    from tokenizers import Tokenizer

    config_path = folder / "tokenizer_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    special = {name: config[name] for name in config if name.endswith("_token") and config[name]}
    words = {name: word["content"] if isinstance(word, dict) else word for name, word in special.items()}
    write_json(folder / "special_tokens_map.json", words)
    write_json(config_path, config | {"model_max_length": max_length, "padding_side": "right"})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    padding = str(words.get("pad_token") or next(iter(words.values()), ""))
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(padding) or 0, pad_token=padding)
    tokenizer.save(str(folder / "tokenizer.json"))


class GraphTokenizer:
    """Texts as inputs of the graph, by tokenizer.json alone, with the folder's default prompt before each text."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = json.loads((folder / "config_sentence_transformers.json").read_text(encoding="utf-8"))
        name = settings.get("default_prompt_name")
        self.prompt = str((settings.get("prompts") or {}).get(name) or "") if name else ""

    def batches(self, texts: Sequence[str], batch_size: int) -> Iterator[dict[str, NDArray[np.int64]]]:
        """Padded batches of a few texts, in order."""
        for start in range(0, len(texts), batch_size):
            encoded = self.tokenizer.encode_batch([self.prompt + text for text in texts[start : start + batch_size]])
            rows = ([e.ids for e in encoded], [e.attention_mask for e in encoded])
            yield {name: np.array(values, dtype=np.int64) for name, values in zip(INPUTS, rows, strict=True)}


@dataclass(frozen=True)
class GraphModel:
    """A graph in its runtime, with its tokenizer."""

    run: Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]  # inputs of the graph to vectors
    model: Any  # the object of the runtime
    tokenizer: GraphTokenizer
    parameters: int

    def encode(self, texts: Sequence[str], batch_size: int = BATCH_SIZE) -> Tensor:
        """One row per text, on the CPU."""
        batches = self.tokenizer.batches(texts, batch_size)
        return torch.from_numpy(np.concatenate([self.run(batch) for batch in batches]))


def prompt_note(folder: Path) -> tuple[str, ...]:
    """What the card says of a prompt that the tokenizer does not add; nothing without one."""
    prompt = GraphTokenizer(folder).prompt
    note = f"Put the prompt {prompt!r} before every text: the graph and the tokenizer do not add it."
    return (note,) if prompt else ()


@contextmanager
def quiet_root_logger() -> Iterator[None]:
    """Without advice that a library logs with the root logger."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
