"""The paper by one command: every experiment is a checked file that runs at each scale, or says why it cannot."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from audio_models import clips, save_audio, wav_bytes
from families import make_config, make_tokenizer
from made_findings import AGREES, metric_rows, sink_curves, tables
from made_runs import eval_table
from places import ROOT
from snapshots import put_decoys, snapshot
from transformers import AutoModel
from vision_models import encoded, picture, save_vision

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, ModelError, RunError
from layerwise.verbs.lab.reproduce.api import in_order
from layerwise.verbs.lab.reproduce.corpora import corpora
from layerwise.verbs.lab.reproduce.experiment import SCALES, experiment_names, load_experiment, parse_experiment
from layerwise.verbs.lab.reproduce.inputs import PUBLISHED, Inputs
from layerwise.verbs.lab.reproduce.means import largest_grid, mean_over_tasks
from layerwise.verbs.lab.reproduce.spectra import power_law_entropies
from layerwise.verbs.report.figures import STYLE

NAMES = experiment_names()
DECODERS = "smollm2-135m gemma3-270m gptneox/step8 gptneox/step64 gptneox/step629 mamba/step524 stories260k stories15m"
ENCODERS = "all-minilm-l6-v2 paraphrase-minilm-l3-v2"
WORDS = [f"w{i}" for i in range(90)]


def possible(scale):
    return [name for name in NAMES if not load_experiment(name).scales[scale].cannot]


def sentence(number, words=40):
    return " ".join(WORDS[(number * 7 + 3 * k * k + k) % 89] for k in range(words))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Tiny random models under the names that the experiments use."""
    place = tmp_path_factory.mktemp("models")
    for family, name, names in (("llama", "decoder", DECODERS), ("bert", "encoder", ENCODERS)):
        torch.manual_seed(0)
        config = make_config(family)
        config.max_position_embeddings = 256
        config.tie_word_embeddings = True  # so that a decoder has the head that training by next tokens needs
        AutoModel.from_config(config).save_pretrained(place / name)
        tokenizer = make_tokenizer()
        tokenizer.model_max_length = 256
        tokenizer.save_pretrained(place / name)
        for one in names.split():
            (place / one).parent.mkdir(exist_ok=True)
            (place / one).symlink_to(place / name)
    save_audio(place / "whisper-base", "whisper")
    (place / "whisper-tiny.en").symlink_to(place / "whisper-base")
    save_vision(place / "supervised-0", "vit")
    (place / "autoregressive-0").symlink_to(place / "supervised-0")
    return place


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small tables under the names that the experiments use."""
    place = tmp_path_factory.mktemp("data")

    def write(name, rows, **columns):
        (place / name).parent.mkdir(exist_ok=True)
        pd.DataFrame({column: [make(i) for i in range(rows)] for column, make in columns.items()}).to_parquet(
            place / name
        )

    write("wikitext2/test.parquet", 9, text=lambda i: sentence(i, 70))
    write("wikitext2/train.parquet", 300, text=lambda i: sentence(i, 70))
    write("gsm8k/test.parquet", 5, question=lambda i: sentence(i, 60))
    write("gsm8k/train.parquet", 80, answer=lambda i: sentence(i, 20))
    for name in ("banking77", "emotion", "tweet_sentiment_extraction"):
        for split in ("train", "test"):
            write(f"{name}/{split}.parquet", 16, text=lambda i: sentence(i, 6), label=lambda i: i % 2)
    for name in ("biosses", "sick_r", "sts12", "stsbenchmark", "twitter_url_corpus", "mrpc"):
        pairs = {"sentence1": lambda i: sentence(i, 5), "sentence2": lambda i: sentence(i + 1, 5)}
        write(f"{name}/test.parquet", 8, **pairs, score=float)
    for name in ("stackoverflow_clustering", "trecqa_reranking"):  # that they are there is enough
        write(f"{name}/test.parquet", 1, text=str)
    intents = [k % 4 for k in range(256)] + [4 + k % 12 for k in range(192)] + [16 + k % 48 for k in range(192)]
    write("clinc150/train.parquet", 640, text=lambda i: f"{sentence(i, 4)} w{i % 89}", label_text=lambda i: intents[i])
    sounds = [wav_bytes(*clip) for clip in clips(24)]
    for split in ("train", "test"):
        clip = lambda i, start=12 * (split == "test"): sounds[start + i]  # noqa: E731
        write(f"fsdd/{split}.parquet", 12, audio=clip, label=lambda i: i % 2, speaker=lambda i: f"s{i % 2}")
        image = lambda i, start=20 * (split == "test"): encoded(picture(start + i))  # noqa: E731
        write(f"cifar10/{split}.parquet", 20, img=image, label=lambda i: i % 2)
    write_published(place / "released")
    for name, table in zip(
        ("scores", "metrics"),
        tables({"gemma3-270m": AGREES}, metric_rows("gemma3-270m", sink_curves(2.5))),
        strict=True,
    ):
        table.to_csv(place / f"{name}.csv", index=False)
    return place


def write_published(folder):
    """Made-up results of the form that the authors' results were put into, for every model that is asked for."""
    rows = {kind: [] for kind in PUBLISHED}
    for name in possible("released"):
        for step in load_experiment(name).scales["released"].steps:
            if step.verb == "released":
                wanted = step.settings.get("where", {})
                rows[step.settings["kind"]] += [wanted | m for m in step.settings["models"].values()]
    tasks, metrics = ("STS12", "EmotionClassification"), ("curvature", "dime", "infonce", "lidar", "entropy_dataset")
    usual = {"size": "large", "revision": "main", "split": "test", "dataset": "d", "normalisation": "raw"}
    found = {file: [] for file in PUBLISHED.values()}
    for one in rows["scores"]:
        base = usual | one | {"variant": "", "english_subset": True, "task_type": "sts", "n_layers": 9}
        found["mteb_scores.parquet"] += [
            base | {"task": task, "layer": k, "main_score": 0.5 + 0.01 * k, "complete": True}
            for task in tasks for k in range(9)
        ]  # fmt: skip
    for one in rows["metrics"]:
        base = usual | one | {"out_of_range": False, "n_values": 9}
        found["metrics.parquet"] += [
            base | {"task": "" if base["dataset"] == "wikitext" else task, "metric": metric, "layer": k,
                    "value": math.sin(k + len(metric) + len(task))}
            for task in tasks[: 1 if base["dataset"] == "wikitext" else 2]
            for metric in (*metrics, "entropy_prompt") for k in range(9)
        ]  # fmt: skip
    for kind, name in (("image_probes", "attention_probe"), ("image_metrics", "entropy_prompt")):
        for one in rows[kind]:
            base = {**usual, **one, "kind": "probe" if kind == "image_probes" else "metric", "name": name}
            base["quantity"] = "val_acc1" if kind == "image_probes" else one["normalisation"]
            base.pop("normalisation"), base.pop("blocks", None)
            found["vision.parquet"] += [base | {"layer_from": k, "layer_to": k, "value": 50.0 + k} for k in range(1, 9)]
    folder.mkdir()
    for file, lines in found.items():
        pd.DataFrame(lines).drop_duplicates().to_parquet(folder / file)


def check(made, scale):
    """The files are there, pictures are pictures, and the record is whole."""
    assert made.files and made.scale == scale
    for file in made.files:
        start = file.read_bytes()[:8]
        assert start == b"\x89PNG\r\n\x1a\n" if file.suffix == ".png" else len(pd.read_csv(file)) > 0
    record = json.loads((made.folder / "reproduction.json").read_text())
    assert record["experiment"] == made.experiment and record["checksum"]


# ---- the files


def test_every_figure_and_table_of_the_paper_has_a_file():
    assert {f"fig{n}" for n in range(1, 16)} | {"table1", "table2"} <= set(NAMES)
    assert NAMES[:15] == [f"fig{n}" for n in range(1, 16)]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_every_scale_with_steps_or_a_reason(name):
    experiment = load_experiment(name)
    assert set(experiment.scales) == set(SCALES) and experiment.says and len(experiment.title) <= 39
    for scale in SCALES:
        if not experiment.scales[scale].cannot:
            assert in_order(experiment, scale)[-1] is experiment, "what it needs exists and can be made"
            assert not any(one.scales[scale].cannot for one in in_order(experiment, scale))


def test_a_mistake_in_a_file_is_named():
    content = yaml.safe_load("""
        title: t
        says: s
        scales:
          small:
            cost: 1 min
            steps:
              - scan: a
                models: [{name: m, dtyp: x}]
                data: {data: d, only: wikitxt}
                options: {metrik: x, shard_size: 0}
              - plot: b
                panels: [{of: c, figure: depht}]
          released: {cannot: x, steps: []}
          paper: {}
        """)
    with pytest.raises(InputError) as refused:
        parse_experiment("mine", content)
    for part in (
        "step a has no 'dtyp'; did you mean dtype?", "did you mean wikitext?", "step a has no 'metrik'",
        "shard_size must be at least 1", "uses c, which no earlier step makes", "figure 'depht'",
        "paper: needs either steps or the reason",
    ):  # fmt: skip
        assert part in str(refused.value), part


# ---- running them

# What every run repeats and the structure does not need: experiment, step, key, value.
FEWER = [
    ("fig1", "tasks", "tasks", ["STS12"]),
    ("fig5", "tuned", "steps", 2),
    ("fig13", "tuned", "steps", 1),
    ("fig13", "tasks", "tasks", ["STS12"]),
    ("fig5", "lengths", "levels", "16,32"),
    ("fig6", "repeated", "levels", "0,0.5"),
    ("fig6", "random", "levels", "0,1"),
    ("fig6", "lengths", "levels", "16,128"),
    ("table2", "table2", "rules", "last,min:dime"),
    ("least_entropy", "least_entropy", "rules", "last"),
]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of tiny data: few layers, one class, repeated texts
@pytest.mark.parametrize("scale", ["small", "released"])
def test_every_experiment_runs_to_the_end_on_tiny_models(models, data, tmp_path_factory, monkeypatch, scale):
    out = tmp_path_factory.mktemp("out") / "paper"
    monkeypatch.setitem(STYLE, "savefig.dpi", 30)  # a whole picture takes a second
    for name, step, key, fewer in FEWER:
        settings = next((s.settings for s in load_experiment(name).scales[scale].steps if s.name == step), None)
        if settings is None:
            continue
        change = {**settings["options"], "levels": fewer} if key == "levels" else fewer
        if key == "tasks":
            change = {task: settings["tasks"][task] for task in fewer}
        monkeypatch.setitem(settings, "options" if key == "levels" else key, change)
    for name in possible(scale):
        check(layerwise.lab.reproduce(name, out=out, scale=scale, models=models, data=data, threads=1), scale)
    before = snapshot(out / scale / "fig2")
    assert layerwise.lab.reproduce("fig10", out=out, scale=scale, models=models, data=data).seconds < 60
    assert snapshot(out / scale / "fig2") == before, "runs that another experiment made are read, not repeated"


@pytest.mark.parametrize("name", possible("paper"))
def test_at_the_paper_scale_only_the_hub_is_missing(name, tmp_path):
    if name in ("fig7", "table1"):
        check(layerwise.lab.reproduce(name, out=tmp_path, scale="paper"), "paper")
    else:
        with pytest.raises((ModelError, InputError), match="HF_HUB_OFFLINE is set"):
            layerwise.lab.reproduce(name, out=tmp_path, scale="paper")


def test_what_cannot_be_made_is_refused_with_the_reason_before_anything_is_written(models, data, tmp_path):
    refusals = {
        "no experiment 'fig33'; did you mean": ("fig33", {}),
        "fig5 cannot be made at the scale released: the published results have no scans": (
            "fig5", {"scale": "released", "data": data}),
        "fig2 cannot be made at the scale small: not found in --models: all-minilm-l6-v2": ("fig2", {}),
        "not found in --data: released/metrics.parquet": ("fig2", {"scale": "released", "data": models}),
        "'nowhere' is not a folder; --models and --data name folders": ("fig2", {"models": "nowhere"}),
    }  # fmt: skip
    for message, (name, options) in refusals.items():
        with pytest.raises(InputError, match=message.replace("(", r"\(")):
            layerwise.lab.reproduce(name, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    put_decoys(tmp_path / "mine")
    before = snapshot(tmp_path)
    with pytest.raises(RunError, match="is not empty .* and is not a layerwise folder"):
        layerwise.lab.reproduce("fig7", out=tmp_path / "mine")
    assert snapshot(tmp_path) == before


def test_the_list_shows_costs_reasons_and_what_is_missing(models, data, capsys):
    assert main(["lab", "reproduce", "--list", "--models", str(models), "--data", str(data)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for name in NAMES:
        assert f"\n{name} " in printed
    assert "fig6, released: the published tables have no runs with repeated or random" in printed
    assert "your folders do not have:\n  nothing" in printed
    assert main(["lab", "reproduce", "--list", "--models", str(data)]) == 0
    assert "fig2: not found in --models: all-minilm-l6-v2" in capsys.readouterr().out.replace("\n", " ")


def test_a_command_says_what_the_paper_says_and_what_was_written(tmp_path, capsys):
    assert main(["lab", "reproduce", "fig7", "--out", str(tmp_path / "p")]) == 0
    printed = capsys.readouterr()
    assert "the paper: The order alpha sets" in printed.out and "p/small/fig7/fig7.png" in printed.out
    assert "next: layerwise lab reproduce --list" in printed.err
    assert main(["lab", "reproduce", "--out", str(tmp_path / "p")]) == 2


# ---- what steps compute


def test_the_entropy_of_power_laws_falls_with_its_order_and_is_flat_for_a_flat_spectrum():
    frame = power_law_entropies([0, 1, 2], [0.5, 1, 2, 10], 64).pivot(index="exponent", columns="order")
    values = frame.to_numpy()
    assert values[0] == pytest.approx(math.log(64)), "equal eigenvalues have the entropy log N of any order"
    assert (np.diff(values[1:], axis=1) < 0).all() and (np.diff(values, axis=0) < 0).all()
    shares = np.arange(1, 65.0) ** -2 / (np.arange(1, 65.0) ** -2).sum()
    assert values[2, 1] == pytest.approx(-(shares * np.log(shares)).sum()), "order 1 is the Shannon entropy"


def test_corpora_have_as_many_texts_and_nested_classes():
    frame = pd.DataFrame({"text": [f"t{i}" for i in range(90)], "label": [i % 9 for i in range(90)]})
    made = dict(corpora(frame, "label", [1, 2, 5], 10))
    assert {count: (len(c), c.label.nunique()) for count, c in made.items()} == {1: (10, 1), 2: (10, 2), 5: (10, 5)}
    assert set(made[1].label) < set(made[2].label) < set(made[5].label)
    with pytest.raises(InputError, match="cannot be taken in equal parts from 3 classes"):
        dict(corpora(frame, "label", [3], 10))


def test_means_are_over_the_same_tasks_at_every_layer():
    assert largest_grid({"a": {0, 1, 2}, "b": {0, 1, 2}, "c": {0}}) == (["a", "b"], [0, 1, 2])
    assert largest_grid({"a": {0, 1}, "b": {0, 1, 2}}) == (["a", "b"], [0, 1])
    table = eval_table("m", depth=4)
    means = mean_over_tasks(table)
    frame = table.to_pandas().query("norm == 'raw'").groupby("layer").value.mean()
    for row in means:
        if row.norm == "raw":
            assert row.value == pytest.approx(frame[row.layer]) and (row.model, row.n) == ("m (2 tasks)", 2)


def test_the_bidirectional_switch_lets_tokens_see_later_ones(models, data, tmp_path):
    from layerwise.verbs.lab.reproduce.steps import Workplace, run_step

    experiment = load_experiment("fig13")
    place = Workplace(experiment, tmp_path, Inputs.open("small", models, data))
    run_step(place, next(step for step in experiment.scales["small"].steps if step.verb == "bidirectional"))
    for folder, seen in ((models / "smollm2-135m", False), (tmp_path / "fig13/switched/smollm2-135m-switched", True)):
        model = AutoModel.from_pretrained(folder).eval()
        with torch.no_grad():
            first = [model(torch.tensor([[5, 6, last]])).last_hidden_state[0, 0] for last in (7, 8)]
        assert (not torch.equal(*first)) == seen


@pytest.mark.long
def test_the_published_results_give_table_2_on_the_same_tasks(shared, tmp_path):
    """The numbers behind docs/theory.md, item 7, which another script computed."""
    folder = shared("data/released").parent
    made = layerwise.lab.reproduce("table2", out=tmp_path, scale="released", data=folder)
    frame = pd.read_csv(made.files[0]).query("family == 'Pythia-410M'").set_index("rule").chosen
    known = pd.read_csv(ROOT / "studies/selection/table2.csv")
    known = known[(known.reading == "English") & (known.tasks == 29)].set_index("rule").score
    for rule in ("last", "min:dime", "min:infonce", "max:infonce", "min:entropy_dataset"):
        assert frame[rule] == pytest.approx(known[rule], abs=0.005)
