"""Audio families: every layer is what transformers returns, frames are counted as the model makes them, and a clip has
the same vectors alone and in a batch."""

import numpy as np
import pytest
import torch
from audio_models import (
    AUDIO,
    EXACT,
    NORMED,
    RATE,
    WINDOWED,
    clips,
    make_audio_config,
    make_audio_model,
    make_extractor,
    save_audio,
    tone,
)
from families import DEPTH, WIDTH
from torch import nn

import layerwise
from layerwise.core.errors import InputError, ModelError
from layerwise.core.recipe import Readout
from layerwise.inputs.modalities import processor_for
from layerwise.inputs.source import Clip, Example
from layerwise.models.doctor import run_checks
from layerwise.models.find_blocks import find_structure
from layerwise.models.load import ModelSpec, backbone, load_network, network_from_object, read_model_info
from layerwise.models.parts import part_names
from layerwise.models.taps import apply_final_norm, tapped
from layerwise.passes.batches import make_groups
from layerwise.passes.vectors import pooled_vectors


@pytest.fixture(params=sorted(AUDIO))
def name(request):
    return request.param


def network_of(name):
    return network_from_object((make_audio_model(name), make_extractor(name)))


def inputs_of(name, samples):
    """What transformers itself makes of one clip."""
    made = make_extractor(name)(samples, sampling_rate=RATE, return_tensors="pt")
    made.pop("attention_mask", None)  # all ones
    return made


def own_states(network, name, samples):
    """Every layer without taps: transformers' hidden states; the last one with the final norm taken out."""
    module, norm = network.module, network.structure.final_norm
    with torch.inference_mode():
        out = module(**inputs_of(name, samples), output_hidden_states=True)
        states = list(out.hidden_states)
        assert len(states) == DEPTH + 1, "what enters block 1, and the output of every block"
        if norm is None:
            return states, out.last_hidden_state
        path = next(path for path, part in module.named_modules() if part is norm)
        module.set_submodule(path, nn.Identity())
        raw = module(**inputs_of(name, samples)).last_hidden_state
        module.set_submodule(path, norm)
    return [*states[:DEPTH], raw], out.last_hidden_state


def examples_of(given):
    return [Example(str(number), Clip(*clip)) for number, clip in enumerate(given)]


def test_layers_are_those_of_transformers_and_the_final_norm_gives_its_output(name):
    network, samples, seen = network_of(name), tone(9_000), {}
    with torch.inference_mode(), tapped(network.structure, range(DEPTH + 1), lambda k, h: seen.update({k: h.clone()})):
        network.forward(inputs_of(name, samples))
    expected, last = own_states(network, name, samples)
    assert sorted(seen) == list(range(DEPTH + 1)) and (network.depth, network.width) == (DEPTH, WIDTH)
    for layer in range(DEPTH + 1):
        torch.testing.assert_close(seen[layer], expected[layer], rtol=1e-5, atol=1e-5, msg=f"layer {layer}")
    assert all(not torch.allclose(seen[k], seen[k + 1], atol=1e-3) for k in range(DEPTH)), "layers must differ"
    assert network.has_norm == (name in NORMED)
    if network.has_norm:
        with torch.inference_mode():
            torch.testing.assert_close(apply_final_norm(network.structure, seen[DEPTH]), last, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(seen[DEPTH], last, atol=1e-2), "the norm must matter here"


def test_the_norm_before_the_blocks_of_a_post_norm_model_is_not_its_final_norm():
    """Its name and place are those of the final norm of a pre-norm model; layer 0 is behind it."""
    network, seen = network_of("wav2vec2"), {}
    before = network.module.encoder.layer_norm
    before.register_forward_hook(lambda module, args, output: seen.update(norm=output))
    with torch.inference_mode(), tapped(network.structure, [0], lambda k, hidden: seen.update(layer_0=hidden)):
        network.forward(inputs_of("wav2vec2", tone(9_000)))
    assert network.structure.final_norm is None
    torch.testing.assert_close(seen["norm"], seen["layer_0"])


def test_a_clip_has_the_same_vectors_alone_in_a_batch_and_by_transformers(name):
    network, given = network_of(name), clips()
    readouts = [Readout(layer) for layer in range(DEPTH + 1)]
    limit = 400 if name not in WINDOWED else network.max_length
    alone = pooled_vectors(network, examples_of(given), readouts, max_length=limit, batch_tokens=1)
    many = pooled_vectors(network, examples_of(given), readouts, max_length=limit, batch_tokens=100_000)
    frames = network.preprocessor.frames
    for readout in readouts:
        torch.testing.assert_close(many[readout], alone[readout], rtol=1e-4, atol=1e-4)
    for number in (0, len(given) - 1):
        samples = given[number][0]
        states, _ = own_states(network, name, samples)
        positions = torch.arange(states[0].shape[1])
        counted = frames.count(len(samples)) if frames.window else len(positions)
        real = (positions < frames.special) | ((positions - frames.special) % (frames.window or 10**9) < counted)
        for readout in readouts:
            expected = states[readout.layer][0, real].mean(dim=0)
            torch.testing.assert_close(many[readout][number], expected, rtol=1e-4, atol=1e-4)


def test_only_models_that_padding_leaves_alone_are_padded(name):
    """Padding would change the others, so they run in batches of equal length."""
    network, given = network_of(name), clips()
    prepared = processor_for(network.preprocessor).prepare(examples_of(given), network.max_length)
    groups = list(make_groups(prepared, 10**9))
    assert len(groups) == (1 if name in WINDOWED | EXACT else len(given) - 1), "two clips are equally long"
    if name in WINDOWED | EXACT:
        return
    samples = tone(5_000)
    padded = np.concatenate([samples, np.zeros(4_000, np.float32)])
    states = [own_states(network, name, clip)[0][0] for clip in (samples, padded)]
    shorter = states[0].shape[1]
    assert not torch.allclose(states[0], states[1][:, :shorter], atol=1e-3), "padding changes this model"


def test_frames_are_counted_as_the_model_makes_them(name):
    network = network_of(name)
    frames, module = network.preprocessor.frames, network.module
    if name in WINDOWED:
        with torch.inference_mode():
            states = module(**inputs_of(name, tone(5_000))).last_hidden_state
        assert states.shape[1] == frames.positions(5_000) == frames.positions(1)
        assert frames.count(1) == 1 and frames.count(frames.step) == 1 and frames.count(frames.step + 1) == 2
        assert frames.count(10**9) == frames.window == network.max_length
        return
    lengths = [frames.least_samples(1), 999, 1_000, 4_001, 7_777]
    for length in lengths:
        with torch.inference_mode():
            states = module(**inputs_of(name, tone(length))).last_hidden_state
        assert states.shape[1] == frames.count(length) == frames.positions(length)
        if hasattr(module, "_get_feat_extract_output_lengths"):
            assert int(module._get_feat_extract_output_lengths(torch.tensor(length))) == frames.count(length)
    assert frames.count(frames.least_samples(1) - 1) == 0
    for number in (1, 2, 17):
        assert frames.count(frames.least_samples(number)) == frames.count(frames.most_samples(number)) == number
        assert frames.count(frames.most_samples(number) + 1) == number + 1


@pytest.mark.parametrize("name", sorted(WINDOWED))
def test_a_clip_longer_than_the_window_is_read_as_transformers_reads_it(name):
    network, samples = network_of(name), tone(40_000)
    (prepared,) = processor_for(network.preprocessor).prepare(examples_of([(samples, RATE)]), network.max_length)
    assert prepared.truncated and prepared.views[0].frames == network.max_length
    vectors = pooled_vectors(network, examples_of([(samples, RATE)]), [Readout(2)], max_length=network.max_length)
    states, _ = own_states(network, name, samples)
    torch.testing.assert_close(vectors[Readout(2)][0], states[2][0].mean(dim=0), rtol=1e-4, atol=1e-4)


def test_half_a_second_has_25_frames_of_a_real_whisper():
    from layerwise.models.families.audio import whisper_frames

    extractor, config = make_extractor("whisper"), make_audio_config("whisper")
    config.max_source_positions = 1500
    frames = whisper_frames(config, extractor)
    assert (frames.count(RATE // 2), frames.positions(1), frames.most_samples(1500)) == (25, 1500, 30 * RATE)


def test_the_patches_of_a_spectrogram_that_count_are_those_where_audio_begins():
    """Each patch is replaced by the time at which it begins; the clip has so many frames of ten milliseconds."""
    network = network_of("ast")
    processor, module = processor_for(network.preprocessor), network.module
    prepared = processor.prepare([Example("a", Clip(tone(3_000), RATE))], 10**4)
    inputs = processor.collate(prepared)
    masks = processor.masks(prepared, inputs, network.preprocessor.frames.positions(1))
    projection = module.embeddings.patch_embeddings.projection
    with torch.no_grad():
        projection.weight.zero_()
        projection.weight[:, :, 0, 0] = 1.0
        projection.bias.zero_()
    times = torch.arange(inputs["input_values"].shape[1], dtype=torch.float32)[None, :, None]
    with torch.inference_mode():
        begins = module.embeddings.patch_embeddings(times.expand_as(inputs["input_values"]))[0, :, 0]
    expected = begins * (RATE // 100) < 3_000
    assert 0 < int(expected.sum()) < len(expected)
    assert torch.equal(masks.real[0, 0, 2:], expected) and masks.real[0, 0, :2].all()
    assert masks.special[0, 0].nonzero().flatten().tolist() == [0, 1]
    assert masks.padding is not None and torch.equal(masks.padding, ~masks.real)


def test_a_model_is_loaded_from_its_folder_with_its_feature_extractor(name, tmp_path):
    folder = save_audio(tmp_path / name, name)
    network, info = load_network(ModelSpec(folder)), read_model_info(ModelSpec(folder))
    assert (info.depth, info.width, info.has_norm) == (DEPTH, WIDTH, name in NORMED)
    assert network.part == ("encoder" if name in ("whisper", "moonshine") else "")
    again = load_network(ModelSpec(folder, part=network.part or None))
    assert network.fingerprint() == again.fingerprint(), "the part that is chosen anyway makes no other model"
    changed = make_extractor(name)
    changed.padding_value = 0.5
    changed.save_pretrained(folder)
    assert load_network(ModelSpec(folder)).fingerprint() != network.fingerprint(), "other inputs, another identity"


def test_a_folder_without_a_feature_extractor_says_what_to_copy(tmp_path):
    make_audio_model("wav2vec2").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no preprocessor_config.json.*\n.*AutoFeatureExtractor"):
        load_network(ModelSpec(str(tmp_path)))


def test_a_family_whose_frames_are_unknown_is_refused_with_those_that_are_known():
    from transformers import AutoConfig, AutoModel, SpeechT5FeatureExtractor

    config = AutoConfig.for_model("sew", hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4)
    with pytest.raises(ModelError, match="which frames of a SEWModel cover real audio; it knows .*whisper"):
        network_from_object((AutoModel.from_config(config), SpeechT5FeatureExtractor()))


def test_a_module_of_audio_refuses_texts_and_a_tokenizer(tmp_path):
    from families import make_tokenizer

    with pytest.raises(ModelError, match=r"audio model \(Wav2Vec2Model\), and takes no texts"):
        network_from_object((make_audio_model("wav2vec2"), make_tokenizer()))
    with pytest.raises(InputError, match="item 0 of the list: there is no file|takes audio"):
        layerwise.embed((make_audio_model("wav2vec2"), make_extractor("wav2vec2")), ["a text"])


# --- parts of models with several stacks


def test_the_decoder_of_a_speech_model_reads_texts():
    from families import make_tokenizer

    network = network_from_object((make_audio_model("whisper"), make_tokenizer()), part="decoder")
    assert network.part == "decoder" and network.structure.path == "layers"


def clip_model():
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    tower = {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "num_attention_heads": 4, "intermediate_size": 48}
    text = tower | {
        "vocab_size": 97,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=tower | {"image_size": 16, "patch_size": 8})).eval()


def test_a_stack_is_chosen_by_the_name_of_its_nested_config(tmp_path):
    from families import make_tokenizer

    model = clip_model()
    text = backbone(model, "text")
    assert find_structure(text, text.config).depth == DEPTH and text.config is model.config.text_config
    assert backbone(model, "vision").config is model.config.vision_config
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    network = load_network(ModelSpec(str(tmp_path), part="text"))
    assert (network.part, network.depth, network.has_norm) == ("text", DEPTH, True)
    assert not [finding for finding in run_checks(network) if finding.verdict == "wrong"]
    with pytest.raises(ModelError, match="takes images, but has no preprocessor_config.json"):
        load_network(ModelSpec(str(tmp_path), part="vision"))


def test_a_part_that_is_not_there_is_answered_with_those_that_are():
    model = clip_model()
    assert part_names(model)[:2] == ["text", "vision"]
    with pytest.raises(InputError, match="no part 'audio'; it has text, vision"):
        backbone(model, "audio")
    with pytest.raises(InputError, match="no part 'decoder'"):
        backbone(make_audio_model("wav2vec2"), "decoder")
