"""models/families: the only place that knows an architecture by name, and one object is enough for a new exception."""

import ast
from pathlib import Path

import pytest
import torch
from families import COMMON, DEPTH, FAMILIES, KV, VOCABULARY, WIDTH, make_config, make_model, make_tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

import layerwise
from layerwise.core.errors import ModelError
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example
from layerwise.models.doctor import run_checks
from layerwise.models.families import catalog
from layerwise.models.families.catalog import family_of
from layerwise.models.families.configs import max_positions, model_depth, model_width, truncate_config
from layerwise.models.families.decoders import DEFAULT, MAMBA
from layerwise.models.families.family import Family
from layerwise.models.find_blocks import find_structure
from layerwise.models.load import backbone, build_network
from layerwise.models.taps import model_output, tapped
from layerwise.models.truncate import truncate_blocks
from layerwise.passes.vectors import pooled_vectors

SRC = Path(layerwise.__file__).parent
KNOWN_TYPES = {*CONFIG_MAPPING_NAMES, *(name for family in catalog.FAMILIES for name in family.types)}
# Where a model type may be read, not compared with anything: for records, and for messages.
TYPE_READERS = {Path("models/network.py"), Path("models/find_blocks.py")}


def names_of_architectures(source, *, may_read_type=False):
    """Lines of a module that know an architecture by name, or ask a config for its own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value in KNOWN_TYPES or (node.value == "model_type" and not may_read_type):
                yield f"{node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Attribute) and node.attr == "model_type" and not may_read_type:
            yield f"{node.lineno}: .model_type"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformers.models."):
            yield f"{node.lineno}: {node.module}"


def test_no_other_room_knows_an_architecture_by_name():
    found = [
        f"{path}:{line}"
        for path in (p.relative_to(SRC) for p in sorted(SRC.rglob("*.py")))
        if path.parts[:2] != ("models", "families")
        for line in names_of_architectures((SRC / path).read_text(), may_read_type=path in TYPE_READERS)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "planted",
    [
        "two = 2 if kind in ('roberta', 'mpnet_') else 0",
        "ROWS = {'xlm-roberta-xl': 'LayerNorm'}",
        "late = config.model_type.startswith('mam')",
        "kind = getattr(config, 'model_type', '')",
        "from transformers.models.bert.modeling_bert import BertModel",
    ],
)
def test_a_planted_name_is_found(planted):
    assert list(names_of_architectures(planted))


# ---- An exception is one object.


class MadeUpConfig(PreTrainedConfig):
    model_type = "made_up"
    hidden_size: int = WIDTH
    num_hidden_layers: int = DEPTH
    vocab_size: int = VOCABULARY


class MadeUpBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden_states):
        return hidden_states + torch.tanh(self.mix(hidden_states))


class MadeUpModel(PreTrainedModel):
    """An ordinary model, but for the name of its final norm."""

    config_class = MadeUpConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, WIDTH)
        self.blocks = nn.ModuleList(MadeUpBlock() for _ in range(config.num_hidden_layers))
        self.last_scaling = nn.LayerNorm(WIDTH)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        hidden = self.words(input_ids)
        for block in self.blocks:
            hidden = block(hidden)
        return BaseModelOutput(last_hidden_state=self.last_scaling(hidden))


def made_up_network():
    model = MadeUpModel(MadeUpConfig()).eval()
    with torch.no_grad():
        model.last_scaling.bias.normal_()
    return build_network(model, make_tokenizer(), "made up")


def test_an_unusual_final_norm_is_one_family_object(monkeypatch):
    before = made_up_network()
    assert before.family is DEFAULT and not before.has_norm
    assert [f.subject for f in run_checks(before) if f.verdict == "wrong"] == ["final norm"]

    mine = Family(types=("made_up",), final_norms=("last_scaling",))
    monkeypatch.setattr(catalog, "FAMILIES", (*catalog.FAMILIES, mine))

    network = made_up_network()
    assert network.family is mine and network.structure.final_norm is network.module.last_scaling
    assert [f for f in run_checks(network) if f.verdict == "wrong"] == []
    ids = torch.tensor([network.tokenizer("w1 w2 w3")["input_ids"]])
    with torch.inference_mode():
        usual = network.module(ids).last_hidden_state.mean(dim=1)
    readout = Readout(DEPTH, "normed")
    found = pooled_vectors(network, [Example("a", "w1 w2 w3")], [readout], max_length=9)[readout]
    torch.testing.assert_close(found, usual)


def test_a_network_knows_its_family():
    assert build_network(make_model("mamba2"), make_tokenizer(), "m").family is MAMBA
    assert family_of(make_config("mamba")).first_hidden_state == 1
    assert family_of(PreTrainedConfig()) is DEFAULT


# ---- Final norms, and what hidden_states begin and end with.

ODD = sorted(
    {
        name
        for family in catalog.FAMILIES
        if (family.final_norms, family.final_norm, family.first_hidden_state) != (DEFAULT.final_norms, "", 0)
        for name in family.types
        if (family.audio_frames is None and family.image_patches is None)  # test_audio_families, test_vision_families
        or name == "whisper"  # its decoder reads texts
    }
)
STACKS = {"d_model": WIDTH} | {
    f"{stack}_{name}": size
    for stack in ("encoder", "decoder")
    for name, size in {"layers": DEPTH, "attention_heads": 4, "ffn_dim": 48}.items()
}
ODD_OPTIONS = FAMILIES | {
    "ctrl": {"n_embd": WIDTH, "n_layer": DEPTH, "n_head": 4, "dff": 48},
    "esm": {"mask_token_id": 3, "position_embedding_type": "rotary"},
    "falcon_mamba": {"state_size": 4},
    "lfm2": KV | {"layer_types": ["conv", "full_attention", "full_attention"]},
    "lfm2_moe": KV | {"layer_types": ["conv", "full_attention", "full_attention"], "num_experts": 4,
                      "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "rwkv": {"attention_hidden_size": WIDTH, "context_length": 64},
    "xmod": {"default_language": "en_XX", "pre_norm": True},
}  # fmt: skip


def make_odd(name):
    """A tiny model with random norms; of an encoder-decoder model its decoder: some encoders take no token ids."""
    if name not in CONFIG_MAPPING_NAMES:
        pytest.skip(f"this version of transformers has no {name}")
    torch.manual_seed(sum(map(ord, name)))
    config = AutoConfig.for_model(name, **COMMON | ODD_OPTIONS.get(name, STACKS))
    model = AutoModel.from_config(config).eval()
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            if "A_log" not in weight_name and "dt" not in weight_name:
                weight.add_(0.05 * torch.randn_like(weight))
    return backbone(model, "decoder" if config.is_encoder_decoder else None)


@pytest.mark.parametrize("name", ODD)
def test_the_final_norm_of_an_odd_family_is_found_and_its_hidden_states_are_what_it_declares(name):
    module = make_odd(name)
    anatomy, seen = find_structure(module, module.config), {}
    ids = torch.randint(4, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        with tapped(anatomy, range(DEPTH + 1), lambda k, hidden: seen.update({k: hidden.clone()})):
            module(input_ids=ids)
        out = module(input_ids=ids, output_hidden_states=True)
        assert anatomy.final_norm is not None or name == "plbart"  # which has none, though its kin have
        torch.testing.assert_close(model_output(anatomy, seen[DEPTH]), out.last_hidden_state, rtol=1e-4, atol=1e-5)
    first = anatomy.family.first_hidden_state
    last = DEPTH + 1 if anatomy.family.appends_normed_output else DEPTH
    for layer in range(first, last):
        torch.testing.assert_close(out.hidden_states[layer - first], seen[layer], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["xlm", "flaubert"])
def test_a_model_without_blocks_is_refused_with_the_reason_not_with_a_wrong_part(name):
    config = AutoConfig.for_model(name, emb_dim=WIDTH, n_layers=DEPTH, n_heads=4, vocab_size=VOCABULARY)
    with pytest.raises(ModelError, match="separate lists"):
        find_structure(AutoModel.from_config(config), config)


# ---- Nested configs.

VISION = {
    "hidden_size": 16, "num_hidden_layers": DEPTH, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}
GEMMA = {"model_type": "gemma3_text"} | FAMILIES["gemma3_text"]
NESTED = {  # as deep a tower for images as for texts: the one that reads texts has to be known
    "gemma3": (COMMON | GEMMA, VISION | {"model_type": "siglip_vision_model"}),
    "llava": (COMMON | KV | {"model_type": "llama"}, VISION | {"model_type": "clip_vision_model"}),
    "qwen2_vl": (COMMON | KV | ROPE, {"depth": DEPTH, "embed_dim": 16, "hidden_size": 32, "num_heads": 2}),
}


def make_nested(name):
    text, vision = NESTED[name]
    return AutoModel.from_config(AutoConfig.for_model(name, text_config=dict(text), vision_config=dict(vision))).eval()


@pytest.mark.parametrize("name", sorted(NESTED))
def test_a_model_that_also_sees_is_read_by_the_blocks_that_read_texts(name):
    model = make_nested(name)
    network = build_network(model, make_tokenizer(), name)
    assert (network.depth, network.width, network.max_length) == (DEPTH, WIDTH, COMMON["max_position_embeddings"])
    assert network.structure.path == "language_model.layers"
    assert network.identity().family == name and network.family is family_of(model.config.get_text_config())
    assert [f for f in run_checks(network) if f.verdict == "wrong"] == []


@pytest.mark.parametrize("name", sorted(NESTED))
def test_a_cut_model_that_also_sees_keeps_the_blocks_that_its_config_says(name, tmp_path):
    model = make_nested(name)
    cut = truncate_blocks(model, 2)
    cut.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    assert model_depth(again.config) == 2 == len(find_structure(again, again.config).blocks)
    assert model_depth(model.config) == DEPTH == len(model.language_model.layers)
    for name_, weight in again.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name_]), name_


def test_an_encoder_decoder_config_is_not_taken_for_that_of_its_decoder():
    part = make_config("bert").to_dict()
    config = AutoConfig.for_model("encoder-decoder", encoder=part, decoder=dict(part))
    with pytest.raises(ModelError, match="does not define its depth"):
        model_depth(config)


# ---- Positions, and configs that are cut.

OFFSET = sorted({name for family in catalog.FAMILIES if family.unused_positions for name in family.types})
POSITIONS = 23


@pytest.mark.parametrize("padding", [1, 3])
@pytest.mark.parametrize("name", [*OFFSET, "bert", "electra"])
def test_the_longest_input_has_a_position_for_each_token_and_one_more_has_none(name, padding):
    given = COMMON | {"max_position_embeddings": POSITIONS, "pad_token_id": padding} | FAMILIES.get(name, {})
    given |= {
        "longformer": {"attention_window": 4},
        "xmod": {"default_language": "en_XX"},
        "esm": {"position_embedding_type": "absolute", "mask_token_id": 4},
    }.get(name, {})
    model = AutoModel.from_config(AutoConfig.for_model(name, **given)).eval()
    longest = max_positions(model.config)
    ids = torch.full((1, longest + 1), 5)
    with torch.inference_mode():
        model(input_ids=ids[:, :longest])
        with pytest.raises((IndexError, RuntimeError), match="index|size of the tensor"):
            model(input_ids=ids)


def test_every_list_with_one_entry_per_block_is_cut():
    kinds = ["dense", "sparse", "sparse"]
    config = AutoConfig.for_model("exaone_moe", **COMMON | KV | {"mlp_layer_types": kinds})
    assert config.mlp_layer_types == kinds and len(config.layer_types) == DEPTH
    truncate_config(config, 2)
    assert model_depth(config) == 2 and config.mlp_layer_types == kinds[:2] and len(config.layer_types) == 2
    assert type(config).from_dict(config.to_dict()).num_hidden_layers == 2


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_depth_and_width_come_from_the_config_alone(family):
    config = make_config(family)
    assert (model_depth(config), model_width(config)) == (DEPTH, WIDTH)
