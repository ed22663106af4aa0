"""export --probe: the head that the linear probe found, as a model that gives its logits."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from embedders import ship
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import ExportError, InputError, RunError
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example
from layerwise.models.opening import open_network
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.backends.onnx import GRAPH_FILE, load_graph
from layerwise.verbs.export.run import write_labels
from layerwise.verbs.probe.heads import Classifier, chosen_layer
from layerwise.verbs.probe.labelled import label_task, read_labelled
from layerwise.verbs.probe.probes import ABSENT, calibrated, calibration_error, head_of, standardisation

COLOURS, KINDS = ("blue", "green", "red"), ("even", "odd")


def example(i):
    """A text whose colour follows from one word, and whose kind from another."""
    colour, kind = i % 3, (i // 3) % 2
    others = np.random.default_rng(i).integers(30, 80, 5)
    return " ".join([f"w{10 + colour}", f"w{20 + kind}", *(f"w{number}" for number in others)])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows = {"text": [example(i) for i in range(360)], "colour": [COLOURS[i % 3] for i in range(360)],
            "kind": [KINDS[(i // 3) % 2] for i in range(360)]}  # fmt: skip
    folder = tmp_path_factory.mktemp("data")
    table = pd.DataFrame(rows).drop_duplicates("text")
    table.iloc[:200].to_csv(folder / "train.csv", index=False)
    table.iloc[200:].to_csv(folder / "test.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ship(tmp_path_factory.mktemp("model") / "model", "bert", "mean", normalize=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory, model, data):
    out = tmp_path_factory.mktemp("run") / "probes"
    layerwise.probe(model, data / "train.csv", data / "test.csv", label="colour,kind", probes="linear,knn", out=out)
    return out


def record_of(folder):
    return json.loads((folder / "layerwise.json").read_text())


@pytest.mark.parametrize("label", ["colour", "kind"])
def test_the_folder_gives_the_logits_of_the_probe(run, model, data, tmp_path, label):
    """Against a pass of our own with the head of the run folder; and against the accuracy in the table."""
    found = Classifier.load(run, label)
    exported = layerwise.export(model, found, tmp_path / "out")
    test = pd.read_csv(data / "test.csv")
    logits = exported.encode(test.text.tolist())
    network = open_network(model)
    readout = Readout(found.recipe.layer, found.recipe.norm, found.recipe.tokens, found.recipe.pooling)
    examples = [Example(str(i), text) for i, text in enumerate(test.text)]
    rows = pooled_vectors(network, examples, [readout], max_length=found.recipe.max_length)[readout]
    np.testing.assert_allclose(logits, found.linear(rows.double()).numpy(), atol=1e-4 * np.abs(logits).max())
    names = exported[0].auto_model.config.id2label
    assert [names[i] for i in range(len(names))] == sorted(set(test[label])) == list(found.classes)
    accuracy = 100 * np.mean([names[i] for i in logits.argmax(axis=1)] == test[label])
    (chosen,) = [one for one in found.facts["layers"] if one["layer"] == readout.layer and one["norm"] == readout.norm]
    assert accuracy == pytest.approx(chosen["test"]), "the head of all training examples"


def test_the_head_is_that_of_scikit_learn(run, model, data):
    found = Classifier.load(run, "colour")
    train = pd.read_csv(data / "train.csv")
    readout = Readout(found.recipe.layer, found.recipe.norm, found.recipe.tokens, found.recipe.pooling)
    rows = pooled_vectors(
        open_network(model), [Example(str(i), text) for i, text in enumerate(train.text)], [readout],
        max_length=found.recipe.max_length,
    )[readout].double().numpy()  # fmt: skip
    mean, scale = standardisation(rows)
    oracle = LogisticRegression(C=found.facts["chosen"]["C"], max_iter=1000).fit((rows - mean) / scale, train.colour)
    expected = oracle.decision_function((rows - mean) / scale)
    np.testing.assert_allclose(
        found.linear(torch.from_numpy(rows)).numpy(), expected, atol=1e-3 * np.abs(expected).max()
    )


def test_layers_are_compared_on_every_training_example_while_it_is_held_out(run, model, data):
    """An oracle of our own: for each fifth, a regression on the other four."""
    record = LayerTable.load(run).run
    (one,) = [o for o in record["probes"] if (o["metric"], o["layer"]) == ("colour_linear_accuracy", 1)]
    train = pd.read_csv(data / "train.csv")
    examples = [Example(str(i), text) for i, text in enumerate(train.text)]
    order = np.argsort([example.digest for example in layerwise.texts(data / "train.csv")])
    length = Classifier.load(run, "colour").recipe.max_length
    found = pooled_vectors(open_network(model), examples, [Readout(1)], max_length=length)[Readout(1)]
    rows = found.double().numpy()[order]
    colours = train.colour.to_numpy()[order]
    source = layerwise.labelled(data / "train.csv", "colour")
    task = label_task(read_labelled(source, layerwise.labelled(data / "test.csv", "colour"), ["colour"],
                                    test_share=0.2, seed=0), "colour", 0)  # fmt: skip
    right = []
    for held_out in (task.held_out, *task.further):
        rest = np.setdiff1d(np.arange(len(rows)), held_out)
        mean, scale = standardisation(rows[rest])
        fitted = LogisticRegression(C=one["chosen"]["C"], max_iter=1000).fit((rows[rest] - mean) / scale, colours[rest])
        right += list(fitted.predict((rows[held_out] - mean) / scale) == colours[held_out])
    assert one["validation"]["n"] == len(right) == len(train)
    assert one["validation"]["points"] == pytest.approx(100 * np.mean(right), abs=100 / len(right) + 1e-9)


def test_two_classes_have_two_logits_with_the_same_probability():
    weight, bias = np.array([[1.0, -2.0]]), np.array([0.5])
    head = head_of(weight, bias, np.array([0, 1]), 2)
    row = torch.tensor([[0.3, 0.7]], dtype=torch.float64)
    expected = 1 / (1 + np.exp(-(0.3 - 1.4 + 0.5)))
    assert float(head(row).softmax(dim=1)[0, 1]) == pytest.approx(expected)
    absent = head_of(np.ones((3, 2)), np.zeros(3), np.array([0, 1, 3]), 4)
    assert float(absent(row)[0, 2]) == ABSENT


def test_a_temperature_repairs_logits_that_are_too_large():
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    drawn = torch.multinomial(true.softmax(dim=1), 1, generator=generator)[:, 0].numpy()
    found = calibrated(4 * true[:2000], drawn[:2000], 4 * true[2000:], drawn[2000:])
    assert found["temperature"] == pytest.approx(4, rel=0.15)
    assert (
        found["error_after"] < 0.05 < 0.15 < found["error_before"] == calibration_error(4 * true[2000:], drawn[2000:])
    )


def test_the_layer_is_chosen_on_held_out_training_examples_alone(run):
    layers = [
        {"layer": layer, "norm": norm, "validation": {"points": 90.0 - behind, "behind": behind, "standard_error": 1.2}}
        for layer, norm, behind in ((1, "raw", 2.0), (2, "raw", 1.0), (3, "raw", 0.0), (3, "normed", 0.0))
    ]
    assert chosen_layer(layers, "quality") is layers[2] and chosen_layer(layers, "fast") is layers[1]
    quality, fast = (Classifier.load(run, "kind", prefer) for prefer in ("quality", "fast"))
    assert fast.recipe.layer <= quality.recipe.layer
    best = max(one["validation"] for one in quality.facts["layers"])
    assert best in [one["validation"] for one in quality.facts["layers"] if one["layer"] == quality.recipe.layer]


def test_plain_libraries_load_it_without_layerwise(run, model, data, tmp_path):
    layerwise.export(model, Classifier.load(run, "colour"), tmp_path / "out")
    texts = pd.read_csv(data / "test.csv").text.tolist()[:5]
    code = (
        "import sys, json; sys.modules['layerwise'] = None\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(tmp_path / 'out')!r}, device='cpu')\n"
        f"print('FOUND', json.dumps(model.encode({texts!r}, show_progress_bar=False).tolist()))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in printed.splitlines() if line.startswith("FOUND")]
    own = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    np.testing.assert_allclose(json.loads(line.removeprefix("FOUND ")), own, atol=1e-5)


def test_one_onnx_graph_gives_the_same_logits_and_knows_the_names(run, model, data, tmp_path):
    pytest.importorskip("onnxruntime")
    found = Classifier.load(run, "colour")
    layerwise.export(model, found, tmp_path / "onnx", format="onnx")
    graph = load_graph(tmp_path / "onnx", GRAPH_FILE)
    texts = pd.read_csv(data / "test.csv").text.tolist()[:20]
    plain = layerwise.export(model, found, tmp_path / "plain").encode(texts)
    np.testing.assert_allclose(graph.encode(texts).numpy(), plain, atol=1e-4 * np.abs(plain).max())
    config = json.loads((tmp_path / "onnx" / "config.json").read_text())
    assert list(config["id2label"].values()) == list(COLOURS) and config["label2id"]["red"] == 2


def test_the_certificate_and_the_card_have_the_evidence(run, model, data, tmp_path, capsys):
    assert main(["export", model, "--probe", str(run), "--label", "colour", "--out", str(tmp_path / "out")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    found = record_of(tmp_path / "out")["classifier"]
    assert found["classes"] == list(COLOURS) and found["data_fingerprint"] and len(found["layers"]) >= 4
    assert "classifier: colour, 3 classes, trained on 200 examples" in printed and "last layer" in printed
    assert f"divided by {found['calibration']['temperature']:.2f}" in printed
    card = (tmp_path / "out" / "README.md").read_text()
    assert record_of(tmp_path / "out")["agreement"] is None, "logits have no neighbours in common with vectors"
    assert "nearest neighbours" not in printed + card and "as shipped" not in printed
    assert "# Classifier of colour on layer" in card and "blue, green, red" in card
    assert card.count("| ") > 3 * len(found["layers"]) and not record_of(tmp_path / "out")["whole_model"]


def test_what_cannot_be_exported_is_refused(run, model, data, tmp_path, tiny_llama):
    for call, message in (
        (lambda: Classifier.load(run), "has probes of colour, kind; say which: --label colour"),
        (lambda: Classifier.load(run, "size"), "no linear probe of 'size', only of colour, kind"),
        (lambda: layerwise.export(tiny_llama, Classifier.load(run, "kind"), tmp_path / "out"), "was trained on"),
        (lambda: main(["export", model, "--layer", "1", "--label", "kind", "--out", str(tmp_path / "out")]), None),
    ):
        if message is None:
            assert call() == 2
            continue
        with pytest.raises(InputError, match=message):
            call()
    layerwise.probe(model, data / "train.csv", label="kind", probes="knn", out=tmp_path / "knn")
    with pytest.raises(InputError, match="has no linear probe"):
        Classifier.load(tmp_path / "knn")
    with pytest.raises(ExportError, match="no place for the names of classes"):
        write_labels(tmp_path, ("one", "two"))
    assert not (tmp_path / "out").exists()


def test_a_damaged_or_missing_head_is_noticed_and_made_again(run, model, data, tmp_path):
    out = tmp_path / "probes"
    for damage in (lambda path: path.write_bytes(path.read_bytes()[:-8]), lambda path: path.unlink()):
        layerwise.probe(model, data / "train.csv", label="kind", probes="linear", out=out)
        before = Classifier.load(out)
        for path in (out / "fits").glob("*.safetensors"):
            damage(path)
        with pytest.raises(RunError, match="run the probe again"):
            Classifier.load(out)
        layerwise.probe(model, data / "train.csv", label="kind", probes="linear", out=out)
        assert torch.equal(Classifier.load(out).linear.weight, before.linear.weight)
