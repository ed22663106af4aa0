"""eval against mteb alone: an encoder of a few lines, on vectors of plain transformers (reference.py), for recipes with
every pooling, left out tokens, final norms and fitted maps. Nothing here but the call of eval is layerwise's."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reference
from transformers import AutoModel, AutoTokenizer

import layerwise

mteb = pytest.importorskip("mteb")
pytestmark = pytest.mark.filterwarnings("ignore")  # of mteb and its dependencies

FIT = [" ".join(f"w{(i * i + 5 * k + i * k) % 89}" for k in range(3 + i % 7)) for i in range(60)]
RECIPES = [  # layer, norm, tokens, pooling, transform
    (2, "raw", "all", "last", "none"),
    (1, "raw", "no_special", "max", "center"),
    (3, "normed", "no_first", "mean", "whiten"),
    (2, "raw", "no_special", "first", "zscore"),
    (3, "raw", "no_sinks", "mean", "remove_top:2"),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """The data sets library caches local folders by name."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "usual cache")


def pairs() -> pd.DataFrame:
    """Sentences that share more or fewer words, in random order."""
    random, rows = np.random.default_rng(3), []
    for i in range(40):
        words = random.integers(0, 89, 7)
        shared = i % 6
        other = [*words[:shared], *random.integers(0, 89, 6 - shared)]
        one, two = (" ".join(f"w{k}" for k in random.permutation(each)) for each in (words, other))
        rows.append({"sentence1": one, "sentence2": two, "score": float(shared), "labels": int(shared > 2)})
    return pd.DataFrame(rows)


def topics(count: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = [(" ".join(f"w{20 * (i % 4) + k}" for k in random.integers(0, 29, 6)), i % 4) for i in range(count)]
    return pd.DataFrame(rows, columns=["text", "label"])


def own_tasks() -> dict[str, Any]:
    """The same data as tasks of mteb's own classes."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.classification import AbsTaskClassification
    from mteb.abstasks.pair_classification import AbsTaskPairClassification
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    frames = {
        "STS": (pairs(), None),
        "PairClassification": (pairs(), None),
        "Classification": (topics(60, 1), topics(40, 2)),
    }
    bases = {
        "STS": AbsTaskSTS,
        "PairClassification": AbsTaskPairClassification,
        "Classification": AbsTaskClassification,
    }
    scores = {"STS": "cosine_spearman", "PairClassification": "max_ap", "Classification": "accuracy"}
    found = {}
    for kind, (test, train) in frames.items():
        data = DatasetDict(
            {"test": Dataset.from_pandas(test)} | ({} if train is None else {"train": Dataset.from_pandas(train)})
        )

        class Own(bases[kind]):  # type: ignore[misc]
            metadata = TaskMetadata(
                name=f"Own{kind}", description="made here", dataset={"path": "none", "revision": "none"}, type=kind,
                category="t2t", eval_splits=["test"], eval_langs=["eng-Latn"], main_score=scores[kind],
            )  # fmt: skip

            def load_data(self, *args: Any, data: Any = data, **options: Any) -> None:
                self.dataset, self.data_loaded = data, True

        found[f"Own{kind}"] = Own()
    return found


def plain_encoder(model: str, recipe: tuple[int, str, str, str, str]) -> Any:
    """Each text alone in plain transformers, then the map, fitted on the same texts."""
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    layer, norm, tokens, pooling, transform = recipe
    module, tokenizer = AutoModel.from_pretrained(model).eval(), AutoTokenizer.from_pretrained(model)

    @cache
    def vector(text: str) -> Any:
        read = reference.read_text(module, tokenizer, "layers", "norm", text, 64)
        return reference.vector(read, layer, norm, tokens, pooling, 32)

    fitted = np.stack([vector(text) for text in FIT])

    class Plain(AbsEncoder):
        mteb_model_meta = ModelMeta.create_empty(overwrites={"name": "own/plain", "revision": "none"})

        def encode(self, inputs: Any, **options: Any) -> Any:
            rows = np.stack([vector(text) for batch in inputs for text in batch["text"]])
            return reference.linear_map(transform, fitted, rows).astype(np.float32)

    return Plain()


@pytest.fixture(scope="module")
def adding_llama(tmp_path_factory):
    """A tiny decoder whose tokenizer puts a token before and after each text."""
    from families import adding_tokenizer, make_model

    folder = tmp_path_factory.mktemp("adding")
    make_model("llama").save_pretrained(folder)
    adding_tokenizer().save_pretrained(folder)
    return str(folder)


def differences(model: str, folder: Any, recipes: Any, names: Any) -> list[str]:
    """Where the score of eval is not that of mteb with the plain encoder."""
    given = [
        layerwise.Recipe(layer, norm, tokens, pooling, transform) for layer, norm, tokens, pooling, transform in recipes
    ]
    table = layerwise.eval(
        model, list(names), data_root=folder / "root", recipes=given, fit=FIT, out=folder / "run", max_length=64
    )
    found, wrong = {(s.metric, s.layer, s.pooling, s.transform): s.value for s in table}, []
    for recipe in recipes:
        encoder, (layer, _, _, pooling, transform) = plain_encoder(model, recipe), recipe
        for name, task in own_tasks().items():
            if name not in names:
                continue
            result = mteb.evaluate(encoder, task, cache=None, show_progress_bar=False, co2_tracker=False)
            expected = 100 * result.task_results[0].get_score()
            value = found[name, layer, pooling, transform]
            tolerance = 0.5 if name == "OwnClassification" else 1e-3  # its regression is not exact
            if not abs(value - expected) <= tolerance:  # also where one of them is nan
                wrong.append(f"{name} {recipe}: {value}, expected {expected}")
    return wrong


def write_root(folder: Any) -> Any:
    from layerwise.verbs.eval.data_root import write_task

    write_task(folder / "root", "OwnSTS", "STS", pairs())
    write_task(folder / "root", "OwnPairClassification", "PairClassification", pairs())
    write_task(folder / "root", "OwnClassification", "Classification", topics(60, 1), topics(40, 2))
    return folder


def test_scores_are_those_of_mteb_with_an_encoder_of_plain_transformers(adding_llama, tmp_path):
    names = ("OwnSTS", "OwnPairClassification", "OwnClassification")
    assert differences(adding_llama, write_root(tmp_path), RECIPES, names) == []


FAULTS = {
    "the first token that counts is the first of all": (
        "layerwise.passes.vectors.pool", lambda usual: lambda h, m, p: usual(h, m.bool() | (p == "first"), p)
    ),
    "a map keeps the mean": (
        "layerwise.maps.linear.LinearMap", lambda usual: lambda weight, bias: usual(weight, 0 * bias)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault, adding_llama, tmp_path, monkeypatch):
    from importlib import import_module

    place, change = FAULTS[fault]
    module, _, name = place.rpartition(".")
    monkeypatch.setattr(place, change(getattr(import_module(module), name)))
    assert differences(adding_llama, write_root(tmp_path), [RECIPES[1], RECIPES[3]], ["OwnSTS"])
