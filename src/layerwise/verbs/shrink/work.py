"""The working folder of shrink: the original's vectors, computed once, and what else is kept for further calls."""

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from layerwise.core.outputs import require_path
from layerwise.core.progress import is_announcing
from layerwise.core.templates import template_of_prompt
from layerwise.engines.local import LocalEngine
from layerwise.models.network import Network
from layerwise.models.readouts import last_recipe
from layerwise.runs.ownership import MARKER
from layerwise.verbs.eval.encoding import Encoding, with_engine
from layerwise.verbs.eval.vectors import VectorKind, VectorStore
from layerwise.verbs.shrink.texts import PromptedText

BATCH_TOKENS = 4096
OWN_FILE, OWN_FOLDER = re.compile(r"blocks-[0-9a-f]{16}\.json"), re.compile(r"training-[0-9a-f]{16}")


def work_folder(out: Path, work: str | Path | None) -> Path:
    """The folder that was asked for, or one beside `out`."""
    return require_path(work) if work is not None else out.with_name(f"{out.name}.work")


def delete_work(folder: Path) -> None:
    """Deletes what shrink has put into a claimed folder, and the folder itself unless the user has put files there."""
    for path in list(folder.iterdir()):
        if path.name == "vectors" or OWN_FOLDER.fullmatch(path.name):
            shutil.rmtree(path)
        elif path.name == MARKER or OWN_FILE.fullmatch(path.name):
            path.unlink()
    with suppress(OSError):  # it is not empty
        folder.rmdir()


def stored_vectors(network: Network, folder: Path, texts: Sequence[PromptedText]) -> Tensor:
    """The vectors (N, E) of the model as shipped, each text with its prompt; computed once, then read from disk."""
    readout = last_recipe(network).readout
    engine = LocalEngine(network, network.identity())
    rows: Tensor | None = None
    for prompt in dict.fromkeys(item.prompt for item in texts):
        places = [i for i, item in enumerate(texts) if item.prompt == prompt]
        kind = VectorKind(
            network.fingerprint(), str(network.dtype).removeprefix("torch."), network.default_length, (readout,),
            template_of_prompt(prompt),
        )  # fmt: skip
        encoding = Encoding(kind, "float32", BATCH_TOKENS, torch.get_num_threads())
        store = with_engine(engine, encoding, VectorStore(folder / "vectors", kind), progress=is_announcing())
        found = torch.from_numpy(store.vectors([texts[i].text for i in places], readout))
        if rows is None:
            rows = torch.empty(len(texts), found.shape[1])
        rows[places] = found
    assert rows is not None, "there are texts"
    return rows
