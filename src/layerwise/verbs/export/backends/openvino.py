"""The OpenVINO backend: the graph of the ONNX backend, converted."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Recipe
from layerwise.models.network import Network
from layerwise.verbs.export.backends.backend import ExportJob, SavedExport
from layerwise.verbs.export.backends.graph import (
    PARAMETERS_KEY,
    TOLERANCE,
    GraphModel,
    GraphTokenizer,
    check_graph_support,
    prompt_note,
    save_graph,
)

PACKAGES = ("onnx", "onnxscript", "openvino")
MODEL_FILE = "openvino/openvino_model.xml"
LOADING_CODE = """import numpy as np
import openvino
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("PATH/tokenizer.json")
model = openvino.compile_model("PATH/openvino/openvino_model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
batch = tokenizer.encode_batch(["a text"])
ids, mask = np.array([t.ids for t in batch]), np.array([t.attention_mask for t in batch])
vectors = model({"input_ids": ids, "attention_mask": mask})[0]"""


@dataclass(frozen=True)
class OpenVinoBackend:
    """Writes `openvino/openvino_model.xml` with its weights, and the tokenizer."""

    name: str = "openvino"

    def check_supported(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises if a package is missing, or the recipe cannot be one graph."""
        check_graph_support(network, recipe, mode, self.name, PACKAGES)

    def save(self, job: ExportJob, folder: Path) -> SavedExport:
        """Converts the ONNX graph, in float32."""
        import openvino

        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".onnx.") as scratch:
            graph = Path(scratch) / "model.onnx"
            blocks = save_graph(job, folder, graph)
            with quiet_libraries():
                model = openvino.convert_model(str(graph))
                model.set_rt_info(str(graph_parameters(graph)), PARAMETERS_KEY.split("."))
                (folder / MODEL_FILE).parent.mkdir()
                openvino.save_model(model, str(folder / MODEL_FILE), compress_to_fp16=False)
        return SavedExport(
            loading_code=LOADING_CODE,
            requirements="openvino and tokenizers",
            blocks=blocks,
            packages=("transformers", "sentence-transformers", *PACKAGES),
            notes=prompt_note(folder),
            tolerance=TOLERANCE,
        )

    def load(self, folder: Path, device: torch.device) -> GraphModel:
        """Compiles the model for the CPU, whatever the device."""
        import openvino

        path = str(folder / MODEL_FILE)
        parameters = openvino.Core().read_model(path).get_rt_info(PARAMETERS_KEY.split("."))
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        compiled = openvino.compile_model(path, "CPU", settings)
        tokenizer = GraphTokenizer(folder)
        return GraphModel(lambda batch: np.array(compiled(batch)[0]), compiled, tokenizer, int(parameters.astype(str)))


def graph_parameters(path: Path) -> int:
    """The number of parameters in the metadata of an ONNX graph."""
    import onnx

    metadata = onnx.load(str(path), load_external_data=False).metadata_props
    return next((int(entry.value) for entry in metadata if entry.key == PARAMETERS_KEY), 0)
