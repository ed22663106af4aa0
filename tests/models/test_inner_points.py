"""The points inside a block: each declared one is there, and they add up to the block as its family says."""

from dataclasses import replace

import pytest
import torch
from audio_models import AUDIO, make_audio_model, make_extractor, tone
from families import COMMON, DEPTH, FAMILIES, KV, VOCABULARY, WIDTH, make_config
from transformers import AutoConfig, AutoModel
from vision_models import VISION, make_processor, make_vision_model, picture

from layerwise.models.families import catalog
from layerwise.models.families.configs import block_layout
from layerwise.models.find_blocks import find_structure
from layerwise.models.load import backbone
from layerwise.models.taps import hidden_from_arguments, hidden_from_output

B, T = 2, 7
MLP_READS = "what the MLP reads"
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}

# One tiny config per declared model type and way to build it, beside those of families.py.
MORE = {
    "ministral": KV | {"head_dim": 8},
    "qwen2_moe": KV | EXPERTS | {"shared_expert_intermediate_size": 16},
    "qwen3_moe": KV | EXPERTS | {"head_dim": 8},
    "olmo": KV,
    "phi3": KV,
    "smollm3": KV,
    "starcoder2": KV,
    "gemma": KV | {"head_dim": 8},
    "gpt_bigcode": {"n_inner": 48},
    "gemma2": KV | {"head_dim": 8},
    "glm4": KV | {"head_dim": 8},
    "olmo2": KV,
    "olmo3": KV,
    "modernbert-decoder": {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 8},
    "qwen2_vl_text": KV | ROPE,
    "qwen2_5_vl_text": KV | ROPE,
    "qwen3_vl_text": KV | ROPE | {"head_dim": 8},
    "cohere": KV,
    "gptj": {"rotary_dim": 4, "n_inner": 48},
    "codegen": {"rotary_dim": 4, "n_inner": 48},
    "stablelm": KV,
    "falcon_mamba": {"state_size": 4},
    "ernie": {},
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "xlm-roberta": {},
    "camembert": {},
    "data2vec-text": {},
    "xlm-roberta-xl": {},
    "mt5": FAMILIES["t5"],
}
VARIANTS = [
    ("gpt_neox", {"use_parallel_residual": False}),
    ("stablelm", {"use_parallel_residual": True}),
    ("opt", {"do_layer_norm_before": False}),
    ("falcon", {"parallel_attn": False, "alibi": True}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
]
DECLARED = sorted({name for family in catalog.FAMILIES if family.layouts for name in family.types})
AUDIO_TYPES = {model_type for model_type, _ in AUDIO.values()}
VISION_TYPES = {name: kind for name, (kind, _) in VISION.items() if kind in DECLARED}
CASES = [(name, {}) for name in DECLARED if name not in {*AUDIO_TYPES, *VISION_TYPES.values()}] + VARIANTS


def build(name, options):
    """A tiny model whose weights, norms included, are random: an untrained norm of ones would hide mistakes."""
    torch.manual_seed(sum(map(ord, name)))
    if name in FAMILIES:
        config = make_config(name)
        config = type(config)(**config.to_dict() | options)
    elif name == "mt5":
        config = AutoConfig.for_model(name, vocab_size=VOCABULARY, pad_token_id=0, eos_token_id=2, **MORE[name])
    else:
        config = AutoConfig.for_model(name, **COMMON | MORE[name] | options)
    model = AutoModel.from_config(config).eval()
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            if "A_log" not in weight_name and "dt" not in weight_name:
                weight.add_(0.05 * torch.randn_like(weight))
    return backbone(model, "encoder" if name in ("t5", "mt5") else None)


def token_inputs():
    ids = torch.randint(4, VOCABULARY, (B, T), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def read_points(module, layout, anatomy, inputs):
    """One pass: for each call of a block, what entered it and what passed each point, by hooks on submodules alone."""
    calls, handles = [], []

    def keep(name, value):
        calls[-1][name] = value.clone()  # a block may go on to change it in place

    def hook_block(block):
        def before(part, args, kwargs):
            calls.append({"x": hidden_from_arguments(args, kwargs).clone(), "block": block})

        handles.append(block.register_forward_pre_hook(before, with_kwargs=True))
        points = list(layout.points)
        if layout.residuals == "parallel":  # that the MLP does not read what attention made is to be seen at its input
            points.append(next(replace(p, name=MLP_READS, side="input") for p in points if p.name == "mlp_output"))
        for point in points:
            part = block.get_submodule(point.module)
            if point.side == "input":
                hook = lambda part, args, kwargs, n=point.name: keep(n, hidden_from_arguments(args, kwargs))  # noqa: E731
                handles.append(part.register_forward_pre_hook(hook, with_kwargs=True))
            else:
                hook = lambda part, args, output, n=point.name: keep(n, hidden_from_output(output))  # noqa: E731
                handles.append(part.register_forward_hook(hook))

    for block in anatomy.blocks:
        hook_block(block)
    with torch.inference_mode():
        module(**inputs)
    for handle in handles:
        handle.remove()
    return calls


def close(found, expected, message):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=lambda text: f"{message}: {text}")


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o)}".rstrip("-") for n, o in CASES])
def test_the_points_of_a_block_are_there_and_add_up(name, options):
    check_points(build(name, options), token_inputs(), B, T)


def check_points(module, inputs, batch, length):
    layout, anatomy = block_layout(module.config), find_structure(module, module.config)
    assert layout is not None and (layout.points[-1].module, layout.points[-1].side) == ("", "output")
    calls = read_points(module, layout, anatomy, inputs)
    assert len(calls) == DEPTH
    flat, shape = {point.name for point in layout.points if point.flattened}, (batch, length, WIDTH)
    for seen in calls:
        assert set(seen) - {"x", "block", MLP_READS} == {point.name for point in layout.points}
        for point in layout.points:
            assert seen[point.name].shape == ((batch * length, WIDTH) if point.name in flat else shape), point
        check_sums(layout.residuals, {n: v.reshape(shape) for n, v in seen.items() if n != "block"})
        check_norms(layout, seen)


def test_every_declared_audio_family_has_a_model_here():
    assert AUDIO_TYPES == {name for family in catalog.FAMILIES if family.audio_frames for name in family.types}
    assert AUDIO_TYPES <= set(DECLARED)


@pytest.mark.parametrize("name", sorted(AUDIO))
def test_the_points_of_a_block_of_an_audio_model_are_there_and_add_up(name):
    model = make_audio_model(name)
    module = backbone(model, "encoder" if model.config.is_encoder_decoder else None)
    inputs = make_extractor(name)(tone(4_000), sampling_rate=16_000, return_tensors="pt")
    inputs.pop("attention_mask", None)
    with torch.inference_mode():
        length = module(**inputs).last_hidden_state.shape[1]
    check_points(module, inputs, 1, length)


def test_every_declared_vision_family_has_a_model_here():
    """BEiT scales what it adds outside of any module, and a layer of Swin is several blocks: both declare no points."""
    declared = {n for family in catalog.FAMILIES if family.image_patches and family.layouts for n in family.types}
    assert set(VISION_TYPES.values()) == declared
    assert {kind for kind, _ in VISION.values()} - declared == {"beit", "swin"}


@pytest.mark.parametrize("name", sorted(VISION_TYPES))
def test_the_points_of_a_block_of_an_image_model_are_there_and_add_up(name):
    module, inputs = make_vision_model(name), make_processor(name)(images=[picture()], return_tensors="pt")
    if name == "mae":
        module.config.mask_ratio = 0.0
    with torch.inference_mode():
        length = module(**inputs).last_hidden_state.shape[1]
    check_points(module, inputs, 1, length)


def check_sums(residuals, at):
    """The arithmetic that the words of `Residuals` promise."""
    if residuals == "mixer":
        close(at["after_mixer"], at["x"] + at["mixer_output"], "after_mixer")
        return
    attention = at.get("normed_attention_output", at["attention_output"])
    mlp = at.get("normed_mlp_output", at["mlp_output"])
    if residuals == "parallel":
        assert "after_attention" not in at
        close(at[MLP_READS], at.get("mlp_input", at["attention_input"]), MLP_READS)
        close(at["after_mlp"], at["x"] + attention + mlp, "after_mlp")
        return
    close(at["after_attention"], at["x"] + attention, "after_attention")
    close(at["after_mlp"], at["mlp_input" if residuals == "post_norm" else "after_attention"] + mlp, "after_mlp")


def check_norms(layout, seen):
    """A point that is said to lie behind a norm is that norm of the point before it."""
    before = {
        "attention_input": "x",
        "mixer_input": "x",
        "normed_attention_output": "attention_output",
        "mlp_input": "x" if layout.residuals == "parallel" else "after_attention",
        "normed_mlp_output": "mlp_output",
    }
    with torch.inference_mode():
        for point in layout.points:
            if point.name in before:
                norm = seen["block"].get_submodule(point.module)
                close(seen[point.name], norm(seen[before[point.name]]), point.name)
            if point.name == "after_mlp" and point.module:  # the norm that ends the block
                norm = seen["block"].get_submodule(point.module)
                close(seen["after_mlp_norm"], norm(seen["after_mlp"]), "after_mlp_norm")


def test_a_layout_that_a_config_contradicts_is_not_used():
    """Attention over a second input, or an MLP in chunks, would make the declared sums wrong."""
    config = make_config("bert")
    assert block_layout(config) is not None
    config.chunk_size_feed_forward = 2
    assert block_layout(config) is None


def test_no_model_type_is_listed_twice():
    listed = [name for family in catalog.FAMILIES for name in family.types]
    assert sorted(set(listed)) == sorted(listed)
