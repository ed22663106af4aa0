"""Hidden states in safetensors files, as vLLM and speculators write them: one file per text."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.core.progress import announce
from layerwise.models.elsewhere.network import ElsewhereNetwork, open_elsewhere
from layerwise.models.spec import ModelSpec
from layerwise.runs.summary import counted, format_bytes

STATES, TOKENS = "hidden_states", "token_ids"  # the tensors of a file: (T, K, D) and (T,)


@dataclass(frozen=True)
class StoredStates:
    """The files of a folder, by the tokens whose hidden states they hold."""

    folder: Path
    files: Mapping[bytes, Path]
    held: int  # how many layers
    depth: int
    engine: str
    tokenizer: Any  # for messages

    def states(self, sequences: Sequence[Sequence[int]], layers: Sequence[int]) -> list[Tensor]:
        places = self.places(layers)
        return [self.one(sequence)[:, places] for sequence in sequences]

    def places(self, layers: Sequence[int]) -> list[int]:
        """Where these layers are. The files do not say which they hold: all, all but layer 0, or those asked for."""
        known = {self.depth: range(1, self.depth + 1), self.depth + 1: range(self.depth + 1)}
        held = known.get(self.held, layers)
        if len(held) != self.held:
            raise InputError(
                f"the files in {self.folder} hold {counted(self.held, 'layer')} of {self.depth}, and do not say which: "
                "name them with --layers, as vLLM was told (eagle_aux_hidden_state_layer_ids), in ascending order"
            )
        if not set(layers) <= set(held):
            raise InputError(f"the files in {self.folder} have no layer 0; pass --layers {','.join(map(str, held))}")
        return [held.index(layer) for layer in layers]

    def one(self, sequence: Sequence[int]) -> Tensor:
        path = self.files.get(key_of(sequence))
        if path is None:
            text = self.tokenizer.decode(list(sequence)[:20])
            raise InputError(
                f"no file in {self.folder} holds the hidden states of the {counted(len(sequence), 'token')} that begin "
                f"with {text!r}: make them with the same tokenizer, template and --max-length"
            )
        with opened(path) as file:
            return file.get_tensor(STATES)  # type: ignore[no-any-return]


def open_stored(spec: ModelSpec) -> ElsewhereNetwork:
    """A network whose hidden states are in the folder that the spec names."""
    network = open_elsewhere(spec)
    root = Path(str(spec.states))
    paths = sorted(root.rglob("*.safetensors"))
    if not paths:
        raise InputError(f"{root} holds no .safetensors files of hidden states")
    size = sum(path.stat().st_size for path in paths)
    announce(f"reading {counted(len(paths), 'file')} of hidden states ({format_bytes(size)}) for their identity")
    files: dict[bytes, Path] = {}
    digest, counts = hashlib.blake2b(digest_size=8), set()
    for path in paths:
        tokens, held = contents(path, network.width)
        files[key_of(tokens)] = path
        counts.add(held)
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "blake2b").digest())
    if len(counts) > 1:
        raise InputError(f"the files in {root} hold different numbers of layers: {', '.join(map(str, sorted(counts)))}")
    engine = f"stored hidden states {digest.hexdigest()}"
    network.source = StoredStates(root, files, counts.pop(), network.depth, engine, network.preprocessor)
    return network


def contents(path: Path, width: int) -> tuple[list[int], int]:
    """The tokens of a file, and how many layers it holds; raises if it cannot belong to a model of this width."""
    with opened(path) as file:
        if not {STATES, TOKENS} <= set(file.keys()):
            raise InputError(f"{path} has no tensors {STATES} and {TOKENS}: it is not a file of hidden states of vLLM")
        tokens, shape = file.get_tensor(TOKENS).reshape(-1).tolist(), file.get_slice(STATES).get_shape()
    if len(shape) != 3 or shape[0] != len(tokens) or shape[2] != width:
        raise InputError(
            f"{path} holds hidden states of shape {tuple(shape)} for {counted(len(tokens), 'token')}; expected "
            f"({len(tokens)}, layers, {width}) for this model"
        )
    return tokens, shape[1]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file: {error}") from error


def key_of(tokens: Sequence[int]) -> bytes:
    return hashlib.blake2b(np.asarray(tokens, dtype=np.int64).tobytes(), digest_size=16).digest()
