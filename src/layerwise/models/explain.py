"""Explains why a model cannot be loaded, and what to pass instead."""

import errno
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from layerwise.core.display import command_line, operand, printable
from layerwise.core.errors import ModelError
from layerwise.core.hub import repository_files
from layerwise.runs.summary import counted

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json",
    "bpe.codes", "tokenizer_config.json", "tekken.json", "merges.txt",
)  # fmt: skip
ADDED_TOKENS_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
EXTRACTOR_FILES = ("preprocessor_config.json", "processor_config.json")
MODEL_HELP = "pass a hub id, or a folder with config.json, model.safetensors and a tokenizer"
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
CONVERTED = {".gguf": "GGUF, the format of llama.cpp", ".onnx": "an ONNX graph"}
LFS_POINTER = b"version https://git-lfs"
INPUT_KINDS = {"pixel_values_videos": "a video"}  # that are not read, by the main input of a class


def problem_of_file(path: Path) -> str:
    """Explains why a single file is not a model, and what to pass instead."""
    if path.suffix in CONVERTED:
        return converted_problem(f"{str(path)!r} is {CONVERTED[path.suffix]}")
    if (path.parent / "config.json").is_file():
        scan = command_line(["layerwise", "scan", str(path.parent)])
        return f"{str(path)!r} is one file of a model. Pass its folder: {scan}"
    return f"{str(path)!r} is a file, not a model: there is no config.json beside it; {MODEL_HELP}"


def problem_of_folder(name: str, files: Collection[str]) -> str:
    """Explains why a folder with these files is not a model, and what to type; "" if it may be one."""
    if "config.json" in files or "modules.json" in files:
        return ""
    if "adapter_config.json" in files:
        base = base_model_hint(Path(name)) or "BASE"
        command = command_line(["layerwise", "scan", operand(base), "--adapter", name])
        return f"{name!r} is a PEFT adapter, not a whole model. Load it with its base model: {command}"
    for suffix, kind in CONVERTED.items():
        if found := first_with(files, (suffix,)):
            return converted_problem(f"{name!r} has no config.json, only {kind} ({found})")
    if found := first_with(files, (".safetensors", *PICKLED)):
        return (
            f"{name!r} has weights ({found}) but no config.json. Copy the config and the tokenizer of the original "
            f"model:\n{command_line(['hf', 'download', 'ORIGINAL', '--include', '*.json', '--local-dir', name])}"
        )
    return f"{name!r} has no config.json; {MODEL_HELP}"


def converted_problem(what: str) -> str:
    return f"{what}; its layers cannot be read. Pass the model that it was made from: layerwise scan ORIGINAL"


def first_with(files: Collection[str], suffixes: tuple[str, ...]) -> str:
    """The first file, by name, that ends in one of these; "" if none does."""
    return next((file for file in sorted(files) if file.endswith(suffixes)), "")


def base_model_hint(adapter: Path) -> str:
    """The model that an adapter was trained on, according to its config; "" if unknown."""
    try:
        return str(json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def modalities_of(model_class: Any) -> tuple[str, ...]:
    """What a class of transformers takes as inputs: text, image, audio."""
    found = getattr(model_class, "input_modalities", ())
    return (found,) if isinstance(found, str) else tuple(found)


def require_tokenizer_files(name: str, subfolder: str = "") -> None:
    """Raises if a folder has no tokenizer: transformers would create one without a vocabulary."""
    require_any_file(name, subfolder, TOKENIZER_FILES, f"{name!r} has no tokenizer", "AutoTokenizer")


def require_extractor_files(name: str, noun: str, auto_class: str, subfolder: str = "") -> None:
    """Raises if the folder of a model that takes audio or images has no file for what makes its inputs."""
    problem = f"{name!r} takes {noun}, but has no {EXTRACTOR_FILES[0]}"
    require_any_file(name, subfolder, EXTRACTOR_FILES, problem, auto_class)


def require_any_file(name: str, subfolder: str, files: Collection[str], problem: str, auto_class: str) -> None:
    """Raises if a folder has none of these files, with the code that copies them from the original model."""
    folder = Path(name) / subfolder
    if not folder.is_dir() or any((folder / file).exists() for file in files):
        return
    raise ModelError(
        f"{problem}. Copy the one of the original model, in Python:\n"
        f"from transformers import {auto_class}\n"
        f'{auto_class}.from_pretrained("ORIGINAL").save_pretrained({json.dumps(str(folder))})'
    )


def require_plain_fields(record: Mapping[str, Any] | None, where: str) -> None:
    """Raises if a field of an added token has a control character in its name: tokenizers prints names as they are."""
    if record is None:
        return
    added = [record.get("added_tokens"), record.get("added_tokens_decoder"), record]
    tokens = [entry for part in added for entry in (part.values() if isinstance(part, dict) else part or ())]
    for name in (name for token in tokens if isinstance(token, dict) for name in token if name != printable(name)):
        raise ModelError(f"{where} has a field {printable(name)!r}, with control characters; it is damaged or hostile")


def require_vocabulary(tokenizer: Any, name: str) -> None:
    """Raises if a tokenizer's vocabulary contains only special tokens: every word would be unknown."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens) and not is_byte_level(tokenizer):
        raise ModelError(
            f"the tokenizer of {name!r} has only {counted(len(tokenizer), 'token')}, all of them special, so every "
            "word would be unknown. Its vocabulary file is missing: copy tokenizer.json from the original model"
        )


def is_byte_level(tokenizer: Any) -> bool:
    """True if the tokenizer needs no vocabulary, such as one based on bytes or characters."""
    first, second = (tokenizer(text)["input_ids"] for text in ("a cat", "zebras run"))
    return bool(first != second and tokenizer.unk_token_id not in first)


def explain_load_error(name: str, revision: str | None, subfolder: str, error: Exception) -> ModelError:
    """Turns a loading error into a ModelError that says what was passed and what to type."""
    folder = Path(name) / subfolder
    files = names_in(folder) if Path(name).is_dir() else hub_names(name, revision, subfolder)
    message = str(error).strip()
    if disk_is_full(error):
        return ModelError(f"cannot load {name!r}: the disk is full. Free some space, or set HF_HOME to another disk")
    if files and not first_with(files, (".safetensors",)):
        return ModelError(no_safetensors(name, subfolder, files))
    if damaged := [damage for file in sorted(files) if (damage := damage_of(folder / file))]:
        return ModelError(f"cannot load {name!r}: {damaged[0]}")
    if "trust_remote_code" in message or "custom code" in message.lower():
        return ModelError(f"{name!r} comes with its own Python code. If you trust it, add --trust-remote-code")
    if "TimmWrapper" in message:
        return ModelError(
            f"{name!r} is a model of timm, which layerwise does not read; use the same model in the format of "
            "transformers, such as google/vit-base-patch16-224 or facebook/dinov2-base"
        )
    if "does not recognize this architecture" in message:
        return ModelError(
            f"cannot read the config.json of {name!r}: {first_line(message)} Type: pip install -U transformers"
        )
    return ModelError(f"cannot load {name!r}: {first_line(message)}\nTo load a model, {MODEL_HELP}")


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def hub_names(name: str, revision: str | None, subfolder: str) -> set[str]:
    """The files of a hub id in this subfolder."""
    prefix = f"{subfolder}/" if subfolder else ""
    inside = {file.removeprefix(prefix) for file in repository_files(name, revision) if file.startswith(prefix)}
    return {file for file in inside if "/" not in file}


def no_safetensors(name: str, subfolder: str, files: Collection[str]) -> str:
    """Explains what a model without a .safetensors file has instead, and how to get one."""
    if problem := problem_of_folder(name, files):
        return problem
    if pickled := first_with(files, PICKLED):
        return (
            f"the weights of {name!r} are pickled ({pickled}), which can run code; layerwise reads safetensors. If you "
            f"trust the file, convert it once, in Python:\n{conversion(name, whole=bool(subfolder))}"
        )
    if found := first_with(files, tuple(CONVERTED)):
        return converted_problem(f"{name!r} contains {CONVERTED[Path(found).suffix]} ({found})")
    return f"{name!r} has no weights (no .safetensors file). Type: {download_command(name)}"


def download_command(folder: str) -> str:
    return command_line(["hf", "download", "ORIGINAL", "--local-dir", folder])


def conversion(name: str, *, whole: bool) -> str:
    """Lines of Python that save a model as safetensors; `whole` if it is the folder of a SentenceTransformer."""
    old, new = json.dumps(name), json.dumps(f"{Path(name).name}-safetensors")
    if whole:
        return (
            f"from sentence_transformers import SentenceTransformer\nSentenceTransformer({old}).save_pretrained({new})"
        )
    return (
        "from transformers import AutoModel, AutoTokenizer\n"
        f"for auto in (AutoModel, AutoTokenizer): auto.from_pretrained({old}).save_pretrained({new})"
    )


def damage_of(path: Path) -> str:
    """What is wrong with a .safetensors file, from its size and header; "" if it is complete."""
    if path.suffix != ".safetensors" or not path.is_file():
        return ""
    there = path.stat().st_size
    again = f"Download it again: {download_command(str(path.parent))}"
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            words = [
                *"git -C".split(),
                str(path.parent),
                "lfs",
                "pull",
            ]  # git alone would be the name of an architecture
            return f"{path.name} is a Git LFS pointer, not the weights. Type: {command_line(words)}"
        header = int.from_bytes(start[:8], "little")
        if there < 8 + header:
            return f"{path.name} is cut off or damaged: {there:,} bytes, without a whole header. {again}"
        file.seek(8)
        try:
            entries = json.loads(file.read(header))
            ends = [entry["data_offsets"][1] for key, entry in entries.items() if key != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"{path.name} is damaged: its header cannot be read. {again}"
    expected = 8 + header + max(ends, default=0)
    return "" if there >= expected else f"{path.name} is cut off: it has {there:,} of {expected:,} bytes. {again}"


def disk_is_full(error: BaseException) -> bool:
    """True if this error, or one that led to it, is that no space is left."""
    return any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in causes_of(error))


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and the errors that it was raised from or after."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def first_line(text: str) -> str:
    return text.splitlines()[0] if text else "no reason was given"
