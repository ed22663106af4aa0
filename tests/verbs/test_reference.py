"""scan, embed and export against a second implementation in plain transformers and NumPy (reference.py), on random
settings: models, tokenizers, texts with special tokens in them, token choices, poolings, lengths, batches.

More of them by hand, with a seed of your own, also on folders of real models:

    PYTHONPATH=tests python tests/verbs/test_reference.py --seed 7 --settings 1000
    PYTHONPATH=tests python tests/verbs/test_reference.py --seed 7 --settings 30 FOLDER ...
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
from families import make_model, make_tokenizer
from tokenizers.normalizers import Replace
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoTokenizer

import layerwise
from layerwise.core.errors import InputError
from layerwise.inputs.tokenizing import AddedIds, added_ids

SEED, SETTINGS, PARTS = 20, 208, 8  # in CI: settings are divided over as many tests
AT_ONCE = 2  # parts of every change; the others are run by --full
EXPORTED = 9  # one setting of so many is also exported; no divisor of PARTS, so that every test has some
# Where the blocks and the final norm of a family are.
PLACES = {
    "llama": ("layers", "norm"),
    "qwen3": ("layers", "norm"),
    "gemma3_text": ("layers", "norm"),
    "gpt2": ("h", "ln_f"),
    "gpt_neox": ("layers", "final_layer_norm"),
    "opt": ("decoder.layers", "decoder.final_layer_norm"),
    "bert": ("encoder.layer", ""),
    "distilbert": ("transformer.layer", ""),
    "mpnet": ("encoder.layer", ""),
    "t5": ("block", "final_layer_norm"),
}
PROMPT_METRICS = ("prompt_entropy", "prompt_entropy_normalized", "curvature", "mean_norm")
DATASET_METRICS = (
    "dataset_entropy",
    "effective_rank",
    "participation",
    "top_share",
    "anisotropy",
    "intrinsic_dimension",
)
ADDS = {"nothing": "$A", "both": "<s> $A </s>", "start": "<s> $A", "end": "$A </s>"}
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>"]
REFUSED = ("a single stack of such a model", "puts no token of its own first")  # what is known not to be exportable
RELATIVE = {"scan": 1e-6, "embed": 2e-6, "export": 1e-5}  # embed and export give float32


@dataclass
class Model:
    """A model in float64 with its tokenizer, and where its blocks and its final norm are."""

    module: Any
    tokenizer: Any
    blocks: str
    norm: str
    width: int
    words: list[str]
    special: list[str]
    longest: int = 60
    stack: Any = None  # what the reference runs: the encoder of a model with encoder and decoder

    @property
    def depth(self) -> int:
        return len(self.stack.get_submodule(self.blocks))


@dataclass
class Found:
    """What was compared, and what differed."""

    compared: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*RELATIVE, "unsure", "refused"), 0))
    differences: list[str] = field(default_factory=list)

    def check(self, kind: str, name: str, found: Any, expected: Any, scale: float = 0.0) -> None:
        """Numbers or arrays; `scale` is the size that rounding errors are relative to."""
        self.compared[kind] += 1
        found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
        size = max(scale, float(np.nanmax(np.abs(expected), initial=0.0)))
        same = np.isclose(found, expected, rtol=0, atol=RELATIVE[kind] * max(size, 1e-3), equal_nan=True)
        if found.shape != expected.shape or not same.all():
            self.differences.append(f"{kind}: {found.ravel()[:4]}, expected {expected.ravel()[:4]}: {name}")


@cache
def tiny_model(family: str) -> Any:
    """With a few tokens whose embeddings are up to 60 times as long, so that some are attention sinks."""
    model = make_model(family).double()
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        for token, factor in ((1, 40.0), (5, 60.0), (6, 14.0), (7, 9.0), (8, 11.0)):
            weight[token] *= factor
    return model


def draw_model(random: np.random.Generator) -> Model:
    family = str(random.choice(sorted(PLACES)))
    tokenizer, module = make_tokenizer(), tiny_model(family)
    tokenizer.backend_tokenizer.normalizer = Replace("nil", "")  # a text of it has no tokens
    adds = ADDS[str(random.choice(sorted(ADDS)))]
    if adds != "$A":
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=adds, special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    padding = str(random.choice(["<pad>", "</s>", "w3", "none"]))  # w3 stands in many texts
    if padding == "none":
        tokenizer.pad_token = tokenizer.eos_token = None
    else:
        tokenizer.add_special_tokens({"pad_token": padding})
    stack = module.encoder if family == "t5" else module
    words = [f"w{i}" for i in range(60)]
    return Model(module, tokenizer, *PLACES[family], 32, words, SPECIAL, stack=stack)


def draw_texts(random: np.random.Generator, model: Model) -> list[str]:
    """Texts of few and of many tokens, some with special tokens written in them, of one token, of none, repeats."""
    texts = []
    for _ in range(int(random.integers(2, 10))):
        length = int(random.choice([1, 2, 3, 5, 9, 20, model.longest + 5]))
        words = [str(word) for word in random.choice(model.words, length)]
        if random.random() < 0.5:
            for _ in range(int(random.integers(1, 4))):
                words.insert(int(random.integers(0, len(words) + 1)), str(random.choice(model.special)))
        texts.append(" ".join(words))
    extra = [" ".join(model.special[:2]), model.special[0], "", "  ", texts[0], f"{texts[-1]} {texts[0]}"]
    extra += ["nil"] if "nil" not in model.words and model.longest == 60 else []
    texts += [text for text in extra if random.random() < 0.25]
    return [texts[i] for i in random.permutation(len(texts))]


def compare(random: np.random.Generator, model: Model, found: Found, *, export: bool) -> None:
    """Draws one setting, and compares scan, embed and perhaps an export with the reference."""
    pair, texts = (model.module, model.tokenizer), draw_texts(random, model)
    max_length = int(random.choice([3, 4, 8, 16, model.longest]))
    layers = sorted({int(k) for k in random.choice(model.depth + 1, 2)})
    norm = str(random.choice(["raw", "normed"])) if model.norm else "raw"
    if export:  # the texts of the export's own check must differ, and layer 0 has no final norm
        max_length, layers = max(max_length, 8), [max(layers[0], int(norm == "normed")), *layers[1:]]
    tokens = [str(t) for t in random.choice(["all", "no_first", "no_special", "no_sinks"], 2, replace=False)]
    pooling = str(random.choice(["mean", "last", "first", "max"]))
    rows = [str(r) for r in random.choice(["raw", "unit", "centered", "centered_unit"], 2, replace=False)]
    options = {
        "layers": ",".join(map(str, layers)),
        "norm": norm,
        "max_length": max_length,
        "batch_tokens": int(random.choice([16, 64, 4096])),
    }
    layers = sorted(set(layers))
    setting = f"{type(model.module).__name__} {options} {tokens} {pooling} {rows} {texts}"
    read = [
        reference.read_text(model.stack, model.tokenizer, model.blocks, model.norm, text, max_length) for text in texts
    ]
    # Few metrics per setting, so that there can be many settings.
    metrics = [str(m) for m in random.choice((*PROMPT_METRICS, *DATASET_METRICS), 4, replace=False)]
    shard_size = int(random.choice([3, 256]))
    table = layerwise.scan(
        pair,
        texts,
        metrics=metrics,
        tokens=tokens,
        pooling=pooling,
        rows=rows,
        threads=1,
        shard_size=shard_size,
        **options,
    )
    compare_scan(table, read, model, found, setting)
    for choice in tokens:
        frame = layerwise.embed(pair, texts, tokens=choice, pooling=pooling, **options)
        for layer in layers:
            expected = [reference.vector(text, layer, norm, choice, pooling, model.width) for text in read]
            given = list(frame[f"layer_{layer}"])
            scale = largest(read, layer, norm)
            found.check("embed", f"layer {layer} {choice} {setting}", np.stack(given), np.stack(expected), scale)
    if export and any(text.ids for text in read):
        choice = str(random.choice(["all", "no_first", "no_special"]))
        compare_export(random, model, texts, read, (layers[0], norm, choice, max_length), found, setting)


def largest(read: list[reference.Read], layer: int, norm: str) -> float:
    """The largest entry of any state: a mean may be much smaller, and has the rounding errors of what went into it."""
    return max((float(np.abs((r.raw if norm == "raw" else r.normed)[layer]).max()) for r in read if r.ids), default=1.0)


def compare_scan(table: Any, read: list[reference.Read], model: Model, found: Found, setting: str) -> None:
    assert len(table.scores) > 0
    for score in table.scores:
        name = f"{score.metric} layer {score.layer} {score.norm} {score.tokens} {score.rows} of {setting}"
        states = []
        for text in read:
            rows = (text.raw if score.norm == "raw" else text.normed)[score.layer] if text.ids else np.zeros((0, 1))
            states.append((rows, reference.counted(text, rows, score.tokens)))
        if score.metric in PROMPT_METRICS:
            expected = reference.of_prompts(score.metric, states, score.rows)
        else:
            pooled = [reference.pool(*each, score.pooling) for each in states]
            vectors = [row for row in pooled if row is not None]
            matrix = np.array(vectors) if vectors else np.zeros((0, model.width))
            expected = reference.of_dataset(score.metric, matrix, score.rows)
            if expected != reference.UNSURE:
                n = 0 if np.isnan(expected[0]) else expected[1]  # an undefined value has no examples behind it
                expected = (expected[0], n, len(read) - n)
        if expected == reference.UNSURE:
            found.compared["unsure"] += 1
        else:
            found.check("scan", name, [score.value], [expected[0]])
            found.check("scan", f"n and skipped of {name}", [score.n, score.skipped], expected[1:])


def compare_export(
    random: np.random.Generator,
    model: Model,
    texts: list[str],
    read: list[reference.Read],
    readout: tuple[int, str, str, int],
    found: Found,
    setting: str,
) -> None:
    """The exported folder in plain sentence-transformers, in float32; what cannot be exported is refused."""
    from sentence_transformers import SentenceTransformer

    layer, norm, tokens, max_length = readout
    transform = str(random.choice(["none", "center", "zscore", "remove_top:2"]))
    fitted = [" ".join(str(w) for w in random.choice(model.words, int(n))) for n in random.integers(1, 9, 40)]
    module = make_float32(model.module)
    with tempfile.TemporaryDirectory() as folder:
        try:
            layerwise.export(
                (module, model.tokenizer), layer, Path(folder) / "m", norm=norm, tokens=tokens, pooling="mean",
                transform=transform, fit=None if transform == "none" else fitted, max_length=max_length,
            )  # fmt: skip
        except (InputError, layerwise.ExportError) as error:
            found.compared["refused"] += 1
            if not any(reason in str(error) for reason in REFUSED):  # such as vectors that the export's check rejects
                found.differences.append(f"export: {error}: layer {layer} {norm} {tokens} {transform} of {setting}")
            return
        loaded = SentenceTransformer(str(Path(folder) / "m"), device="cpu")
        # sentence-transformers cannot run a batch of texts without tokens alone
        batch = int(random.choice([2, 32])) if all(text.ids for text in read) else 32
        given = loaded.encode(texts, batch_size=batch, show_progress_bar=False)
    rows = np.stack([reference.vector(text, layer, norm, tokens, "mean", model.width) for text in read])
    fit_rows = [
        reference.vector(
            reference.read_text(model.stack, model.tokenizer, model.blocks, model.norm, text, max_length),
            layer, norm, tokens, "mean", model.width,
        )
        for text in (fitted if transform != "none" else [])
    ]  # fmt: skip
    expected = reference.linear_map(transform, np.stack(fit_rows), rows) if fit_rows else rows
    scale = largest(read, layer, norm)
    if transform == "zscore":
        scale /= float(np.std(np.stack(fit_rows), axis=0).min())
    found.check("export", f"layer {layer} {norm} {tokens} {transform} of {setting}", given, expected, scale)


def make_float32(module: Any) -> Any:
    """A copy, since the model is shared by all settings."""
    import copy

    return copy.deepcopy(module).float()


def run(seed: int, numbers: range, folders: list[str], exported: int = EXPORTED) -> Found:
    """Compares these settings of a seed; each depends on the seed and its number only."""
    found, real = Found(), [real_model_of(folder) for folder in folders]
    for number in numbers:
        random = np.random.default_rng([seed, number])
        model = real[number % len(real)] if real else draw_model(random)
        before = len(found.differences)
        compare(random, model, found, export=number % exported == 0)
        found.differences[before:] = [f"[seed {seed}, setting {number}] {d}" for d in found.differences[before:]]
    return found


def real_model_of(folder: str) -> Model:
    """A real model; words of English, and the special tokens that its own tokenizer knows."""
    module, tokenizer = (
        AutoModel.from_pretrained(folder, dtype=torch.float64).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    kind = module.config.model_type
    words = "the of a bank river account card refund late please open where is not 7 unbelievable, it's".split()
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    special = [str(token) for token in tokenizer.all_special_tokens]
    return Model(module, tokenizer, *PLACES[kind], module.config.hidden_size, words, special, 40, stack=module)


@pytest.mark.parametrize(
    "part", [*range(AT_ONCE), *(pytest.param(k, marks=pytest.mark.long) for k in range(AT_ONCE, PARTS))]
)
def test_scan_embed_and_export_give_the_numbers_of_the_reference(part):
    found = run(SEED, range(part, SETTINGS, PARTS), [])
    assert not found.differences, "\n".join(found.differences[:20])
    assert min(found.compared[kind] for kind in RELATIVE) > 0, found.compared


def with_padding_ids(tokenizer: Any) -> Any:
    return AddedIds(added_ids(tokenizer).special | {tokenizer.pad_token_id}, added_ids(tokenizer).opening)


def lower_quantile(norms: torch.Tensor, q: float, **options: Any) -> torch.Tensor:
    return norms.nanmedian(**options).values


FAULTS = {
    "padding is left out by its id": ("layerwise.inputs.text_processor.added_ids", with_padding_ids),
    "the lower median": ("torch.Tensor.nanquantile", lower_quantile),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_reference_notices_a_planted_fault(fault, monkeypatch):
    monkeypatch.setattr(*FAULTS[fault])
    assert run(SEED, range(1, 19), [], SETTINGS).differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    parser.add_argument("--exported", type=int, default=EXPORTED, help="one setting of so many is also exported")
    parser.add_argument("folders", nargs="*", help="folders of real models, in place of tiny random ones")
    given = parser.parse_args()
    found = run(given.seed, range(given.settings), given.folders, given.exported)
    print("\n".join(found.differences))
    print(
        f"seed {given.seed}: {given.settings} settings, compared {found.compared}, {len(found.differences)} differences"
    )
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main())
