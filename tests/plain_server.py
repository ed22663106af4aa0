"""A small reader of exported folders that follows the rules by which TEI and vLLM parse one. It is not their code.

It knows only the old names: `sentence_transformers.models.*` in modules.json and one flag per pooling mode. It runs
every block in the config and then the final norm, skips a module that it does not know, and reads tokenizer.json as it
is.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModel

POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}
KNOWN = "sentence_transformers.models."


def serve(folder: Path, texts: list[str]) -> tuple[torch.Tensor, list[str]]:
    """One vector per text, and the modules that were skipped."""
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(as_json(folder / "sentence_bert_config.json")["max_seq_length"])
    pooling, dense, scaled, skipped = "last", None, False, []  # without a known pooling: the last token, as vLLM did
    for module in as_json(folder / "modules.json"):
        kind = module["type"].removeprefix(KNOWN) if module["type"].startswith(KNOWN) else ""
        config = as_json(folder / module["path"] / "config.json") if kind in ("Pooling", "Dense") else {}
        if kind == "Pooling":
            (pooling,) = [name for key, name in POOLINGS.items() if config[key]]
        elif kind == "Dense" and config["activation_function"].endswith(("Identity", "Tanh")):
            dense = load_file(folder / module["path"] / "model.safetensors")
        elif kind == "Normalize":
            scaled = True
        elif kind != "Transformer":
            skipped.append(module["type"])
    rows = []
    with torch.inference_mode():
        for text in texts:
            states = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
            row = {"cls": states[0], "mean": states.mean(dim=0), "last": states[-1]}[pooling]
            if dense is not None:
                row = dense["linear.weight"] @ row + dense["linear.bias"]
            rows.append(torch.nn.functional.normalize(row, dim=0) if scaled else row)
    return torch.stack(rows), skipped


def as_json(path: Path):
    return json.loads(path.read_text())
