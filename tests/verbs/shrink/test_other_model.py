"""shrink --student: another model's vectors mapped into the original's space."""

import json

import numpy as np
import pytest
import torch
from embedders import ship_model
from families import make_model, make_tokenizer
from sentence_transformers import SentenceTransformer

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, ModelError
from layerwise.verbs.shrink.index_advice import check_compatibility
from layerwise.verbs.shrink.texts import PromptedText, TextSplit

TEXTS = [" ".join(f"w{(i * i + 7 * j + i // 90) % 89}" for j in range(6 + i % 9)) for i in range(150)]


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return ship_model(tmp_path_factory.mktemp("old") / "old", make_model("bert"))


def encode(folder, texts=TEXTS, **options):
    return SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False, **options)


def record_of(folder):
    return json.loads((folder / "layerwise.json").read_text())


def test_the_export_is_the_student_with_one_map_and_the_length_of_the_original(tmp_path, old):
    new = ship_model(tmp_path / "new", make_model("llama"), "lasttoken", dense=20)
    small = layerwise.shrink(old, TEXTS, tmp_path / "small", student=new)
    own, found = encode(new), encode(tmp_path / "small")
    linear = small[-2].linear
    mapped = own @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
    np.testing.assert_allclose(found, mapped / np.linalg.norm(mapped, axis=1, keepdims=True), atol=2e-5)
    assert found.shape[1] == encode(old).shape[1] == 32
    shrunk = record_of(tmp_path / "small")["shrunk"]
    assert shrunk["student"]["name"] == new and shrunk["unexplained"] == min(shrunk["maps"].values())
    assert record_of(tmp_path / "small")["model"]["name"] == old
    assert "new in the space of old" in (tmp_path / "small" / "README.md").read_text()


def test_a_student_that_is_a_turned_original_keeps_the_index(tmp_path, old):
    """Its weights give the original's vectors in other coordinates: the map turns them back."""
    model = SentenceTransformer(old, device="cpu")
    dense = torch.nn.Linear(32, 32, bias=False)
    torch.nn.init.orthogonal_(dense.weight, generator=torch.Generator().manual_seed(1))
    from layerwise.models.modules import linear_module

    turned = [*list(model.children())[:2], linear_module(dense.weight.detach(), torch.zeros(32), torch.float32)]
    SentenceTransformer(modules=turned, device="cpu").save(str(tmp_path / "turned"), create_model_card=False)
    generator = np.random.default_rng(0)
    halves = [[f"w{i}" for i in generator.integers(0, 89, 12)] for _ in range(700)]
    long = [" ".join([*half, *half[::-1]]) for half in halves]
    layerwise.shrink(old, long, tmp_path / "small", student=tmp_path / "turned")
    assert (encode(tmp_path / "small", long) * encode(old, long)).sum(axis=1).min() > 0.999
    found = record_of(tmp_path / "small")["shrunk"]["compatibility"]
    assert found["advice"] == "keep" and "the new model" in found["answer"]


def test_the_student_reads_texts_with_its_own_prompts(tmp_path, old):
    prompts = {"query": "w80 w81 ", "document": "w82 w83 w84 "}
    new = ship_model(tmp_path / "new", make_model("llama"), prompts=prompts)
    queries, documents = TEXTS[:75], TEXTS[75:]
    small = layerwise.shrink(old, None, tmp_path / "small", student=new, queries=queries, documents=documents)
    assert small.prompts == prompts
    targets = {name: encode(old, texts) for name, texts in (("query", queries), ("document", documents))}

    def agreement(prompt, kind):
        texts = queries if kind == "query" else documents
        return (encode(tmp_path / "small", texts, prompt=prompt) * targets[kind]).sum(axis=1).mean()

    for kind, other in (("query", "document"), ("document", "query")):
        assert agreement(prompts[kind], kind) > agreement(prompts[other], kind), kind


def test_an_index_made_anew_has_the_vectors_of_the_student_without_the_map():
    texts = tuple(PromptedText(f"{i} " + "a b c d e f g h i j k " * 2 + str(i)) for i in range(60))

    def of_number(items):
        return torch.stack([torch.eye(61)[int(item.text.split()[0 if item.kind == "query" else -1])] for item in items])

    def lost(items):
        return torch.ones(len(items), 61)

    split = TextSplit((), (), texts)
    kept = check_compatibility(of_number, lost, split)
    assert kept.advice == "original" and kept.cases.new_new.mrr.mean < 0.1
    anew = check_compatibility(of_number, lost, split, re_embedded=(of_number, ""))
    assert anew.advice == "re-embed" and anew.cases.new_new.mrr.mean == pytest.approx(1)
    assert anew.cases.mixed.mrr.mean == pytest.approx(kept.cases.mixed.mrr.mean), "of one space"


def test_what_cannot_be_a_student_is_refused(tmp_path, old):
    language = make_model("llama")
    language.config.architectures = ["LlamaForCausalLM"]
    for options, error, message in (
        ({"student": old}, InputError, "is the model itself"),
        ({"student": (language, make_tokenizer())}, InputError, "no vectors to imitate"),
        ({"student": old, "blocks": 1}, InputError, "leave out --method, --blocks and --choose"),
        ({"student": old, "method": "distill", "steps": 1}, InputError, "--student is a whole model"),
    ):
        with pytest.raises(error, match=message):
            layerwise.shrink(old, TEXTS, tmp_path / "small", **options)
    cut = ship_model(tmp_path / "cut", make_model("llama"))
    settings = tmp_path / "cut" / "config_sentence_transformers.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"truncate_dim": 8}))
    with pytest.raises(ModelError, match="cuts its vectors"):
        layerwise.shrink(old, TEXTS, tmp_path / "small", student=cut)
    assert not (tmp_path / "small").exists()


def test_on_the_command_line(tmp_path, old, capsys):
    new = ship_model(tmp_path / "new", make_model("llama"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = ["shrink", old, "--student", new, "--data", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "small")]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "new with a map (" in printed and "to the vectors of old, 3 blocks and" in printed
