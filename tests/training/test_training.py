"""Training: scans change nothing in a training, reach every logger, agree with scan, and are merged over processes."""

import json
import math
import random
import subprocess
import sys
import warnings
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch
from families import WIDTH, make_config, make_model, make_tokenizer
from places import TESTS
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

import layerwise
from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.core.options import option_specs
from layerwise.runs.scores import LayerScore
from layerwise.training import Alert, LayerwiseCallback
from layerwise.training.alerts import AlertState
from layerwise.training.options import WatchOptions
from layerwise.training.watch import open_watch

STEPS, EVERY = 7, 3

# Since transformers 5.23 the second name warns.
NAMES = ("activation_checkpointing", "gradient_checkpointing")
CHECKPOINTING = next(name for name in NAMES if hasattr(TrainingArguments, name))


def make_causal(family="llama", dropout=0.0):
    torch.manual_seed(3)
    config = make_config(family)
    if dropout:
        config.attention_dropout = config.hidden_dropout = dropout
    return AutoModelForCausalLM.from_config(config)


def make_trainer(folder, texts, model=None, **options):
    tokenizer = make_tokenizer()
    rows = [{"input_ids": ids, "labels": ids} for ids in tokenizer(texts)["input_ids"] for ids in [ids[:3] * 3]]
    settings = {
        "max_steps": STEPS, "per_device_train_batch_size": 5, "learning_rate": 1e-3, "logging_steps": 1,
        "report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "seed": 5,
    }  # fmt: skip
    args = TrainingArguments(str(folder / "trainer"), **settings | options)
    return Trainer(model or make_causal(), args, train_dataset=rows, processing_class=tokenizer)


def add_watch(trainer, texts, **options):
    watch = LayerwiseCallback(trainer, texts, **{"every": EVERY, "progress": False} | options)
    trainer.add_callback(watch)
    return watch


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def weights(model):
    return [weight.detach().clone() for weight in model.parameters()]


class DrawsRandomNumbers(TrainerCallback):
    """Augmentation at every step would do so: what it draws must not depend on scans."""

    def __init__(self):
        self.drawn = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_losses_weights_and_random_numbers_are_the_same_bits_with_and_without_the_callback(
    tmp_path, word_texts, checkpointing
):
    found = []
    for watched in (False, True):
        model, draws = make_causal("gpt_neox", dropout=0.1), DrawsRandomNumbers()
        trainer = make_trainer(tmp_path, word_texts, model, **{CHECKPOINTING: checkpointing})
        trainer.add_callback(draws)
        if watched:
            watch = add_watch(trainer, word_texts, out=tmp_path / "layers")
        trainer.train()
        found.append((losses(trainer), weights(model), draws.drawn))
    (plain, plain_weights, plain_draws), (observed, observed_weights, observed_draws) = found
    assert len(plain) == STEPS and len(set(plain)) > 1
    assert observed == plain and observed_draws == plain_draws
    assert all(torch.equal(*pair) for pair in zip(plain_weights, observed_weights, strict=True))
    assert [*watch.tables] == [0, 3, 6, 7]


def test_a_scan_in_training_is_the_scan_of_that_model(tmp_path, word_texts):
    model = make_causal()
    trainer = make_trainer(tmp_path, word_texts, model)
    watch = add_watch(trainer, word_texts, metrics="fast", rows="centered", shard_size=1024)
    trainer.train()
    after = layerwise.scan((model, make_tokenizer()), word_texts, rows="centered")
    last = watch.tables[STEPS]
    assert [score.value for score in last] == pytest.approx([score.value for score in after], nan_ok=True, rel=0)
    assert model.training  # as the trainer left it


def test_every_layer_is_logged_and_so_is_the_loss_of_every_step(tmp_path, word_texts):
    trainer = make_trainer(tmp_path, word_texts)
    watch = add_watch(trainer, word_texts)
    trainer.train()
    logged = {entry["step"]: entry for entry in trainer.state.log_history if "layers/0/effective_rank" in entry}
    assert [*logged] == [0, 3, 6, 7] and len(losses(trainer)) == STEPS
    for step, entry in logged.items():
        for score in watch.tables[step]:
            suffix = "" if score.norm == "raw" else "_normed"
            assert entry[f"layers/{score.layer}/{score.metric}{suffix}"] == score.value
    assert sum(entry["layers/seconds"] for entry in logged.values()) == pytest.approx(watch.seconds, rel=0.05)
    assert 0 < watch.share < 1


def test_tensorboard_files_of_a_training_hold_every_value(tmp_path, word_texts, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = make_trainer(tmp_path, word_texts, report_to=["tensorboard"])
    watch = add_watch(trainer, word_texts)
    trainer.train()
    board = accumulator.EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    checked = 0
    for layer in range(4):
        events = {e.step: e.value for e in board.Scalars(f"train/layers/{layer}/prompt_entropy")}
        for step, table in watch.tables.items():
            (score,) = table.where(metric="prompt_entropy", layer=layer, norm="raw")
            assert events[step] == pytest.approx(score.value, rel=1e-6)
            checked += 1
    assert checked == 16 and "train/loss" in board.Tags()["scalars"]


def test_the_runs_are_kept_for_compare_and_the_checkpoints_figure(tmp_path, word_texts):
    pytest.importorskip("matplotlib")
    trainer = make_trainer(tmp_path, word_texts)
    add_watch(trainer, word_texts, out=tmp_path / "layers")
    trainer.train()
    folders = sorted((tmp_path / "layers").iterdir())
    assert [folder.name for folder in folders] == ["step000000", "step000003", "step000006", "step000007"]
    compared = layerwise.compare([folders[0], folders[-1]])
    (pair,) = compared.pairs
    assert {"prompt_entropy", "curvature"} <= set(pair.changes[pair.changes.paired.notna()].metric)  # with intervals
    assert pair.cka is not None
    figure = layerwise.plot(folders, figure="checkpoints", metric="effective_rank", out=tmp_path / "steps.png")
    assert figure is not None and (tmp_path / "steps.png").stat().st_size > 0


def test_an_earlier_training_is_never_overwritten(tmp_path, word_texts):
    for attempt in range(2):
        trainer = make_trainer(tmp_path, word_texts)
        add_watch(trainer, word_texts, out=tmp_path / "layers", keep="table" if attempt else "run")
        if attempt:
            before = {path: path.read_bytes() for path in (tmp_path / "layers").rglob("*") if path.is_file()}
            with pytest.raises(RunError, match="another training; choose a new folder"):
                trainer.train()
            assert before == {path: path.read_bytes() for path in before}
        else:
            trainer.train()


def test_tokenized_batches_give_the_numbers_of_their_texts(tmp_path, word_texts):
    model, tokenizer = make_model("llama"), make_tokenizer()
    sides = {}
    for side in ("left", "right"):
        tokenizer.padding_side = side
        batches = [tokenizer(word_texts[i : i + 9], padding=True, return_tensors="pt") for i in range(0, 43, 9)]
        watch = open_watch(model, [dict(batch) for batch in batches], WatchOptions())
        watch.scan(0)
        sides[side] = sorted((s.layer, s.metric, s.norm, s.value) for s in watch.tables[0])
    table = layerwise.scan((model, make_tokenizer()), word_texts, metrics="prompt_entropy,effective_rank,curvature")
    of_texts = sorted((s.layer, s.metric, s.norm, s.value) for s in table)
    for of_ids in sides.values():
        assert [row[:3] for row in of_ids] == [row[:3] for row in of_texts]
        assert [row[3] for row in of_ids] == pytest.approx([row[3] for row in of_texts], rel=1e-6)
    with pytest.raises(LayerwiseError, match="pass texts"):
        open_watch(model, [dict(batches[0])], WatchOptions(metrics="infonce")).scan(0)


def test_an_alert_warns_once_per_layer_and_can_stop_the_training(tmp_path, word_texts):
    trainer = make_trainer(tmp_path, word_texts)
    watch = add_watch(trainer, word_texts, alerts=[Alert(below=1e9, layers=[0, 3])])
    with pytest.warns(UserWarning, match="step 0: effective_rank of layer . is .*, below 1e.09"):
        trainer.train()
    assert [message.split(" is ")[0] for message in watch.messages] == [
        "step 0: effective_rank of layer 0", "step 0: effective_rank of layer 3",
    ]  # fmt: skip
    stopping = make_trainer(tmp_path, word_texts)
    add_watch(stopping, word_texts, alerts=[Alert("curvature", below=1e9, stop=True)])
    with pytest.warns(UserWarning):
        stopping.train()
    assert stopping.state.global_step < STEPS


def test_an_alert_on_a_fall_compares_with_the_largest_value_so_far(word_texts):
    model = make_model("llama")
    watch = open_watch((model, make_tokenizer()), word_texts, WatchOptions(alerts=[Alert(fall=0.5, layers="last")]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.scan(0)
    with torch.no_grad():  # what the last block adds is one direction, much larger than all that was there
        model.layers[2].mlp.down_proj.weight.copy_(torch.ones(WIDTH, 1) * model.layers[2].mlp.down_proj.weight[:1])
        model.layers[2].mlp.down_proj.weight.mul_(1e4)
    with pytest.warns(UserWarning, match="layer 3 is .* % less than at step 0"):
        _, stop = watch.scan(10)
    assert not stop
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.scan(20)  # it is still firing


def test_an_undefined_value_does_not_switch_an_alert_off():
    state = AlertState(Alert(fall=0.5, layers="last"), 3)
    scores = [
        LayerScore("m", 3, 1.0, "raw", "all", "mean", "raw", "effective_rank", value, 9)
        for value in (math.nan, 10.0, math.nan, 2.0)
    ]
    found = [state.messages(step, [score]) for step, score in enumerate(scores)]
    assert found[:3] == [[], [], []] and "80 % less than at step 1" in found[3][0]


def test_layers_that_are_not_finite_warn_and_do_not_end_the_training(word_texts):
    model = make_model("llama")
    watch = open_watch((model, make_tokenizer()), word_texts, WatchOptions(alerts=[Alert(below=0.0, stop=True)]))
    watch.scan(0)
    torch.nn.init.constant_(model.layers[1].mlp.down_proj.weight, float("nan"))
    with pytest.warns(UserWarning, match="step 5: .*layer 2"):
        values, stop = watch.scan(5)
    assert [*values] == ["layers/seconds"] and stop


@pytest.mark.parametrize(
    "options, message",
    [
        ({"every": 0}, "every"),
        ({"metrics": "curvatur"}, "did you mean curvature"),
        ({"alerts": [Alert("lidar", below=1)]}, "an alert needs lidar"),
        ({"layers": "9"}, "layer 9 does not exist"),
        ({"max_share": 1.5}, "max_share"),
    ],
)
def test_wrong_options_are_refused_before_the_training(tmp_path, word_texts, options, message):
    with pytest.raises(InputError, match=message):
        add_watch(make_trainer(tmp_path, word_texts), word_texts, **options)
    with pytest.raises(InputError, match="below=... or fall=..."):
        Alert()


def test_scans_that_take_more_than_their_share_are_skipped(tmp_path, word_texts):
    trainer = make_trainer(tmp_path, word_texts)
    watch = add_watch(trainer, word_texts, every=1, max_share=1e-6)
    trainer.train()
    assert [*watch.tables] == [0, STEPS]  # the first and the last are always made


def test_what_a_model_caches_in_a_scan_can_be_trained_with(word_texts):
    """A tensor that inference mode made cannot be saved for the backward pass."""
    model = make_model("llama")
    plain, cache = model.layers[0].forward, {}

    def with_cache(hidden, *args, **kwargs):
        scale = cache.setdefault("scale", torch.ones(WIDTH) * 1.5)
        return plain(hidden * scale, *args, **kwargs)

    model.layers[0].forward = with_cache
    layerwise.scan((model, make_tokenizer()), word_texts, metrics="curvature")
    model.train()(input_ids=torch.tensor([[5, 6, 7]])).last_hidden_state.sum().backward()


def test_sentence_transformers_trainer_takes_the_same_callback(tmp_path, word_texts, tiny_bert):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    datasets = pytest.importorskip("datasets")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    model = sentence_transformers.SentenceTransformer(tiny_bert, device="cpu")
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        str(tmp_path / "trainer"), max_steps=3, per_device_train_batch_size=4, report_to=[], disable_tqdm=True,
        use_cpu=True, save_strategy="no",
    )  # fmt: skip
    rows = datasets.Dataset.from_dict({"anchor": word_texts[:20], "positive": word_texts[20:40]})
    loss = losses.MultipleNegativesRankingLoss(model)
    trainer = sentence_transformers.SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss)
    watch = add_watch(trainer, word_texts, every=2)
    trainer.train()
    after = layerwise.scan(model, word_texts, metrics="prompt_entropy,effective_rank,curvature", shard_size=64)
    assert [*watch.tables] == [0, 2, 3]
    assert [s.value for s in watch.tables[3]] == [s.value for s in after]


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and loggers
def test_lightning_takes_a_callback_of_its_own(tmp_path, word_texts):
    lightning = pytest.importorskip("lightning.pytorch")
    loggers = pytest.importorskip("lightning.pytorch.loggers")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_causal()

        def training_step(self, batch, index):
            return self.model(input_ids=batch, labels=batch).loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    from layerwise.training import LightningCallback

    watch = LightningCallback(lambda m: (m.model, make_tokenizer()), word_texts, every=2, progress=False)
    logger = loggers.CSVLogger(tmp_path)
    trainer = lightning.Trainer(
        max_steps=5, callbacks=[watch], logger=logger, accelerator="cpu", enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.randint(4, 90, (40, 6)), batch_size=4))
    assert [*watch.tables] == [0, 2, 4, 5] and module.training
    logged = Path(logger.log_dir, "metrics.csv").read_text()
    assert "layers/2/effective_rank" in logged.splitlines()[0] and len(logged.splitlines()) >= 5


def test_the_callbacks_take_the_options_that_are_declared():
    from layerwise.training import LightningCallback

    declared = {spec.name: spec.default for spec in option_specs(WatchOptions)}
    for callback, own in (
        (LayerwiseCallback, {"trainer", "texts", "tokenizer"}),
        (LightningCallback, {"model", "texts"}),
    ):
        taken = {name: p.default for name, p in signature(callback).parameters.items() if name not in own}
        assert taken == declared, callback.__name__


DISTRIBUTED = TESTS / "distributed_training.py"


@pytest.mark.long
def test_two_processes_merge_to_the_bits_of_one(tmp_path, word_texts, tiny_llama):
    (tmp_path / "texts.json").write_text(json.dumps(word_texts))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(DISTRIBUTED)]
    subprocess.run([*command, str(tmp_path), tiny_llama], check=True, timeout=300, capture_output=True)
    results = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    network = (layerwise_model := AutoModelForCausalLM.from_pretrained(tiny_llama), make_tokenizer())
    alone = open_watch(network, word_texts, WatchOptions(shard_size=8, metrics="fast"))
    with torch_threads_of_one():
        values, _ = alone.scan(0)
    del values["layers/seconds"]
    assert layerwise_model is network[0] and len(values) > 20
    for result in results:
        assert result["shards"] == 3  # of six: neither process has computed all
        assert result["first"] == values  # bit for bit
        assert result["stopped_at"] == results[0]["stopped_at"]
    kept = layerwise.Run.open(tmp_path / "layers" / "step000000")
    assert {s.value for s in kept.table if np.isfinite(s.value)} == set(values.values())
    expected = float(layerwise.training.as_torchmetric("effective_rank")(torch.tensor(results[0]["rows"])[:, None]))
    assert [r["effective_rank"] for r in results] == pytest.approx([expected] * 2, rel=1e-9)
    assert [r["one_sided"] for r in results] == pytest.approx([results[0]["one_sided_alone"]] * 2, rel=1e-9)


def torch_threads_of_one():
    from layerwise.engines.shards import torch_threads

    return torch_threads(1)
