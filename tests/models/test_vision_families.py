"""Image families: every layer is what transformers returns, special positions come first, and an image has the same
vectors alone and in a batch."""

import numpy as np
import pytest
import torch
from families import DEPTH, WIDTH
from torch import nn
from transformers import AutoModel, CLIPConfig, CLIPImageProcessorPil, CLIPModel, ViTImageProcessorPil
from vision_models import (
    COMMON,
    POSITIONS,
    SPECIAL,
    VISION,
    WIDTHS,
    make_processor,
    make_vision_model,
    picture,
    pictures,
    save_vision,
    special_of,
)

from layerwise.core.errors import InputError, ModelError
from layerwise.core.recipe import Readout
from layerwise.inputs.modalities import processor_for
from layerwise.inputs.source import Example
from layerwise.models.families import catalog
from layerwise.models.load import ModelSpec, input_kind_of, load_network, network_from_object, read_model_info
from layerwise.models.taps import apply_final_norm, tapped
from layerwise.passes.vectors import pooled_vectors

ALL_LAYERS = range(DEPTH + 1)


@pytest.fixture(params=sorted(VISION))
def name(request):
    return request.param


def network_of(name):
    return network_from_object((make_vision_model(name), make_processor(name)))


def own_output(name, pixels, module=None):
    """What transformers itself computes for one image, with all patches in their order."""
    module = make_vision_model(name) if module is None else module
    inputs = make_processor(name)(images=[pixels], return_tensors="pt")
    if name == "mae":
        module.config.mask_ratio = 0.0
        inputs["noise"] = torch.arange(9.0)[None]
    with torch.inference_mode():
        return module(**inputs, output_hidden_states=True)


def examples_of(given):
    return [Example(str(number), pixels) for number, pixels in enumerate(given)]


def read_layers(network, pixels):
    """The hidden states of each layer for one image, by the taps."""
    processor, seen = processor_for(network.preprocessor), {}
    prepared = processor.prepare(examples_of([pixels]), network.max_length)
    with torch.inference_mode(), tapped(network.structure, ALL_LAYERS, lambda k, h: seen.update({k: h.clone()})):
        network.forward(processor.collate(prepared))
    return seen


def test_every_family_named_for_images_has_a_model_here():
    declared = {name for family in catalog.FAMILIES if family.image_patches for name in family.types}
    assert declared == {model_type for model_type, _ in VISION.values()}


def test_layers_are_those_of_transformers(name):
    network, pixels = network_of(name), picture()
    seen, expected = read_layers(network, pixels), own_output(name, pixels).hidden_states
    assert sorted(seen) == list(ALL_LAYERS) and len(expected) == DEPTH + 1
    assert (network.depth, network.width) == (DEPTH, WIDTH)
    for layer in ALL_LAYERS:
        torch.testing.assert_close(seen[layer], expected[layer], rtol=1e-5, atol=1e-5, msg=f"layer {layer}")
        width, positions = WIDTHS.get(name, [WIDTH] * 4)[layer], POSITIONS.get(name, [9 + special_of(name)] * 4)[layer]
        assert seen[layer].shape == (1, positions, width)
    if name != "swin":
        assert all(not torch.allclose(seen[k], seen[k + 1], atol=1e-3) for k in range(DEPTH)), "layers must differ"


def test_the_final_norm_is_the_one_that_makes_the_output(name):
    """CLIP norms its class token only; BEiT with mean pooling norms the mean of the patches, which is no final norm."""
    network, pixels = network_of(name), picture()
    last, out = read_layers(network, pixels)[DEPTH], own_output(name, pixels)
    assert network.has_norm == (name != "beit-mean")
    if not network.has_norm:
        torch.testing.assert_close(last, out.last_hidden_state, rtol=1e-5, atol=1e-5)
        return
    with torch.inference_mode():
        normed = apply_final_norm(network.structure, last)
    assert not torch.allclose(normed, last, atol=1e-2), "the norm must matter here"
    if name == "clip":
        torch.testing.assert_close(last, out.last_hidden_state, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(normed[:, 0], out.pooler_output, rtol=1e-5, atol=1e-5)
    else:
        torch.testing.assert_close(normed, out.last_hidden_state, rtol=1e-5, atol=1e-5)


def test_layer_0_of_clip_is_behind_the_norm_before_its_blocks():
    network, seen = network_of("clip"), {}
    network.module.pre_layrnorm.register_forward_hook(lambda module, args, output: seen.update(norm=output))
    torch.testing.assert_close(read_layers(network, picture())[0], seen["norm"])


def test_special_positions_are_those_that_hold_no_patch(name):
    """A change of all pixels changes every patch of layer 0, and no class token or register."""
    network = network_of(name)
    one, other = (read_layers(network, picture(number))[0][0] for number in (0, 1))
    unchanged = (one == other).all(dim=-1)
    processor = processor_for(network.preprocessor)
    prepared = processor.prepare(examples_of([picture()]), network.max_length)
    masks = processor.masks(prepared, processor.collate(prepared), len(one))
    assert torch.equal(masks.special[0, 0], unchanged) and masks.real.all() and masks.padding is None
    assert int(unchanged.sum()) == SPECIAL.get(name, 1) and prepared[0].sizes == (len(one),)


def test_an_image_has_the_same_vectors_alone_in_a_batch_and_by_transformers(name):
    network, given = network_of(name), pictures()
    readouts = [Readout(layer, tokens=tokens) for layer in ALL_LAYERS for tokens in ("all", "no_special")]
    options = {"max_length": network.max_length}
    alone = pooled_vectors(network, examples_of(given), readouts, batch_tokens=1, **options)
    many = pooled_vectors(network, examples_of(given), readouts, batch_tokens=100_000, **options)
    for number in (0, len(given) - 1):
        states = own_output(name, given[number]).hidden_states
        for readout in readouts:
            first = special_of(name) if readout.tokens == "no_special" else 0
            expected = states[readout.layer][0, first:].mean(dim=0)
            torch.testing.assert_close(many[readout][number], expected, rtol=1e-4, atol=1e-4)
    for readout in readouts:
        torch.testing.assert_close(many[readout], alone[readout], rtol=1e-4, atol=1e-4)


def test_the_class_token_is_the_first_position():
    network, pixels = network_of("dinov2-registers"), picture()
    readout = Readout(DEPTH, "normed", pooling="first")
    found = pooled_vectors(network, examples_of([pixels]), [readout], max_length=network.max_length)[readout]
    torch.testing.assert_close(found, own_output("dinov2-registers", pixels).pooler_output, rtol=1e-4, atol=1e-5)


def test_mae_reads_every_patch_in_order_and_keeps_its_own_mask_ratio():
    network, pixels = network_of("mae"), picture()
    usual = network.module.config.mask_ratio
    assert usual > 0
    torch.testing.assert_close(read_layers(network, pixels)[2], read_layers(network, pixels)[2], rtol=0, atol=0)
    assert network.module.config.mask_ratio == usual
    with torch.inference_mode():
        random = network.module(**make_processor("mae")(images=[pixels], return_tensors="pt")).last_hidden_state
    assert random.shape[1] < read_layers(network, pixels)[0].shape[1]


def test_a_model_is_loaded_from_its_folder_with_its_image_processor(name, tmp_path):
    folder = save_vision(tmp_path / name, name)
    network, info = load_network(ModelSpec(folder)), read_model_info(ModelSpec(folder))
    assert (info.depth, info.width, info.has_norm) == (DEPTH, WIDTH, name != "beit-mean")
    assert input_kind_of(ModelSpec(folder)) == "image"
    # As files and as an object: the same numbers.
    from_file, in_memory = read_layers(network, picture())[2], read_layers(network_of(name), picture())[2]
    torch.testing.assert_close(from_file, in_memory)
    assert load_network(ModelSpec(folder)).fingerprint() == network.fingerprint()
    changed = make_processor(name)
    changed.image_mean = [0.1, 0.2, 0.3]
    changed.save_pretrained(folder)
    assert load_network(ModelSpec(folder)).fingerprint() != network.fingerprint(), "other inputs, another identity"


def test_a_model_with_texts_and_images_is_read_by_its_part(tmp_path):
    text = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(text_config=text | {"vocab_size": 97}, vision_config=COMMON)).eval()
    model.save_pretrained(tmp_path)
    make_processor("clip").save_pretrained(tmp_path)
    network = load_network(ModelSpec(str(tmp_path), part="vision"))
    assert (network.depth, network.part) == (DEPTH, "vision") and network.has_norm
    pixels = make_processor("clip")(images=[picture()], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        expected = model.vision_model(pixels, output_hidden_states=True).hidden_states
    torch.testing.assert_close(read_layers(network, picture())[2], expected[2], rtol=1e-5, atol=1e-5)


def test_a_folder_without_an_image_processor_says_what_to_copy(tmp_path):
    make_vision_model("vit").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"takes images, but has no preprocessor_config.json.*\n.*AutoImageProcessor"):
        load_network(ModelSpec(str(tmp_path)))


def test_inputs_of_different_sizes_are_refused():
    processor = CLIPImageProcessorPil(size={"shortest_edge": 21}, do_center_crop=False)
    with pytest.raises(ModelError, match="inputs of different sizes .21 x 28 and 28 x 21 pixels.*do_center_crop"):
        network_from_object((make_vision_model("clip"), processor))


def test_an_image_model_of_another_family_names_those_that_are_known(tmp_path):
    from transformers import ConvNextConfig

    model = AutoModel.from_config(ConvNextConfig(hidden_sizes=[4, 4, 4, 4], depths=[1, 1, 1, 1]))
    with pytest.raises(ModelError, match="which positions of a ConvNextModel are patches; it knows .*dinov2"):
        network_from_object((model, ViTImageProcessorPil()))


def test_images_are_read_whole():
    network = network_of("vit")
    with pytest.raises(InputError, match="would cut images, which are read whole: this model reads 10 positions"):
        processor_for(network.preprocessor).prepare(examples_of([picture()]), 5)


def test_the_input_of_a_tiny_image_is_not_taken_for_one_with_its_channels_first():
    """Three rows of pixels are not three channels."""
    network, pixels = network_of("vit"), picture(size=(17, 3))
    processor = processor_for(network.preprocessor)
    made = processor.collate(processor.prepare(examples_of([pixels]), network.max_length))["pixel_values"]
    white = np.full((3, 17, 3), 255, np.uint8)
    assert made.shape == (1, 3, 21, 21) and len(made.unique()) > 50
    assert isinstance(network.structure.final_norm, nn.LayerNorm)
    assert (processor.collate(processor.prepare(examples_of([white]), network.max_length))["pixel_values"] == 1).all()
