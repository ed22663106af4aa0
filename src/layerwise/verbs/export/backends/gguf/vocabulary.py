"""The vocabulary of a fast tokenizer as GGUF stores it, for the kinds of tokenizer that llama.cpp has."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from layerwise.core.errors import ExportError
from layerwise.inputs.templating import added_ids
from layerwise.models.families.gguf_layouts import BYTES, PATTERNS, PIECES, WORD_PIECES

NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6  # llama.cpp's kinds of token
SPACE = "\u2581"
REFUSED = "llama.cpp has no tokenizer like this one"


@dataclass(frozen=True)
class Vocabulary:
    """What is written about a tokenizer."""

    model: str  # llama.cpp's kind of tokenizer
    tokens: list[str]
    types: list[int]
    merges: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    pre: str = "default"
    space_prefix: bool | None = None


def vocabulary(tokenizer: Any, size: int) -> Vocabulary:
    """The vocabulary, filled up to `size` tokens; raises ExportError for a tokenizer that llama.cpp does not have."""
    if not getattr(tokenizer, "is_fast", False):
        raise ExportError(f"{REFUSED}: {type(tokenizer).__name__} has no tokenizer.json")
    record = json.loads(tokenizer.backend_tokenizer.to_str())
    model, normalizer, splitter = record["model"], record["normalizer"] or {}, record["pre_tokenizer"] or {}
    if model["type"] not in ("WordPiece", "BPE"):
        raise ExportError(f"{REFUSED} ({model['type']})")
    words, types = words_and_types(record, size)
    if model["type"] == "WordPiece":
        if normalizer.get("type") != "BertNormalizer" or not normalizer["lowercase"]:
            raise ExportError(f"{REFUSED}: it reads WordPiece in lower case only")
        return Vocabulary(WORD_PIECES, [word_piece(word, kind) for word, kind in zip(words, types, strict=True)], types)
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    if pre := byte_level_name(splitter):
        return Vocabulary(BYTES, words, types, merges=[" ".join(pair) for pair in pairs], pre=pre)
    spaces = json.dumps([normalizer, splitter], ensure_ascii=False)
    if model.get("byte_fallback") and SPACE in spaces:
        prefixed = '"Prepend"' in spaces or splitter.get("prepend_scheme") in ("always", "first")
        return Vocabulary(PIECES, words, types, scores=merge_scores(words, pairs), space_prefix=prefixed)
    raise ExportError(f"{REFUSED} (BPE with the pre-tokenizer {splitter.get('type', 'none')})")


def byte_level_name(splitter: Mapping[str, Any]) -> str:
    """llama.cpp's name for the way that a tokenizer on bytes splits a text into words; "" if it has none."""
    steps = splitter["pretokenizers"] if splitter.get("type") == "Sequence" else [splitter]
    *before, last = steps
    if last.get("type") != "ByteLevel" or last["add_prefix_space"]:
        return ""
    if last["use_regex"]:
        digits = [step.get("type") == "Digits" and step["individual_digits"] for step in before]
        return "gpt-2" if not before else "smollm" if digits == [True] else ""
    patterns = [step["pattern"].get("Regex", "") for step in before if step.get("type") == "Split"]
    return PATTERNS.get(patterns[0], "") if len(patterns) == len(before) == 1 else ""


def words_and_types(record: Mapping[str, Any], size: int) -> tuple[list[str], list[int]]:
    """Every token by its id, and its kind."""
    known = [*record["model"]["vocab"].values(), *(added["id"] for added in record["added_tokens"])]
    if max(known) >= size:
        raise ExportError(f"the tokenizer has the token {max(known)}, and the model has {size} token embeddings")
    words, types = [f"[unused token {i}]" for i in range(size)], [UNUSED] * size
    for word, i in record["model"]["vocab"].items():
        is_byte = len(word) == 6 and word.startswith("<0x") and record["model"].get("byte_fallback")
        words[i], types[i] = word, BYTE if is_byte else NORMAL
    for added in record["added_tokens"]:
        words[added["id"]], types[added["id"]] = added["content"], CONTROL if added["special"] else USER_DEFINED
    return words, types


def word_piece(word: str, kind: int) -> str:
    """llama.cpp marks the start of a word, WordPiece its continuation."""
    if kind != NORMAL:
        return word
    return word[2:] if word.startswith("##") else SPACE + word


def merge_scores(words: list[str], pairs: list[list[str]]) -> list[float]:
    """Scores that give the order of the merges: what is merged first has the highest."""
    rank: dict[str, int] = {}
    for i, pair in enumerate(pairs):
        rank.setdefault("".join(pair), i)
    return [-float(rank.get(word, len(pairs))) for word in words]


def write_vocabulary(writer: Any, tokenizer: Any, size: int) -> None:
    """Writes the tokens, and those that are added before and after a text."""
    found = vocabulary(tokenizer, size)
    writer.add_tokenizer_model(found.model)
    writer.add_tokenizer_pre(found.pre)
    writer.add_token_list(found.tokens)
    writer.add_token_types(found.types)
    if found.merges:
        writer.add_token_merges(found.merges)
    if found.scores:
        writer.add_token_scores(found.scores)
    if found.space_prefix is not None:
        writer.add_add_space_prefix(found.space_prefix)
    start, end = added_tokens(tokenizer)
    writer.add_add_bos_token(start is not None)
    writer.add_add_eos_token(end is not None and found.model != WORD_PIECES)
    if found.model == WORD_PIECES:
        writer.add_add_sep_token(end is not None)
    ids = {
        "bos": tokenizer.bos_token_id if start is None else start,
        "eos": tokenizer.eos_token_id if end is None else end,
        "sep": end if found.model == WORD_PIECES else None,
        "unk": tokenizer.unk_token_id,
        "pad": tokenizer.pad_token_id,
    }
    for name, token in ids.items():
        if token is not None:
            getattr(writer, f"add_{name}_token_id")(token)


def added_tokens(tokenizer: Any) -> tuple[int | None, int | None]:
    """The tokens that are added before and after a text; llama.cpp adds at most one on each side."""
    start, end = added_ids(tokenizer)
    if len(start) > 1 or len(end) > 1:
        raise ExportError(f"{REFUSED}: it adds {len(start)} tokens before a text and {len(end)} after it")
    return (start[0] if start else None), (end[0] if end else None)
