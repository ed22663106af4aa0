"""Inputs: odd texts in every format and encoding. Their vectors must be those that plain transformers gives each text.

The reference tokenizes each text alone and runs the model without layerwise. A file that cannot be read as it is must
be refused by its name.
"""

import csv
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from abuse import forked, oracles
from abuse.desk import Case, Workshop

LENGTH = 48  # tokens; the tokenizer of this model has one token per byte
TEXTS_PER_CASE = 40
RANGES = [
    (0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F),
    (0x200B, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF),
    (0xFDD0, 0xFDEF), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF), (0x1F300, 0x1F6FF), (0xE0000, 0xE007F), (0x10FFF0, 0x10FFFF),
    (0x1, 0x1F), (0x7F, 0x9F),
]  # fmt: skip
CORPUS = [
    "NA", "null", "nan", "None", "N/A", "true", "1e5", "01", "-", "=1+1", "@SUM(A1)", "'; DROP TABLE x; --",
    "<script>alert(1)",
    "{text}", "{0}", "%s%n", "\\", "\\u0000", '"', "''", '"unclosed', "a,b", "a;b", "a\tb", "<s>", "</s>", "<pad>",
    "<s></s>",
    "[MASK]", "\ufeffmark", "mark\ufeff", "\u0001", "e\u0301" * 30, "\u202eright to left", "👨‍👩‍👧‍👦",
    "🏳️‍🌈" * 9, "ﷺ" * 20, "Z̸̡͍a̷l̶g̵o",
    "  spaces  ", "\u3000wide\u3000", "\xa0", "\u2003", "\u200b", "\u2028", "\x85", "\x0b", "\x1c", "a\x1cb",
    "a\x85b", "a\u2028b",
    "ß", "İ", "ǅ", "ﬁ", "Å", "Å", "\x7f", "\x1b[31mred\x1b[0m", "\ud83d", "x\udfff", "http://u:p@h/",
    "../../etc/passwd",
]  # fmt: skip


def odd_text(draw: random.Random) -> str:
    """A text from the corpus, from ranges of Unicode, or both; sometimes very long."""
    shape = draw.random()
    if shape < 0.25:
        return draw.choice(CORPUS)
    if shape < 0.3:
        return draw.choice(["a", "é", "👍", " b", "\x01"]) * draw.choice([1, 2, 47, 48, 49, 1000, 20000])
    length = draw.choice([1, 2, 3, 8, 20, 60])
    pieces = []
    for _ in range(length):
        low, high = draw.choice(RANGES)
        pieces.append(chr(draw.randint(low, high)))
    text = "".join(pieces)
    return text + draw.choice(CORPUS) if draw.random() < 0.2 else text


def is_blank(text: str) -> bool:
    return not text.strip()


def has_surrogate(text: str) -> bool:
    return any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def write_txt(path: Path, texts: list[str], draw: random.Random) -> list[str]:
    kept = [text.replace("\n", " ").replace("\r", " ").lstrip("\ufeff") for text in texts]
    mark = b"\xef\xbb\xbf" if draw.random() < 0.2 else b""
    path.write_bytes(mark + draw.choice(["\n", "\r\n"]).join(kept).encode() + b"\n")
    return kept


def write_csv(path: Path, texts: list[str], draw: random.Random) -> list[str]:
    kept = [text.replace("\x00", "") for text in texts]
    with path.open("w", encoding=draw.choice(["utf-8", "utf-8-sig"]), newline="") as file:
        bare = draw.random() < 0.5 and not any("\r" in text for text in kept)  # Python would not quote these
        quoting = csv.QUOTE_MINIMAL if bare else csv.QUOTE_ALL
        writer = csv.writer(file, quoting=quoting, lineterminator=draw.choice(["\n", "\r\n"]))
        writer.writerow(["text", "n"])
        writer.writerows([text, i] for i, text in enumerate(kept))
    return kept


def write_jsonl(path: Path, texts: list[str], draw: random.Random) -> list[str]:
    escaped = draw.random() < 0.5 or any(map(has_surrogate, texts))
    lines = [json.dumps({"n": 1, "text": text}, ensure_ascii=escaped) for text in texts]
    path.write_bytes("\n".join(lines).encode() + b"\n")
    return texts


def write_parquet(path: Path, texts: list[str], draw: random.Random) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = draw.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    pq.write_table(pa.table({"text": pa.array(texts).cast(kind)}), path, row_group_size=draw.choice([1, 7, 1000]))
    return texts


FORMATS: dict[str, Callable[[Path, list[str], random.Random], list[str]]] = {
    ".txt": write_txt, ".csv": write_csv, ".jsonl": write_jsonl, ".parquet": write_parquet,
}  # fmt: skip


def spoil(path: Path, draw: random.Random) -> str:
    """Turns a good file into a near miss; says how."""
    data, how = path.read_bytes(), draw.choice(["UTF-16", "Latin-1", "gzip", "cut", "renamed", "NUL", "mixed", "empty"])
    if how == "UTF-16":
        path.write_bytes(data.decode("utf-8", "replace").encode("utf-16"))
    elif how == "Latin-1":
        path.write_bytes(b"\xe9\xe8 caf\xe9\n" + data)
    elif how == "gzip":
        path.write_bytes(gzip.compress(data))
    elif how == "cut":
        path.write_bytes(data[: draw.randrange(1, len(data))])
    elif how == "NUL":
        path.write_bytes(b"\x00" + data)
    elif how == "mixed":
        path.write_bytes(data + b"\xff\xfe\xfd\n")
    elif how == "empty":
        path.write_bytes(b"")
    else:
        suffix = draw.choice([s for s in FORMATS if s != path.suffix])
        path.write_bytes(FORMATS_OF_NOTHING[suffix])
    return how


FORMATS_OF_NOTHING = {
    ".txt": b"\n\n \n",
    ".csv": b"id,value\n1,2\n",
    ".jsonl": b'["a", "b"]\n3\n',
    ".parquet": b"PAR1PAR1",
}


def make_byte_model(folder: Path) -> Path:
    """A tiny decoder whose tokenizer has a token per byte, so that any two texts differ for it."""
    import torch
    from families import make_config
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModel, PreTrainedTokenizerFast

    if not folder.exists():
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", *alphabet])}
        raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
        PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=64, **special).save_pretrained(folder)
        torch.manual_seed(0)
        config = make_config("llama")
        config.vocab_size = len(vocabulary)
        AutoModel.from_config(config).eval().save_pretrained(folder)
    return folder


def reference(folder: Path, texts: list[str], in_list: bool) -> list[Any]:
    """The mean of layer 1 of each text, by transformers alone; None for a blank row of a file. A list has no rows."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found: list[Any] = []
    for text in texts:
        if is_blank(text) and not (in_list and text):
            found.append(None)
            continue
        ids = tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt").input_ids
        with torch.no_grad():
            found.append(model(ids, output_hidden_states=True).hidden_states[1][0].mean(0))
    return found


def attack(model: Path, file: Path | None, texts: list[str], batch_tokens: int) -> list[str]:
    """Runs in the child: the problems with the vectors of these texts, from a file or from a list."""
    import torch

    import layerwise
    from layerwise.core.errors import InputError

    try:
        frame = layerwise.embed(str(model), file or texts, layers=1, max_length=LENGTH, batch_tokens=batch_tokens)
    except InputError as error:
        if any(map(has_surrogate, texts)) and "surrogate" in str(error):
            return []
        if all(map(is_blank, texts)):
            return []
        return [f"refused good texts: {str(error)[:200]}"]
    if any(map(has_surrogate, texts)):
        return ["took a text with half a character"]
    if len(frame) != len(texts):
        return [f"{len(frame)} rows for {len(texts)} texts"]
    problems = []
    for text, row, expected in zip(texts, frame.itertuples(), reference(model, texts, file is None), strict=True):
        if expected is None or row.layer_1 is None:
            if (expected is None) != (row.layer_1 is None):
                problems.append(f"blank or not: {ascii(text)[:60]}")
        elif (torch.tensor(row.layer_1) - expected).abs().max() > 1e-5 * expected.abs().max():
            problems.append(f"another vector than the reference: {ascii(text)[:60]}")
        elif row.text != text:
            problems.append(f"another text: {ascii(text)[:60]} became {ascii(row.text)[:60]}")
    return problems[:3]


def near_miss(model: Path, file: Path) -> list[str]:
    """Runs in the child: a file that is not what its name says is refused by its name, or read as texts."""
    import layerwise
    from layerwise.core.errors import InputError

    problems = []
    for verb in (
        lambda: layerwise.embed(str(model), file, layers=1),
        lambda: layerwise.scan(str(model), file, metrics="mean_norm"),
    ):
        try:
            verb()
        except InputError as error:
            if file.name not in str(error):
                problems.append(f"the refusal names no file: {str(error)[:200]}")
    return problems


def case(workshop: Workshop, draw: random.Random) -> Case:
    model = make_byte_model(workshop.base / "bytes")
    desk = workshop.fresh()
    suffix = draw.choice([*FORMATS, "list"])
    texts = [odd_text(draw) for _ in range(TEXTS_PER_CASE)]
    if suffix != ".jsonl" and suffix != "list" or draw.random() < 0.8:
        texts = [text for text in texts if not has_surrogate(text)]
    file = None if suffix == "list" else desk / f"odd{suffix}"
    if file is not None:
        texts = FORMATS[suffix](file, texts, draw)
    spoiled = spoil(file, draw) if file is not None and draw.random() < 0.25 else ""
    batch_tokens = draw.choice([LENGTH, 200, 4096])
    before = oracles.tree_of(desk)
    if spoiled and file is not None:
        outcome = forked.run(lambda: near_miss(model, file), desk, workshop.streams)
    else:
        outcome = forked.run(lambda: attack(model, file, texts, batch_tokens), desk, workshop.streams)
    problems = [*(outcome.answer or []), *oracles.raw_errors(outcome, (0,)), *outcome.left]
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), [])
    what = f"{len(texts)} texts in {f'a {suffix} file' if file else 'a list'}{f', {spoiled}' if spoiled else ''}"
    return Case(what, problems, count=len(texts), printed=outcome.err[-3000:])
