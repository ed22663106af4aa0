"""llama.cpp as a library (xllamacpp): loads a GGUF file and encodes texts with its own tokenizer."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from layerwise.core.errors import ExportError
from layerwise.verbs.export.backends.backend import BATCH_SIZE

MAP_FILE, TOKENIZER_FILE = "map.safetensors", "tokenizer.json"
LENGTH_KEY, NORMALIZE_KEY = "layerwise.max_length", "layerwise.normalize"  # in the metadata of the GGUF file
SAME_TOKENS = 1e-6  # largest 1 - cosine between the vectors of a text and of its tokens, if the tokens are the same
ODD_TEXTS = (
    "It's 12,345.67 % of x_1 -- isn't it?",
    "two  spaces,\ttab\nand\n\nlines ",
    " leading space",
    "na\u00efve caf\u00e9 \u00dcbung stra\u00dfe",
    "cafe\u0301 decomposed",
    "\u6771\u4eac\u90fd \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0645\u0631\u062d\u0628\u0627",
    "emoji \U0001f600\U0001f1e9\U0001f1ea \u2013 \u201cquotes\u201d\u2026",
    "https://example.org/a?b=c&d=%20#e CamelCase snake_case",
    "def f(x):\n    return x**2  # comment",
    "ALL CAPS AND 2024-11-16T14:53",
    "\u00bd \u2460 \u2167 \ufb01ne \u212b",
)


@dataclass(frozen=True)
class LlamaCppModel:
    """A GGUF file in llama.cpp. It cuts texts that are too long and applies the linear map, as a client must."""

    model: Any  # an xllamacpp.Server
    tokenizer: Any  # of tokenizer.json, which only cuts
    parameters: int
    linear: dict[str, Tensor]
    normalize: bool

    def encode(self, texts: Sequence[str], batch_size: int = BATCH_SIZE) -> Tensor:
        """One row per text, on the CPU."""
        inputs = [self.cut(text) for text in texts]
        parts = [self.rows(inputs[start : start + batch_size]) for start in range(0, len(inputs), batch_size)]
        rows = torch.cat(parts)
        if self.linear:
            rows = rows @ self.linear["weight"].mT + self.linear["bias"]
        return torch.nn.functional.normalize(rows, dim=1) if self.normalize else rows

    def cut(self, text: str) -> str | list[int]:
        """The text; its first tokens if it is too long, which llama.cpp would refuse."""
        encoding = self.tokenizer.encode(text)
        return list(encoding.ids) if encoding.overflowing else text

    def rows(self, inputs: Sequence[str | list[int]]) -> Tensor:
        """The vectors of texts or lists of tokens as llama.cpp gives them, unscaled."""
        request = {"input": list(inputs), "encoding_format": "float", "embd_normalize": -1}
        answer = self.model.handle_embeddings(request)
        if "data" not in answer:
            raise ExportError(f"llama.cpp gave no vectors: {answer.get('error', {}).get('message', answer)}")
        found = sorted(answer["data"], key=lambda item: int(item["index"]))
        return torch.tensor([item["embedding"] for item in found])

    def split_odd_texts(self) -> dict[str, bool]:
        """For each odd text that is not too long: whether llama.cpp splits it into the tokens of tokenizer.json."""
        encodings = {text: self.tokenizer.encode(text) for text in ODD_TEXTS}
        return {
            text: self.splits_into(text, list(encoding.ids))
            for text, encoding in encodings.items()
            if encoding.ids and not encoding.overflowing
        }

    def splits_into(self, text: str, ids: list[int]) -> bool:
        """Whether llama.cpp gives the same vector for a text and for these tokens."""
        try:
            by_text, by_tokens = self.rows([text]).double(), self.rows([ids]).double()
        except ExportError:  # so many tokens that it refuses them
            return False
        return bool(torch.nn.functional.cosine_similarity(by_text, by_tokens).item() >= 1 - SAME_TOKENS)


def load_gguf(folder: Path, file: str) -> LlamaCppModel:
    """Loads one of the files of an export; it runs on the CPU."""
    import gguf
    from tokenizers import Tokenizer

    reader = gguf.GGUFReader(str(folder / file))
    length, normalize = (stored_value(reader, key) for key in (LENGTH_KEY, NORMALIZE_KEY))
    parameters = sum(int(np.prod(tensor.shape)) for tensor in reader.tensors)
    linear = load_file(folder / MAP_FILE) if (folder / MAP_FILE).is_file() else {}
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    return LlamaCppModel(start_server(folder / file, int(length)), tokenizer, parameters, linear, bool(normalize))


def stored_value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ExportError(f"the GGUF file has no {key}: it was not written by layerwise")
    return field.contents()


def start_server(path: Path, length: int) -> Any:
    """llama.cpp in this process, as llama-server runs it; it opens no port where sockets can be files."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.embedding, settings.warmup, settings.n_parallel, settings.verbosity = True, False, 1, 0
    settings.n_ctx, settings.n_batch, settings.n_ubatch = length + 1, length, length
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = torch.get_num_threads()
    settings.n_threads_http = 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # the socket is not needed afterwards
        if os.name == "posix":
            settings.hostnames = [f"{scratch}/llama.sock"]
        try:
            server = xllamacpp.Server(settings)
        except RuntimeError as error:
            raise ExportError(f"llama.cpp cannot load {path.name}: {error}") from error
    server.handle_embeddings({"input": [[0]]})  # one that is deleted before it has begun to work would never end
    return server
