"""Embedding models for scoring: folders of sentence-transformers, and graphs in 8 bits."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from layerwise.verbs.export.backends.graph import GraphModel
from layerwise.verbs.export.backends.onnx import INT8_FILE, load_graph

ROUNDED = "round what matrices multiply to bfloat16, for both models: half of the time on a CPU with AMX"


def compute(*, rounded: bool) -> None:
    """How matrices are multiplied from here on."""
    torch.set_float32_matmul_precision("medium" if rounded else "highest")


class OnceEncoder(SentenceTransformer):
    """Encodes a text once for each prompt: the pairs of SICK-R and the two tasks of MASSIVE repeat most of theirs."""

    def encode(self, inputs: Any, **options: Any) -> Any:
        if isinstance(inputs, str):
            return self.encoded([inputs], **options)[0]
        known = self.__dict__.setdefault("known", {})
        keys = [(options.get("prompt"), options.get("prompt_name"), text) for text in inputs]
        if new := [key for key in dict.fromkeys(keys) if key not in known]:
            known.update(zip(new, self.encoded([text for _, _, text in new], **options), strict=True))
        return np.stack([np.asarray(known[key]) for key in keys])

    def encoded(self, texts: Sequence[str], **options: Any) -> Any:
        return super().encode(texts, **options)


class GraphEncoder(OnceEncoder):
    """The prompts and settings of the whole model, and the vectors of its graph in 8 bits, which have length 1."""

    def encoded(self, texts: Sequence[str], **options: Any) -> NDArray[Any]:
        graph: GraphModel = self.__dict__["graph"]
        name = options.get("prompt_name") or self.default_prompt_name
        prompt = options.get("prompt") or (self.prompts.get(name, "") if name else "")
        rows: NDArray[Any] = graph.encode([prompt + text for text in texts], options.get("batch_size", 32)).numpy()
        return rows


@cache
def opened(folder: Path) -> OnceEncoder:
    """The model in a folder. A graph stands in a folder `int8`, beside one for which `whole` has the settings."""
    if not (folder / INT8_FILE).is_file():
        return OnceEncoder(str(folder), device="cpu")
    graph = load_graph(folder, INT8_FILE)
    graph.tokenizer.prompt = ""  # GraphEncoder adds the one that is asked for
    model = GraphEncoder(str(folder.parent / "whole"), device="cpu")
    model.__dict__["graph"] = graph
    return model
