"""examples/vision, and the commands of docs/images.md on random models with the configurations of the hub's models."""

import importlib.util
import sys

import pandas as pd
import pytest
import torch
from families import DEPTH
from places import ROOT
from safetensors.torch import load_file
from transformers import AutoModel, BitImageProcessorPil, CLIPConfig, CLIPImageProcessorPil, Dinov2Config
from vision_models import COMMON, encoded, picture

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import ModelError
from layerwise.models.load import ModelSpec, load_network, network_from_object, read_model_info
from layerwise.models.taps import tapped

EXAMPLE = ROOT / "examples" / "vision"


def imported(name):
    spec = importlib.util.spec_from_file_location(f"vision_{name}", EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


train, reading = imported("train"), imported("reading")
SMALL = {"batch": 4, "width": 32, "blocks": 2, "patch": 8, "size": 16, "warmup": 1}


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.rand(24, 3, 16, 16, generator=generator) * 2 - 1, torch.arange(24) % 3
    return {"train": (images, labels), "test": (images[:9], labels[:9])}


@pytest.mark.parametrize("objective", train.OBJECTIVES)
def test_a_run_that_was_stopped_ends_with_the_same_weights(objective, data, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "CHECKPOINT_EVERY", 2)
    settings = train.Settings(objective, seed=3, steps=5, **SMALL)
    train.train(settings, data, tmp_path / "whole")

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            train.train(settings, data, tmp_path / "stopped")
    assert (tmp_path / "stopped" / "checkpoint.safetensors").exists()
    train.train(settings, data, tmp_path / "stopped")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert not (tmp_path / "stopped" / "checkpoint.safetensors").exists()
    other_seed = train.Settings(objective, seed=4, steps=5, **SMALL)
    train.train(other_seed, data, tmp_path / "seed")
    assert any(not torch.equal(one[n], w) for n, w in load_file(tmp_path / "seed" / "model.safetensors").items())


def test_a_checkpoint_of_other_settings_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "CHECKPOINT_EVERY", 1)
    monkeypatch.setattr(train, "save", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train.train(train.Settings("supervised", 0, 2, **SMALL), data, tmp_path)
    with pytest.raises(SystemExit, match="was trained with other settings"):
        train.train(train.Settings("supervised", 0, 3, **SMALL), data, tmp_path)


def test_an_autoregressive_model_sees_only_what_precedes_a_patch(data, tmp_path):
    """As reading.py opens it; transformers' eager attention would read it in both directions."""
    train.train(train.Settings("autoregressive", 0, 1, **SMALL), data, tmp_path)
    one = torch.from_numpy(picture(size=(16, 16)).transpose(2, 0, 1).copy())[None].float() / 255
    other = one.clone()
    other[..., 8:, 8:] = 0  # the last of four patches
    model, processor = reading.open_model(tmp_path)
    eager = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False, attn_implementation="eager")
    assert unchanged((model, processor), one, other) == [True] * 4 + [False]
    assert unchanged((eager, processor), one, other) == [False] * 5


def unchanged(model, one, other):
    """Which positions of layer 2 have the same states for both."""
    network, states = network_from_object(model), []
    for pixels in (one, other):
        with torch.inference_mode(), tapped(network.structure, [2], lambda k, hidden: states.append(hidden)):
            network.forward({"pixel_values": pixels})
    return (states[0] == states[1]).all(dim=-1)[0].tolist()


def test_the_target_of_a_position_is_the_next_patch():
    learner = train.Learner(train.Settings("autoregressive", 0, 1, **SMALL), 3)
    pixels = torch.randn(2, 3, 16, 16)
    targets = train.normalised_patches(pixels, 8)
    third = pixels[0, :, 8:, :8].flatten()  # patches go row by row
    torch.testing.assert_close(targets[0, 2], (third - third.mean()) / third.std(), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        predicted = learner.head(learner.vit(pixel_values=pixels).last_hidden_state)
        expected = sum((predicted[:, k] - targets[:, k]).square().mean() for k in range(4)) / 4
        torch.testing.assert_close(learner.loss(pixels, torch.zeros(2).long(), torch.Generator()), expected)


# --- the commands of docs/images.md, up to the download


def save_files(folder, config, processor):
    config.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def test_dinov2_and_clip_of_the_hub_are_planned_from_their_configurations(tmp_path):
    """facebook/dinov2-base and openai/clip-vit-base-patch32: depth, width and positions, without weights."""
    dinov2 = save_files(
        tmp_path / "dinov2",
        Dinov2Config(image_size=518, patch_size=14),
        BitImageProcessorPil(size={"shortest_edge": 256}, crop_size={"height": 224, "width": 224}),
    )
    info = read_model_info(ModelSpec(dinov2))
    assert (info.depth, info.width, info.has_norm, info.preprocessor.positions) == (12, 768, True, 257)
    clip = save_files(tmp_path / "clip", CLIPConfig(), CLIPImageProcessorPil())
    info = read_model_info(ModelSpec(clip, part="vision"))
    assert (info.depth, info.width, info.has_norm, info.preprocessor.positions) == (12, 768, True, 50)
    with pytest.raises(ModelError, match="has no weights .no .safetensors file"):
        load_network(ModelSpec(dinov2))


def test_the_commands_of_the_page_run_on_small_models_of_the_same_kind(tmp_path, capsys):
    torch.manual_seed(0)
    cut = {"size": {"shortest_edge": 24}, "crop_size": {"height": 21, "width": 21}}
    text = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    for name, config, processor in (
        ("dinov2", Dinov2Config(**COMMON | {"mlp_ratio": 2}), BitImageProcessorPil(**cut)),
        ("clip", CLIPConfig(text_config=text, vision_config=COMMON), CLIPImageProcessorPil(**cut)),
    ):
        AutoModel.from_config(config).save_pretrained(tmp_path / name)
        processor.save_pretrained(tmp_path / name)
    (tmp_path / "photos").mkdir()
    for number in range(9):
        (tmp_path / "photos" / f"{number}.png").write_bytes(encoded(picture(number)))
    contents = [encoded(picture(number)) for number in range(30)]
    pd.DataFrame({"image": contents, "class": ["a", "b"] * 15}).to_parquet(tmp_path / "photos.parquet")
    dinov2, clip, photos = (str(tmp_path / name) for name in ("dinov2", "clip", "photos"))
    for words in (
        ["scan", dinov2, "--data", photos, "--out", str(tmp_path / "run")],
        ["scan", clip, "--part", "vision", "--data", f"{photos}.parquet", "--out", str(tmp_path / "run2")],
        ["embed", dinov2, "--data", photos, "--layers", "2", "--tokens", "no_special", "--out", f"{photos}.v.parquet"],
        ["probe", dinov2, "--data", f"{photos}.parquet", "--label", "class", "--probes", "linear,knn"],
    ):
        assert main(words) == 0, capsys.readouterr().err
    assert layerwise.Run.open(tmp_path / "run2").table.require_model().part == "vision"
    assert len(pd.read_parquet(f"{photos}.v.parquet").layer_2[0]) == 32 and DEPTH == 3
