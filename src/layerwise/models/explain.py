"""Why a model cannot be loaded: what kind of thing it is, and what to type instead."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from layerwise.core.errors import ModelError

VOCABULARIES = (
    "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json",
    "bpe.codes", "tokenizer_config.json", "tekken.json", "merges.txt",
)  # fmt: skip
WANTED = "a hub id, or a folder with config.json, model.safetensors and a tokenizer"


def require_model_place(name: str) -> None:
    """Raises for what is plainly no model, before the hub is asked and before any weight is read."""
    if not name.strip():
        raise ModelError(f"no model is named; pass {WANTED}")
    path = Path(name)
    if path.is_file():
        raise ModelError(f"{name!r} is a file ({kind_of_file(path)}); pass {WANTED}")
    if not path.exists():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            near = get_close_matches(path.name, (p.name for p in path.parent.glob("*")), 1)
            raise ModelError(f"no folder {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return
    files = {p.name for p in path.iterdir()}
    if "adapter_config.json" in files and "config.json" not in files:
        raise ModelError(f"{name!r} is a PEFT adapter: pass its base model, and --adapter {name}{base_of(path)}")
    if "config.json" not in files and "modules.json" not in files:
        found = next((kind_of_file(path / file) for file in sorted(files) if kind_of_file(path / file)), "")
        raise ModelError(f"{name!r} has no config.json" + (f", only {found}" if found else "") + f"; pass {WANTED}")


def kind_of_file(path: Path) -> str:
    """What a file of weights is, by its name; "" where it is none."""
    kinds = {
        ".gguf": "GGUF, the format of llama.cpp, which cannot be read layer by layer; use the original model",
        ".bin": "pickled weights",
        ".pt": "pickled weights",
        ".pth": "pickled weights",
        ".ckpt": "pickled weights",
        ".onnx": "an ONNX graph, whose layers cannot be read; use the original model",
        ".safetensors": "weights without their config",
    }
    return kinds.get(path.suffix, "")


def base_of(adapter: Path) -> str:
    """` (its config names BASE)` where an adapter says what it was trained on."""
    try:
        base = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
        return f" (its config names {base} as the base)"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def require_tokenizer_files(name: str, subfolder: str = "") -> None:
    """Raises where a folder has no tokenizer: transformers would make one that knows no word."""
    folder = Path(name) / subfolder
    if not folder.is_dir() or any((folder / file).exists() for file in VOCABULARIES):
        return
    if (folder / "preprocessor_config.json").exists() or (folder / "processor_config.json").exists():
        raise ModelError(f"{name!r} has no tokenizer but a preprocessor: it reads images or speech, not texts")
    raise ModelError(
        f"{name!r} has no tokenizer; copy the tokenizer's files of the original model into the folder "
        "(AutoTokenizer.from_pretrained(ORIGINAL).save_pretrained(FOLDER)), or pass a pair (module, tokenizer)"
    )


def require_words(tokenizer: Any, name: str) -> None:
    """Raises where a tokenizer's vocabulary is nothing but special tokens: every word would be unknown."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens) and not is_byte_level(tokenizer):
        raise ModelError(
            f"the tokenizer of {name!r} knows {len(tokenizer)} tokens, all of them special: every word would be "
            "unknown. Its vocabulary file is missing"
        )


def is_byte_level(tokenizer: Any) -> bool:
    """True where texts are told apart without a vocabulary, as by bytes or characters."""
    one, other = (tokenizer(text)["input_ids"] for text in ("a cat", "zebras run"))
    return bool(one != other and tokenizer.unk_token_id not in one)


def explained(name: str, subfolder: str, error: Exception) -> ModelError:
    """The error of a loader, told by what kind of thing was given."""
    folder, said = Path(name) / subfolder, str(error).strip()
    files = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    weights = [file for file in files if file.endswith(".safetensors")]
    if files and not weights and (pickled := sorted(f for f in files if f.endswith((".bin", ".pt", ".pth", ".ckpt")))):
        return ModelError(
            f"the weights of {name!r} are pickled ({pickled[0]}), which can run code; layerwise reads safetensors. "
            "Convert them once, where you trust the file: AutoModel.from_pretrained(FOLDER).save_pretrained(NEW)"
        )
    if any(file.endswith(".gguf") for file in files) and not weights:
        return ModelError(f"{name!r} holds GGUF files, whose layers cannot be read; use the original model")
    if files and not weights and "config.json" in files:
        return ModelError(f"{name!r} has no weights (no .safetensors file); download it again")
    if type(error).__name__ == "SafetensorError" or "safetensor" in said.lower() and "header" in said.lower():
        return ModelError(f"the weights of {name!r} are cut off or damaged ({said}); download them again")
    if "trust_remote_code" in said or "custom code" in said.lower():
        return ModelError(f"{name!r} brings its own code, which --trust-remote-code allows to run: {said}")
    return ModelError(f"cannot load {name!r}: {said}\nPass {WANTED}")
