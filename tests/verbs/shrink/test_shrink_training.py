"""shrink by training: it imitates the teacher, goes on after a kill as if nothing happened, keeps the best weights."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from embedders import ship_model
from families import make_model
from places import TESTS
from safetensors.torch import load_file
from test_shrink import TEXTS, certificate, vectors

import layerwise
from layerwise.core.errors import MissingExtra, RunError
from layerwise.maps.ridge import fit_ridge
from layerwise.verbs.export.summary import summary_lines

SETTINGS = {"method": "distill", "blocks": 1, "choose": "prefix", "batch_size": 8}


@pytest.fixture
def teacher(tmp_path):
    """Its large weights make texts differ in ways that no linear map of one block recovers."""
    model = make_model("bert")
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(8)
    return ship_model(tmp_path / "teacher", model)


@pytest.fixture
def poor_map(monkeypatch):
    """A start that leaves something to learn, even from few texts: the map is only the half of what it should be."""
    from layerwise.maps.linear import LinearMap
    from layerwise.verbs.shrink import linear

    def poor(*rows):
        fit = fit_ridge(*rows)
        kept = torch.arange(len(fit.linear.bias)) % 2 == 0
        return replace(fit, linear=LinearMap(fit.linear.weight * kept.unsqueeze(1), fit.linear.bias * kept))

    monkeypatch.setattr(linear, "fit_ridge", poor)


def weights(folder):
    return {
        f"{path.parent.name if path.parent != folder else ''}/{name}": weight
        for path in sorted(folder.rglob("model.safetensors"))
        for name, weight in load_file(path).items()
    }


def cosine(one, two):
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors(one), vectors(two))]
    return float((unit[0] * unit[1]).sum(axis=1).mean())


@pytest.mark.parametrize("unit", [True, False])
def test_the_loss_is_zero_for_the_teachers_vectors_only(unit):
    from layerwise.verbs.shrink.training import SIMILARITY_WEIGHT, imitation_loss

    torch.manual_seed(1)
    targets, found = torch.randn(4, 6), torch.randn(4, 6)
    assert float(imitation_loss(targets, targets, unit=unit)) == pytest.approx(0, abs=1e-6)
    assert float(imitation_loss(2 * targets, targets, unit=unit)) == pytest.approx(0 if unit else 1, abs=1e-6)
    cosines = [float(torch.cosine_similarity(found[i], targets[i], dim=0)) for i in range(4)]
    gaps = [
        (float(torch.cosine_similarity(found[i], found[j], dim=0) - torch.cosine_similarity(targets[i], targets[j], 0)))
        for i in range(4)
        for j in range(4)
    ]
    by_hand = 1 - sum(cosines) / 4 + SIMILARITY_WEIGHT * sum(gap**2 for gap in gaps) / 16
    if not unit:
        by_hand += float(((found - targets) ** 2).sum() / (targets**2).sum())
    assert float(imitation_loss(found, targets, unit=unit)) == pytest.approx(by_hand, rel=1e-5)


def test_training_brings_the_student_closer_and_is_recorded(teacher, tmp_path, capsys, poor_map):
    layerwise.shrink(teacher, TEXTS, tmp_path / "linear", blocks=1, choose="prefix")
    layerwise.shrink(
        teacher, TEXTS, tmp_path / "trained", **SETTINGS | {"learning_rate": 3e-3}, steps=60, progress=True
    )
    assert cosine(tmp_path / "trained", teacher) > cosine(tmp_path / "linear", teacher) + 0.01
    record = certificate(tmp_path / "trained")["shrunk"]["training"]
    result = record["result"]
    assert record["steps"] == result["steps"] == 60 and result["kept_step"] > 0
    assert result["agreement"] == max(value for _, value in result["history"]) > result["agreement_before"]
    printed = capsys.readouterr()
    assert "step 60 of 60" in printed.err and "agreement" in printed.err and printed.out == ""
    assert not (tmp_path / "trained.work").exists()
    assert "trained for 60 steps" in (tmp_path / "trained" / "README.md").read_text()


@pytest.mark.parametrize(
    "learning_rate", [pytest.param(30.0, marks=pytest.mark.long), 1e30]
)  # the second gives no numbers at all
def test_the_linear_student_is_kept_if_training_only_makes_it_worse(teacher, tmp_path, learning_rate):
    layerwise.shrink(teacher, TEXTS, tmp_path / "linear", blocks=1, choose="prefix")
    layerwise.shrink(teacher, TEXTS, tmp_path / "wild", **SETTINGS | {"learning_rate": learning_rate}, steps=14)
    record = certificate(tmp_path / "wild")
    result = record["shrunk"]["training"]["result"]
    assert result["kept_step"] == 0 and result["agreement"] == result["agreement_before"]
    first, undone, *_ = summary_lines(record, "wild")
    assert "with a linear map" in first and undone.startswith("training was undone: after ")
    cosine_of_map = f"(mean cosine {result['agreement']:.4f} with teacher)"
    assert undone.endswith(f"{cosine_of_map}; train longer, or with a lower --learning-rate than {learning_rate:g}")
    assert "made it no better and was undone" in " ".join((tmp_path / "wild" / "README.md").read_text().split())
    one, two = weights(tmp_path / "linear"), weights(tmp_path / "wild")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_a_training_that_has_ended_is_not_continued(teacher, tmp_path, poor_map, capsys):
    settings = SETTINGS | {"learning_rate": 3e-3, "steps": 20, "work": tmp_path / "work"}
    for name in ("one", "two"):
        layerwise.shrink(teacher, TEXTS, tmp_path / name, **settings, progress=True)
    assert capsys.readouterr().err.count("step 20 of 20") == 1
    one, two = (certificate(tmp_path / name)["shrunk"]["training"] for name in ("one", "two"))
    kept = {path.name for path in tmp_path.glob("work/training-*/**/*") if path.is_file()}
    assert kept == {"final.safetensors", "result.json"}, "a checkpoint is three times as large as the weights"
    assert one == two and one["result"]["steps"] == 20 and one["result"]["kept_step"] > 0
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    layerwise.shrink(teacher, TEXTS, tmp_path / "other", **settings | {"seed": 1}, progress=True)
    assert "holds a training with other settings or texts" in capsys.readouterr().err


def test_damaged_weights_of_a_training_that_has_ended_are_refused(teacher, tmp_path, poor_map):
    settings = SETTINGS | {"steps": 4, "work": tmp_path / "work"}
    layerwise.shrink(teacher, TEXTS, tmp_path / "one", **settings)
    (final,) = tmp_path.glob("work/training-*/final.safetensors")
    damaged = bytearray(final.read_bytes())
    damaged[-5] ^= 1
    for content in (damaged, damaged[:100]):
        final.write_bytes(content)
        with pytest.raises(RunError, match=f"{final.name} cannot be read: .*; delete {final.parent} and run the same"):
            layerwise.shrink(teacher, TEXTS, tmp_path / "two", **settings)
    final.unlink()
    with pytest.raises(RunError, match=f"{final.name} cannot be read"):
        layerwise.shrink(teacher, TEXTS, tmp_path / "two", **settings)


def test_adapters_start_from_the_seed(teacher, tmp_path, poor_map):
    found = []
    for number in (1, 2):
        torch.manual_seed(number)  # of the caller; it must not matter
        layerwise.shrink(teacher, TEXTS, tmp_path / f"{number}", **SETTINGS, steps=4, lora=2)
        found.append(certificate(tmp_path / f"{number}")["shrunk"]["training"]["result"]["history"])
    assert found[0] == found[1]


def test_training_goes_on_while_it_improves_although_the_start_is_still_better():
    from layerwise.verbs.shrink.training import has_stalled

    recovering = [0.88, 0.75, 0.81, 0.86, 0.87, 0.875, 0.876]
    assert not any(has_stalled(recovering[:count]) for count in range(len(recovering) + 1))
    assert has_stalled([0.5, 0.9, 0.89, 0.89, 0.88]) and not has_stalled([0.9, 0.89, 0.88])


@pytest.mark.parametrize("amx", [True, False])
def test_products_are_in_bfloat16_where_the_processor_has_units_for_them(teacher, tmp_path, monkeypatch, poor_map, amx):
    seen = set()

    def watch(module, given):
        if torch.is_grad_enabled():  # a step, not an evaluation
            seen.add(torch.is_autocast_enabled("cpu"))

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": amx}, raising=False)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(watch)
    try:
        layerwise.shrink(teacher, TEXTS, tmp_path / "small", **SETTINGS | {"learning_rate": 3e-3}, steps=60)
    finally:
        hook.remove()
    record = certificate(tmp_path / "small")["shrunk"]["training"]
    assert amx in seen and (amx or seen == {False}) and record["bfloat16"] == amx
    assert record["result"]["agreement"] > record["result"]["agreement_before"] + 0.01
    assert {weight.dtype for weight in weights(tmp_path / "small").values()} == {torch.float32}


def test_training_ends_when_held_out_texts_get_worse(teacher, tmp_path, monkeypatch):
    from layerwise.verbs.shrink import training

    falling = iter([0.9, *(0.8 - 0.01 * i for i in range(20))])
    monkeypatch.setattr(training.AgreementEvaluator, "__call__", lambda *args, **options: {"agreement": next(falling)})
    layerwise.shrink(teacher, TEXTS, tmp_path / "small", **SETTINGS, steps=72)
    result = certificate(tmp_path / "small")["shrunk"]["training"]["result"]
    assert (result["steps"], result["kept_step"]) == (24, 0) and len(result["history"]) == 4


SCRIPT = """
import sys, torch, layerwise
torch.set_num_threads(1)
sys.path[:0] = {tests!r}
from test_shrink import TEXTS
layerwise.shrink({teacher!r}, TEXTS, {out!r}, method="distill", blocks=1, choose="prefix", batch_size=8, steps=120)
"""


@pytest.mark.long
def test_a_killed_training_ends_with_the_weights_of_an_uninterrupted_one(teacher, tmp_path):
    layerwise.shrink(teacher, TEXTS, tmp_path / "whole", **SETTINGS, steps=120)
    script = SCRIPT.format(
        tests=[str(TESTS), str(Path(__file__).parent)], teacher=teacher, out=str(tmp_path / "killed")
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300  # it starts slowly on a busy machine
    work = tmp_path / "killed.work"
    while not list(work.glob("training-*/checkpoint-*/trainer_state.json")) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read().decode()[-2000:]
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert not (tmp_path / "killed").exists() and work.exists(), "it was killed while it trained"
    layerwise.shrink(teacher, TEXTS, tmp_path / "killed", **SETTINGS, steps=120)
    assert not work.exists()
    whole, killed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert whole.keys() == killed.keys() and all(torch.equal(whole[name], killed[name]) for name in whole)
    results = [certificate(tmp_path / name)["shrunk"]["training"]["result"] for name in ("whole", "killed")]
    # The first evaluations were made in another process, whose threads may round differently.
    assert np.allclose(results[0]["history"], results[1]["history"], rtol=0, atol=1e-6)


def checkpoint(folder, step, best=None):
    from layerwise.verbs.shrink.training import write_checksums

    path = folder / f"checkpoint-{step}"
    path.mkdir()
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (path / name).write_bytes(f"{name} of step {step}".encode())
    best_path = None if best is None else str(folder / f"checkpoint-{best}")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "best_model_checkpoint": best_path}))
    write_checksums(path)
    return path


def test_a_half_written_checkpoint_is_passed_over(tmp_path, capsys):
    from layerwise.core.progress import announcements
    from layerwise.verbs.shrink.training import latest_checkpoint

    for step in (5, 10, 15):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-15" / "checksums.json").unlink()
    (tmp_path / "checkpoint-20").mkdir()
    (tmp_path / "checkpoint-notes").mkdir()
    with announcements(True):
        assert latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-5", "checkpoint-notes"]
    assert latest_checkpoint(tmp_path / "none") is None
    assert capsys.readouterr().err == ""


FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "checksums.json")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, truncate, os.remove])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_checkpoint_is_not_used(file, damage, tmp_path, capsys):
    from layerwise.core.progress import announcements
    from layerwise.verbs.shrink.training import latest_checkpoint

    for step in (5, 10):
        damaged = checkpoint(tmp_path, step)
    damage(damaged / file)
    with announcements(True):
        assert latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-5") and not damaged.exists()
    said = capsys.readouterr().err
    if (file, damage) != ("checksums.json", os.remove):
        assert said.count("\n") == 1 and "checkpoint-10 is not used: " in said
    damage(tmp_path / "checkpoint-5" / file)
    assert latest_checkpoint(tmp_path) is None and not list(tmp_path.iterdir())


def test_a_checkpoint_whose_best_weights_are_damaged_is_not_used(tmp_path, capsys):
    from layerwise.core.progress import announcements
    from layerwise.verbs.shrink.training import latest_checkpoint

    checkpoint(tmp_path, 5, best=5)
    checkpoint(tmp_path, 10, best=5)
    flip(tmp_path / "checkpoint-5" / "model.safetensors")
    with announcements(True):
        assert latest_checkpoint(tmp_path) is None
    assert "checkpoint-10 is not used: checkpoint-5, which has the best weights, is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("file", [pytest.param("optimizer.pt", marks=pytest.mark.long), "model.safetensors"])
def test_a_training_goes_on_from_the_last_whole_checkpoint(file, teacher, tmp_path, monkeypatch, poor_map):
    from layerwise.verbs.shrink import training

    layerwise.shrink(teacher, TEXTS, tmp_path / "whole", **SETTINGS, steps=12)
    usual, evaluations = training.Reporter.on_evaluate, []

    def stopping(self, *args, **options):
        usual(self, *args, **options)
        evaluations.append(1)
        if len(evaluations) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training.Reporter, "on_evaluate", stopping)
        layerwise.shrink(teacher, TEXTS, tmp_path / "stopped", **SETTINGS, steps=12)
    paths = sorted((tmp_path / "stopped.work").glob("training-*/checkpoint-*"))
    assert [path.name for path in paths] == ["checkpoint-4", "checkpoint-8"]
    {"optimizer.pt": truncate, "model.safetensors": flip}[file](paths[-1] / file)
    layerwise.shrink(teacher, TEXTS, tmp_path / "stopped", **SETTINGS, steps=12)
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)


class Clock:
    """A clock that only steps and evaluations move: by 1 second for a step, unless set otherwise, and by 2."""

    def __init__(self, monkeypatch, step_seconds=lambda now: 1.0, stop_at=float("inf")):
        from layerwise.verbs.shrink import training

        self.now, self.rates = 0.0, []
        evaluate, forward, rate = (
            training.AgreementEvaluator.__call__,
            training.ImitationLoss.forward,
            training.Deadline.rate,
        )

        def slow_evaluation(*args, **options):
            self.now += 2.0
            return evaluate(*args, **options)

        def slow_step(*args):
            self.now += step_seconds(self.now)
            if self.now >= stop_at:
                raise KeyboardInterrupt
            return forward(*args)

        def noted_rate(its_deadline):
            self.rates.append(rate(its_deadline))
            return self.rates[-1]

        monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(training.AgreementEvaluator, "__call__", slow_evaluation)
        monkeypatch.setattr(training.ImitationLoss, "forward", slow_step)
        monkeypatch.setattr(training.Deadline, "rate", noted_rate)
        monkeypatch.setattr(training, "PATIENCE", 100)


@pytest.mark.parametrize(
    ("step_seconds", "steps"),
    [(lambda now: 1.0, 107), (lambda now: 1.0 if now < 40 else 4.0, 54), (lambda now: 4.0 if now < 40 else 1.0, 77)],
    ids=["steady", "slower", "faster"],
)
def test_minutes_are_a_deadline_by_the_clock(teacher, tmp_path, monkeypatch, capsys, step_seconds, steps):
    clock = Clock(monkeypatch, step_seconds)
    layerwise.shrink(teacher, TEXTS, tmp_path / "small", **SETTINGS, minutes=2, progress=True)
    record = certificate(tmp_path / "small")["shrunk"]["training"]
    result = record["result"]
    assert result["seconds"] == clock.now == pytest.approx(120, abs=4)  # the longest step
    assert record["minutes"] == 2 and record["steps"] == result["steps"] == pytest.approx(steps, abs=3)
    assert len(result["history"]) == pytest.approx(6, abs=1) and result["history"][-1][0] == result["steps"]
    assert clock.rates[0] < 0.2 and max(clock.rates) > 0.9 and clock.rates[-1] < 0.05, "it rises and falls by the clock"
    printed = capsys.readouterr().err
    assert "training for 1.97 minutes, until " in printed and "of about " in printed and ", ends at " in printed


def test_a_stopped_training_has_the_minutes_that_were_left(teacher, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        Clock(patched, stop_at=70)
        with pytest.raises(KeyboardInterrupt) as stopped:
            layerwise.shrink(teacher, TEXTS, tmp_path / "small", **SETTINGS, minutes=2)
    assert stopped.value.__notes__ == ["run the same command again to go on"]
    states = [json.loads(path.read_text()) for path in tmp_path.glob("small.work/training-*/*/trainer_state.json")]
    spent = max(entry["elapsed"] for state in states for entry in state["log_history"] if "elapsed" in entry)
    assert 40 < spent < 70
    clock = Clock(monkeypatch)
    layerwise.shrink(teacher, TEXTS, tmp_path / "small", **SETTINGS, minutes=2)
    assert clock.now == pytest.approx(120 - spent, abs=3) and clock.rates[0] == pytest.approx(
        (118 - spent) / 106, abs=0.05
    )
    result = certificate(tmp_path / "small")["shrunk"]["training"]["result"]
    assert result["seconds"] == pytest.approx(120, abs=2) and result["steps"] == pytest.approx(105, abs=3)


def test_evaluations_take_no_more_than_a_tenth_of_the_time_unless_there_are_few_steps():
    from layerwise.verbs.shrink.training import evaluation_count

    assert evaluation_count(10_000, 32, 500) == 12
    assert evaluation_count(325, 32, 500) == 6  # 500 texts of an evaluation cost as much as 5.2 steps
    assert evaluation_count(60, 32, 500) == 3


def test_batches_hold_every_text_once_and_similar_lengths():
    from layerwise.verbs.shrink.training import similar_length_batches

    lengths = torch.randint(5, 300, (1003,), generator=torch.Generator().manual_seed(0)).tolist()
    batches = similar_length_batches(lengths, 8, seed=3)
    assert sorted(place for batch in batches for place in batch) == list(range(1003))
    assert batches == similar_length_batches(lengths, 8, seed=3) != similar_length_batches(lengths, 8, seed=4)
    padded = sum(len(batch) * max(lengths[place] for place in batch) for batch in batches)
    assert padded < 1.1 * sum(lengths)  # 1.8 in random batches
    assert [max(lengths[i] for i in batch) for batch in batches] != sorted(max(lengths[i] for i in b) for b in batches)


def test_adapters_are_merged_into_a_plain_folder(teacher, tmp_path, poor_map):
    pytest.importorskip("peft")
    layerwise.shrink(teacher, TEXTS, tmp_path / "linear", blocks=1, choose="prefix")
    layerwise.shrink(teacher, TEXTS, tmp_path / "adapted", **SETTINGS | {"learning_rate": 5e-3}, steps=48, lora=4)
    one, two = weights(tmp_path / "linear"), weights(tmp_path / "adapted")
    assert one.keys() == two.keys()
    changed = {name for name in one if not torch.equal(one[name], two[name])}
    blocks = {name for name in changed if "layer.0" in name}
    assert blocks and all(torch.linalg.matrix_rank(two[n] - one[n], rtol=1e-3) <= 4 for n in blocks)
    assert {name for name in changed if "embeddings" in name or "LayerNorm" in name} == set()
    assert cosine(tmp_path / "adapted", teacher) > cosine(tmp_path / "linear", teacher)


def test_a_missing_package_is_named_before_anything_is_computed(teacher, tmp_path, monkeypatch):
    from layerwise.verbs.shrink import api as verb

    for missing, options in (("accelerate", {}), ("datasets", {}), ("peft", {"lora": 4})):
        monkeypatch.setattr(verb, "find_spec", lambda name, missing=missing: None if name == missing else object())
        with pytest.raises(MissingExtra, match=rf"{missing}: pip install 'layerwise\[train\]'"):
            layerwise.shrink(teacher, TEXTS, tmp_path / "small", **SETTINGS, steps=2, **options)
    assert not (tmp_path / "small.work").exists()
