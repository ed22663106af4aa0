"""The front door: every command and every line of Python in the README does what it says."""

import inspect
import re
import shlex
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import yaml
from embedders import ship
from places import ROOT, script
from sentence_transformers import SentenceTransformer

import layerwise
from layerwise.__main__ import main
from layerwise.inputs.text import demo_texts
from layerwise.verbs import commands
from layerwise.verbs.pick.probes import proxy_items

README = (ROOT / "README.md").read_text(encoding="utf-8")
_, SHRINK, PICK, LOOK = re.findall(r"```bash\n(.*?)```", README, re.S)  # the first one installs
WORDS = " ".join(README.split())
# What a tiny model has, and less time.
SMALLER = {"--blocks 9": "--blocks 2", "--minutes 30": "--steps 2"}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with texts and labelled pairs, where the commands are typed."""
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n".join(demo_texts()[:60]), encoding="utf-8")
    pairs = [
        (item["sentence"], item[name], score)
        for item in proxy_items()[:20]
        for name, score in (("paraphrase", 4.0), ("related", 1.0))
    ]
    pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"]).to_csv("pairs.csv", index=False)
    return tmp_path


def typed(block, model):
    """The words of each command of a block, which has three."""
    for wide, narrow in SMALLER.items():
        block = block.replace(wide, narrow)
    lines = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert len(lines) == 3
    for line in lines:
        program, *words = shlex.split(line.replace("MODEL", model))
        assert program == "layerwise"
        yield words


def test_every_command_on_an_embedding_model_runs(desk, capsys):
    # A tiny tokenizer knows the words w0 to w88.
    lines = [" ".join(f"w{(i * i + 7 * j + i // 90) % 89}" for j in range(6 + i % 9)) for i in range(150)]
    Path("texts.txt").write_text("\n".join(lines), encoding="utf-8")
    for words in typed(SHRINK, ship(desk / "embeds", "bert", "mean", normalize=True)):
        assert main(words) == 0, words
        assert "your index" in "".join(capsys.readouterr()), words
        made = Path(words[-1])
        if (made / "ways.json").is_file():
            made = made / "blocks-2"
        vectors = SentenceTransformer(str(made), device="cpu").encode(lines[:2])
        assert vectors.shape == (2, 32), "as many dimensions as before"


@pytest.mark.filterwarnings("ignore")  # of mteb and its dependencies
def test_every_command_on_a_language_model_runs(desk, real_model, capsys):
    for words in typed(PICK, real_model("stories260k")):
        assert main(words) == 0, words
        assert "".join(capsys.readouterr()).strip(), f"{words} said nothing"
    expected = SentenceTransformer("embedder", device="cpu").encode(demo_texts()[:60])
    vectors = np.stack(pd.read_parquet("vectors.parquet")["last"].tolist())
    assert np.abs(vectors - expected).max() < 1e-4


@pytest.mark.filterwarnings("ignore")  # of Ray and its dependencies
def test_every_command_for_looking_runs(desk, tiny_llama, capsys):
    campaign = {
        "out": "many", "models": [tiny_llama], "data": {"demo": {"data": "demo", "limit": 8}},
        "settings": {"default": {"metrics": "fast"}},
    }  # fmt: skip
    Path("models.yaml").write_text(yaml.safe_dump(campaign), encoding="utf-8")
    for words in typed(LOOK, tiny_llama):
        assert main(words) == 0, words
        assert "".join(capsys.readouterr()).strip(), f"{words} said nothing"
    assert (desk / "report.html").stat().st_size < 1_000_000
    assert (desk / "many" / "table.parquet").exists()


def test_each_verb_is_a_function_with_the_order_of_arguments_that_is_shown():
    (call,) = re.findall(r"each verb is a function: `layerwise\.shrink\((.*?)\)`", README)
    assert list(inspect.signature(layerwise.shrink).parameters)[: call.count(",") + 1] == ["model", "data", "out"]
    assert all(callable(getattr(layerwise, verb)) for verb in commands() if " " not in verb)


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target.partition("#")[0]).exists(), target


def test_the_table_of_cheaper_models_is_that_of_the_study():
    front = script(ROOT / "studies/shrink/front.py")
    table = front.points()
    assert f"{front.BEGIN}\n{front.markdown(table)}\n{front.END}" in README
    mini = table[table.model == "all-minilm-l6-v2"].set_index("way")
    bits = table[table.way == "8 bits"]
    assert f"Both models in 8 bits lose at most {-bits.worst.min():.1f} points on any of 22 tasks" in WORDS
    assert len(bits) == 2
    short, long = ({f"{time:.2f}" for time in bits[name]} for name in ("short", "long"))
    assert f"One short text takes {' and '.join(sorted(short))} of the time" in WORDS
    assert f"but 32 long ones {' and '.join(sorted(long))}:" in WORDS
    lost = -mini[["mean", "worst"]].round(1)
    mean, worst = lost.loc["static"]
    assert f"lose {mean} points in the mean and {worst} on the worst task; those of model2vec" in WORDS
    for other in ("model2vec", "tokenlearn"):
        assert f"of {other} {lost['mean'][other]} and {lost['worst'][other]}" in WORDS
    losses = pd.read_csv(ROOT / "studies/shrink/losses.csv")
    gaps = losses[losses.whole.isin(["bge-small-en-v1.5", "e5-small"])].groupby("small").difference
    (nine, six), (nine_of_e5, six_of_e5) = (-gaps.mean().round(1)).to_numpy().reshape(2, 2)  # by model
    assert f"lost {nine} and {nine_of_e5} points with nine of twelve blocks, {six} and {six_of_e5} with six" in WORDS
    assert f"at most {-gaps.min().min():.1f} on a task" in WORDS
    searched = pd.read_csv(ROOT / "studies/shrink/search.csv").set_index(["model", "case"]).mrr_gap
    assert f"queries lost {-searched['e5-small-linear', 'new old']:.3f} of MRR there" in WORDS


def test_the_cost_of_a_scan_is_that_of_all_models_that_were_measured():
    table = pd.read_csv(ROOT / "benchmarks/overhead.csv").query("way == 'scan' and run == 'lengths'")
    short, long = (table.cpu[table.tokens == tokens] for tokens in (64, 512))
    assert len(short) == len(long) == 4
    assert f"A scan takes {short.min():.2f} to {short.max():.2f} times as long as a plain forward pass" in WORDS
    assert f"for texts of 64 tokens, and {long.min():.2f} to {long.max():.2f} times for 512: four models" in WORDS


def test_the_picture_is_drawn_from_the_tables(tmp_path):
    front = script(ROOT / "studies/shrink/front.py")
    if f"Matplotlib v{matplotlib.__version__}," not in front.PICTURE.read_text(encoding="utf-8"):
        pytest.skip("the picture was drawn with another version of matplotlib: python studies/shrink/front.py")
    front.draw(front.points(), tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == front.PICTURE.read_bytes()


def test_the_front_page_answers_the_question_of_the_paper():
    study = " ".join((ROOT / "studies/recipes/README.md").read_text(encoding="utf-8").split())
    assert "48 of 48 combinations of model, input and map. With mean pooling that is so in 2 of 16" in study
    assert "is one of the last three in 48 of 48 combinations" in WORDS
    assert "it is one of the last three in 2 of 16 combinations" in WORDS
    assert "is 4.2 points on average with mean pooling, and 0.8 with the last token" in study
    assert "0.8 points better than the last on average. For mean pooling" in WORDS
    assert "(fewer templates were tried), and 4.2 points better than the last" in WORDS
