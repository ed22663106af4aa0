"""Exports of image models: plain sentence-transformers gives the vectors of transformers' own hidden states."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from vision_models import encoded, make_processor, make_vision_model, pictures, save_vision

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import ExportError, InputError, ModelError

IMAGES = pictures(5)
NO_FINAL_NORM_OF_POSITIONS = ("beit-mean", "clip")  # see docs/images.md


def own_states(name, layer, *, normed=False):
    """(5, T, D), from the whole model's hidden_states, or behind its final norm."""
    model = make_vision_model(name)
    inputs = make_processor(name)(images=IMAGES, return_tensors="pt")
    with torch.no_grad():
        state = model(**inputs, output_hidden_states=True).hidden_states[layer]
        norm = next((getattr(model, n) for n in ("layernorm", "post_layernorm", "rms_norm") if hasattr(model, n)), None)
        return norm(state) if normed else state


def encode(model):
    return model.encode([Image.fromarray(pixels) for pixels in IMAGES], convert_to_tensor=True)


@pytest.mark.parametrize("name", ["vit", "deit", "dinov2-registers", "beit", "beit-mean", "clip", "siglip", "aimv2"])
def test_a_layer_gives_the_vectors_of_the_whole_models_own_hidden_state(tmp_path, name):
    folder = save_vision(tmp_path / name, name)
    for mode, pooling in (("portable", "mean"), ("compact", "first")):
        small = layerwise.export(folder, 2, tmp_path / mode, mode=mode, pooling=pooling)
        state = own_states(name, 2)
        expected = state.mean(dim=1) if pooling == "mean" else state[:, 0]
        torch.testing.assert_close(encode(small), expected, rtol=0, atol=2e-6)
    if name not in NO_FINAL_NORM_OF_POSITIONS:
        small = layerwise.export(folder, 2, tmp_path / "normed", norm="normed")
        torch.testing.assert_close(encode(small), own_states(name, 2, normed=True).mean(dim=1), rtol=0, atol=2e-6)
        assert json.loads((tmp_path / "normed" / "layerwise.json").read_text())["blocks"] == {"before": 3, "after": 2}


def test_the_command_compares_with_images_of_ones_own_and_its_card_speaks_of_images(tmp_path, capsys):
    model = save_vision(tmp_path / "vit", "vit")
    (tmp_path / "photos").mkdir()
    for number, pixels in enumerate(IMAGES):
        (tmp_path / "photos" / f"{number}.png").write_bytes(encoded(pixels))
    words = ["export", model, "--layer", "2", "--out", str(tmp_path / "out"), "--texts", str(tmp_path / "photos")]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "on 26 images" in printed and "5 images (" in printed and "mean cosine" in printed
    assert "layerwise eval" not in printed, "eval reads texts only"
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "Image.open" in card and "texts" not in card and "max_length" not in card
    again, whole = (
        layerwise.scan(path, IMAGES, metrics="dataset_entropy").where(layer=2, norm="raw")
        for path in (str(tmp_path / "out"), model)
    )
    assert [row.value for row in again] == [row.value for row in whole]
    with pytest.raises(InputError, match="choose layers by number"):  # it reads hidden_states
        layerwise.embed(str(tmp_path / "out"), IMAGES, layers="last")


def test_a_map_is_fitted_on_a_scan(tmp_path):
    model = save_vision(tmp_path / "vit", "vit")
    layerwise.scan(model, IMAGES * 8, metrics="dataset_entropy", out=tmp_path / "scan")
    small = layerwise.export(model, 2, tmp_path / "out", transform="center", fit=tmp_path / "scan")
    rows = own_states("vit", 2).mean(dim=1)
    torch.testing.assert_close(encode(small), rows - rows.mean(dim=0), rtol=0, atol=2e-6)
    with pytest.raises(InputError, match="fitted on a scan"):
        layerwise.export(model, 2, tmp_path / "other", transform="center", fit=IMAGES)


def test_what_plain_sentence_transformers_cannot_do_is_refused(tmp_path):
    vit = save_vision(tmp_path / "vit", "vit")
    for name, options, message in [
        ("mae", {}, "shuffles patches"),
        ("swin", {}, "only the last layer"),
        ("clip", {"norm": "normed"}, "cannot be exported that way"),
        ("vit", {"tokens": "no_special"}, "--pooling first"),
        ("vit", {"format": "onnx"}, "for sentence-transformers only"),
        ("vit", {"servable": True}, "embedding servers read texts"),
    ]:
        model = vit if name == "vit" else save_vision(tmp_path / name, name)
        with pytest.raises((InputError, ExportError), match=message):
            layerwise.export(model, 2, tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()


def test_a_model_of_timm_is_refused_by_name(tmp_path):
    from safetensors.numpy import save_file

    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 10, "pretrained_cfg": {"tag": "augreg"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"weight": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"is a model of timm.*facebook/dinov2-base"):
        layerwise.scan(str(tmp_path), IMAGES)
