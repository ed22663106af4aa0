"""scan, embed and export against a second implementation in plain transformers and NumPy (reference.py), on random
settings: models, tokenizers, texts with special tokens in them, token choices, poolings, lengths, batches, maps;
and the metrics of perturbed texts. What eval scores is compared in test_eval_reference.py.

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
from families import make_byte_tokenizer, make_model, make_tokenizer
from tokenizers.normalizers import Replace
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoTokenizer

import layerwise
from layerwise.core.errors import InputError
from layerwise.inputs.perturbations.base import perturb
from layerwise.inputs.tokenizing import AddedIds, added_ids
from layerwise.maps.linear import LinearMap
from layerwise.metrics.ops.pooling import pool

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
VIEW_METRICS = ("infonce", "dime", "lidar")
VIEWS = {"infonce": 2, "dime": 2, "lidar": 16}
VIEWED = 13  # one setting of so many also has perturbed texts
MAPS = [
    "none",
    "center",
    "zscore",
    "remove_top:2",
    "whiten",
    "whiten:0.3",
    "whiten:0.1:8",
    "remove_top:3@6",
    "whiten+static",
]
MAPS_OF_TWO = ["center+mean", "whiten+mean@5"]  # for another pooling than the mean
REFUSED = (  # what is known not to be exportable
    "a single stack of such a model", "puts no token of its own first", "can be exported with pooling",
    "+static cannot be exported",
)  # fmt: skip
RELATIVE = {"scan": 1e-6, "views": 1e-6, "embed": 2e-6, "export": 1e-5}  # embed and export give float32


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
    read = [read_alone(model, text, max_length) for text in texts]
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
        exported_pooling = str(random.choice(["mean", "mean", "last", "first", "max"]))
        readout = layerwise.Readout(layers[0], norm, choice, exported_pooling)
        transform = str(random.choice(MAPS if exported_pooling == "mean" else [*MAPS, *MAPS_OF_TWO]))
        template = str(random.choice(["{text}", "w9 {text}"]))
        compare_export(random, model, texts, readout, transform, template, max_length, found, setting)


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
    readout: layerwise.Readout,
    transform: str,
    template: str,
    max_length: int,
    found: Found,
    setting: str,
) -> None:
    """The exported folder in plain sentence-transformers, in float32; what cannot be exported is refused."""
    from sentence_transformers import SentenceTransformer

    layer, norm, tokens, pooling = readout.layer, readout.norm, readout.tokens, readout.pooling
    fitted = [" ".join(str(w) for w in random.choice(model.words, int(n))) for n in random.integers(1, 9, 40)]
    name = f"{readout} {transform} {template} of {setting}"
    parts = [(layer, norm, pooling)]
    if "+" in transform:
        parts.append((layer, norm, "mean") if "+mean" in transform else (0, "raw", "mean"))

    def vectors(texts: list[str]) -> tuple[list[reference.Read], list[np.ndarray]]:
        """One matrix per part."""
        read = [read_alone(model, template.replace("{text}", text), max_length) for text in texts]
        rows = [[reference.vector(r, k, n, tokens, p, model.width) for r in read] for k, n, p in parts]
        return read, [np.stack(each) for each in rows]

    _, fit_rows = vectors(fitted)
    if transform != "none" and min(float(rows.std(axis=0).max() / np.abs(rows).max()) for rows in fit_rows) < 1e-4:
        found.compared["unsure"] += 1  # such as the first of all tokens, which is the same in all texts
        return
    if pooling in ("max", "first"):  # of no token, sentence-transformers gives -inf or the state of padding, not zeros
        texts = [text for text in texts if read_alone(model, template.replace("{text}", text), max_length).ids]
    module = make_float32(model.module)
    with tempfile.TemporaryDirectory() as folder:
        try:
            layerwise.export(
                (module, model.tokenizer), layer, Path(folder) / "m", norm=norm, tokens=tokens, pooling=pooling,
                transform=transform, fit=None if transform == "none" else fitted, max_length=max_length,
                template=template,
            )  # fmt: skip
        except (InputError, layerwise.ExportError) as error:
            found.compared["refused"] += 1
            if not any(reason in str(error) for reason in REFUSED):  # such as vectors that the export's check rejects
                found.differences.append(f"export: {error}: {name}")
            return
        loaded = SentenceTransformer(str(Path(folder) / "m"), device="cpu")
        read, rows = vectors(texts)
        # sentence-transformers cannot run a batch of texts without tokens alone
        batch = int(random.choice([2, 32])) if all(text.ids for text in read) else 32
        given = loaded.encode(texts, batch_size=batch, show_progress_bar=False)
    expected = reference.mapped(transform, fit_rows, rows) if transform != "none" else rows[0]
    if transform.startswith("whiten:0.1:8") or "@" in transform:
        expected = reference.same_signs(expected, given)
    scale = max(largest(read, k, n) for k, n, _ in parts) * gain(transform, fit_rows)
    found.check("export", name, given, expected, scale)


def gain(transform: str, fit_rows: list[np.ndarray]) -> float:
    """How much longer the map can make a vector, and so a rounding error."""
    if transform == "none":
        return 1.0
    width = fit_rows[0].shape[1]
    at_zero, at_units = (
        reference.mapped(transform, fit_rows, [rows] * len(fit_rows)) for rows in (np.zeros((1, width)), np.eye(width))
    )
    return max(1.0, float(np.linalg.norm(at_units - at_zero, 2)))


def read_alone(model: Model, text: str, max_length: int) -> reference.Read:
    return reference.read_text(model.stack, model.tokenizer, model.blocks, model.norm, text, max_length)


def compare_views(random: np.random.Generator, found: Found, *, texts: int = 0, metric: str = "") -> None:
    """Draws a setting for the metrics of perturbed texts. The copies are what `lab views` shows of a text that is its
    own id; the tokenizer reads bytes, so that copies differ."""
    family = str(random.choice(sorted(PLACES)))
    tokenizer, module = make_byte_tokenizer(), byte_model(family)
    model = Model(
        module, tokenizer, *PLACES[family], 32, [], [], stack=module.encoder if family == "t5" else module
    )  # fmt: skip
    words = "river account refund please unbelievable of 7 where transfer, it's Card".split()
    count = texts or int(random.integers(2, 8))
    drawn = {" ".join(str(w) for w in random.choice(words, int(random.integers(1, 7)))) for _ in range(3 * count)}
    chosen = [*sorted(drawn)[:count], *(["<s>"] if random.random() < 0.4 else [])]
    if texts:  # two blocks and some more: each text is short, and has a number of its own
        chosen = [f"text{i} {'<s>' if i % 31 else ''}" if i % 40 else "</s>" * (1 + i // 40) for i in range(texts)]
    metric = metric or str(random.choice(VIEW_METRICS))
    norm = str(random.choice(["raw", "normed"])) if model.norm else "raw"
    tokens, pooling = str(random.choice(["all", "no_first", "no_special"])), str(random.choice(["mean", "last", "max"]))
    layer, seed, strength = int(random.integers(0, model.depth + 1)), int(random.integers(0, 9)), 0.3
    strength = float(random.choice([0.1, 0.3, 0.8]))
    options = {"layers": str(layer), "norm": norm, "tokens": tokens, "pooling": pooling, "max_length": 24}
    source = layerwise.Source("texts", lambda: [(text, text) for text in chosen])
    table = layerwise.scan(
        (module, tokenizer), source, metrics=[metric], seed=seed, view_strength=strength, threads=1,
        batch_tokens=int(random.choice([16, 512])), shard_size=int(random.choice([3, 256])), **options,
    )  # fmt: skip
    views = []
    for text in chosen:
        copies = layerwise.lab.views(text, count=VIEWS[metric], strength=strength, seed=seed)
        read = [read_alone(model, copy, 24) for copy in copies]
        states = [((r.raw if norm == "raw" else r.normed)[layer] if r.ids else np.zeros((0, 32)), r) for r in read]
        views.append([reference.pool(rows, reference.counted(r, rows, tokens), pooling) for rows, r in states])
    (score,) = (s for s in table.scores if s.norm == norm)
    name = f"{metric} of {family} {options} seed {seed} strength {strength} {chosen[:5]}"
    value, n, skipped = reference.of_views(metric, chosen, views)
    if value == reference.UNSURE:
        found.compared["unsure"] += 1
        return
    found.check("views", name, [score.value], [value], 1.0)
    found.check("views", f"n and skipped of {name}", [score.n, score.skipped], [0 if np.isnan(value) else n, skipped])


@cache
def byte_model(family: str) -> Any:
    return make_model(family, len(make_byte_tokenizer())).double()


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
        if number % VIEWED == 0 and not real:
            compare_views(random, found)
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
    assert min(found.compared[kind] for kind in RELATIVE if kind != "export") > 0, found.compared
    assert found.compared["export"] + found.compared["refused"] + found.compared["unsure"] > 0, found.compared


def with_padding_ids(tokenizer: Any) -> Any:
    return AddedIds(added_ids(tokenizer).special | {tokenizer.pad_token_id}, added_ids(tokenizer).opening)


def lower_quantile(norms: torch.Tensor, q: float, **options: Any) -> torch.Tensor:
    return norms.nanmedian(**options).values


def views_with_one_number(value: Any, change: Any, amount: float, *, name: object, **options: Any) -> Any:
    return perturb(value, change, amount, name=1, **options)


def without_bias(weight: torch.Tensor, bias: torch.Tensor) -> LinearMap:
    return LinearMap(weight, 0 * bias)


def over_all_tokens(hidden: torch.Tensor, mask: torch.Tensor, pooling: Any) -> torch.Tensor:
    return pool(hidden, torch.ones_like(mask), pooling)


def reference_settings() -> list[str]:
    return run(SEED, range(1, 19), [], SETTINGS).differences


def viewed_settings(metric: str) -> list[str]:
    found = Found()
    for number in range(2):
        compare_views(np.random.default_rng([SEED, number]), found, metric=metric)
    return found.differences


def model_that_adds_tokens() -> Model:
    """Its tokenizer puts a token before and after each text."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=ADDS["both"], special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    words = [f"w{i}" for i in range(60)]
    return Model(tiny_model("llama"), tokenizer, *PLACES["llama"], 32, words, SPECIAL, stack=tiny_model("llama"))


def exported_settings(transform: str) -> list[str]:
    found, readout = Found(), layerwise.Readout(2, "raw", "no_special", "mean")
    random, model, texts = (
        np.random.default_rng(SEED),
        model_that_adds_tokens(),
        ["w3 w4 w5", "w20 w21", "w7 w8 w9 w10"],
    )
    compare_export(random, model, texts, readout, transform, "w9 {text}", 16, found, "a planted fault")
    assert found.compared["export"] + len(found.differences) > 0
    return found.differences


def pooled_settings(pooling: str) -> list[str]:
    """Vectors of embed without the tokens that the tokenizer adds."""
    found, model, texts = Found(), model_that_adds_tokens(), ["w3 w4 w5", "w20 w21", "w7 w8 w9 w10"]
    pair = (model.module, model.tokenizer)
    frame = layerwise.embed(pair, texts, layers="2", tokens="no_special", pooling=pooling, max_length=16)
    read = [read_alone(model, text, 16) for text in texts]
    expected = [reference.vector(text, 2, "raw", "no_special", pooling, 32) for text in read]
    found.check("embed", pooling, np.stack(list(frame.layer_2)), np.stack(expected), largest(read, 2, "raw"))
    return found.differences


# What is replaced, and what must then differ.
FAULTS: dict[str, tuple[str, Any, Any]] = {
    "padding is left out by its id": (
        "layerwise.inputs.text_processor.added_ids", with_padding_ids, reference_settings
    ),
    "the lower median": ("torch.Tensor.nanquantile", lower_quantile, reference_settings),
    "all views are the first": (
        "layerwise.inputs.perturbations.changes.perturb", views_with_one_number, lambda: viewed_settings("infonce")
    ),
    "pairs in the order of their length": (
        "layerwise.inputs.source.hash_id", len, lambda: viewed_settings("dime")
    ),
    "another ridge": ("layerwise.metrics.lidar.RIDGE", 2e-4, lambda: viewed_settings("lidar")),
    "a map keeps the mean": ("layerwise.maps.linear.LinearMap", without_bias, lambda: exported_settings("center")),
    "less shrinkage": ("layerwise.maps.linear.SHRINKAGE", 0.09, lambda: exported_settings("whiten")),
    **{
        f"{pooling} of tokens that do not count": (
            "layerwise.passes.vectors.pool", over_all_tokens, lambda pooling=pooling: pooled_settings(pooling)
        )
        for pooling in ("last", "first", "max")
    },
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_reference_notices_a_planted_fault(fault, monkeypatch):
    place, wrong, differences = FAULTS[fault]
    monkeypatch.setattr(place, wrong)
    assert differences()


def test_what_the_faults_are_planted_in_is_right_without_them():
    assert not [*exported_settings("whiten"), *viewed_settings("lidar")]
    assert not [difference for pooling in ("last", "first", "max") for difference in pooled_settings(pooling)]


@pytest.mark.parametrize("metric", ["infonce", "dime"])
def test_blocks_of_pairs_are_those_of_the_reference(metric):
    """Two blocks of 256 pairs; the others, and texts without a token that counts, are left out."""
    found = Found()
    compare_views(np.random.default_rng(SEED), found, texts=530, metric=metric)
    assert not found.differences and found.compared["views"] == 2, found


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
