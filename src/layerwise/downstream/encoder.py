"""The encoder that mteb sees: one layer of a model, as a view over the vector store."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.downstream.vectors import VectorStore
from layerwise.passes.vectors import Readout

StoreFor = Callable[[str, str], VectorStore]  # prompt, role -> store


def make_encoder(stores: StoreFor, readout: Readout, *, name: str, revision: str, prompts: dict[str, str]) -> Any:
    """An mteb encoder for one readout. Prompts are put before the texts, by mteb's own rules of which applies."""
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class LayerEncoder(AbsEncoder):
        model_prompts = prompts
        mteb_model_meta = ModelMeta.create_empty(
            overwrites={"name": model_name(name), "revision": revision, "experiment_kwargs": experiment(readout)}
        )

        def encode(
            self, inputs: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, prompt_type: Any = None, **_: Any
        ) -> NDArray[np.float32]:
            texts = [text for batch in inputs for text in batch["text"]]
            chosen = self.get_prompt_name(task_metadata, prompt_type) if prompts else None
            prompt, role = prompts.get(chosen or "", ""), getattr(prompt_type, "value", prompt_type) or ""
            return stores(prompt, role if prompts else "").vectors(texts, readout)

    return LayerEncoder()


def model_name(name: str) -> str:
    """mteb wants organisation/model; a folder becomes local/<its name>."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return "/".join(parts) if len(parts) == 2 and not name.startswith(("/", ".")) else f"local/{parts[-1]}"


def experiment(readout: Readout) -> dict[str, Any]:
    """What tells this layer's results from the others' in mteb's folders: layer_6, or layer_6 with what is unusual."""
    usual, asked = asdict(Readout(readout.layer)), asdict(readout)
    return {"layer": readout.layer} | {name: word for name, word in asked.items() if word != usual[name]}
