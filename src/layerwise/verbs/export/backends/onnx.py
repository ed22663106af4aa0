"""The ONNX backend: one graph in float32 and one in int8, in the layout that transformers.js and fastembed read."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Recipe
from layerwise.models.network import Network
from layerwise.verbs.export.backends.backend import ExportJob, SavedExport, Variant
from layerwise.verbs.export.backends.graph import (
    PARAMETERS_KEY,
    TOLERANCE,
    GraphModel,
    GraphTokenizer,
    check_graph_support,
    prompt_note,
    quiet_root_logger,
    save_graph,
)

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
GRAPH_FILE, INT8_FILE = "onnx/model.onnx", "onnx/model_quantized.onnx"
LOADING_CODE = """import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("PATH/tokenizer.json")
session = onnxruntime.InferenceSession("PATH/onnx/model.onnx")
batch = tokenizer.encode_batch(["a text"])
ids, mask = np.array([t.ids for t in batch]), np.array([t.attention_mask for t in batch])
(vectors,) = session.run(None, {"input_ids": ids, "attention_mask": mask})"""


@dataclass(frozen=True)
class OnnxBackend:
    """Writes `onnx/model.onnx`, `onnx/model_quantized.onnx` and the tokenizer."""

    name: str = "onnx"

    def check_supported(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises if a package is missing, or the recipe cannot be one graph."""
        check_graph_support(network, recipe, mode, self.name, PACKAGES)

    def save(self, job: ExportJob, folder: Path) -> SavedExport:
        """Writes the graph in float32, then in int8."""
        blocks = save_graph(job, folder, folder / GRAPH_FILE)
        quantize(folder / GRAPH_FILE, folder / INT8_FILE)
        return SavedExport(
            loading_code=LOADING_CODE,
            requirements="onnxruntime and tokenizers",
            blocks=blocks,
            packages=("transformers", "sentence-transformers", *PACKAGES),
            notes=("transformers.js and fastembed read this folder too.", *prompt_note(folder)),
            tolerance=TOLERANCE,
            variants={"int8": Variant(INT8_FILE, partial(load_graph, folder, INT8_FILE))},
        )

    def load(self, folder: Path, device: torch.device) -> GraphModel:
        """Loads the float32 graph; it runs on the CPU, whatever the device."""
        return load_graph(folder, GRAPH_FILE)


def quantize(source: Path, target: Path) -> None:
    """Writes the graph with weights in int8, by channel; activations are quantised while it runs.

    The linear map of a recipe, the only Gemm, stays in float32: it may amplify what is small.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(str(source))
    del model.graph.value_info[:]  # the quantiser transposes weights, and would find their old shapes here
    maps = [node.name for node in model.graph.node if node.op_type == "Gemm"]
    kept = [*maps, *(f"{name}_MatMul" for name in maps)]  # the quantiser's name for them
    with quiet_libraries(), quiet_root_logger():
        quantize_dynamic(model, str(target), weight_type=QuantType.QInt8, per_channel=True, nodes_to_exclude=kept)


def load_graph(folder: Path, file: str) -> GraphModel:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.intra_op_num_threads = torch.get_num_threads()  # as many as the model that it is compared with
    session = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
    parameters = int(session.get_modelmeta().custom_metadata_map.get(PARAMETERS_KEY, 0))
    return GraphModel(lambda batch: session.run(None, batch)[0], session, GraphTokenizer(folder), parameters)
