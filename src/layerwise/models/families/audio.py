"""Speech and audio encoders: Whisper, wav2vec 2.0, HuBERT, WavLM, AST, Moonshine.

Layer 0 is what enters block 1, as in S3PRL: behind the convolutions, the positions and, in a post-norm wav2vec 2.0, the
norm that precedes its blocks.
"""

from dataclasses import replace
from typing import Any

from layerwise.core.preprocessors import Frames
from layerwise.models.families.decoders import pre_norm_layout
from layerwise.models.families.family import BlockLayout, Family, Point


def whisper_frames(config: Any, extractor: Any) -> Frames:
    """A window of 30 s; its second convolution halves the frames of the spectrogram."""
    return Frames(strides=(extractor.hop_length, 2), window=config.max_source_positions)


WHISPER = Family(
    types=("whisper",),
    final_norms=("layer_norm",),
    audio_frames=whisper_frames,
    layouts=(pre_norm_layout("self_attn_layer_norm", "self_attn", "final_layer_norm", "fc2"),),
)


def convolution_frames(config: Any, extractor: Any) -> Frames:
    """Convolutions over the samples.

    A group norm over time, or a batch norm over positions, sees the padding, so such a model has the same hidden states
    only without any.
    """
    is_exact = config.feat_extract_norm == "layer" and not getattr(config, "conv_pos_batch_norm", False)
    return Frames(tuple(config.conv_stride), tuple(config.conv_kernel), pads_exactly=is_exact)


WAV2VEC2 = Family(
    types=("wav2vec2", "hubert", "wavlm"),
    blocks="encoder.layers",  # there may be as many convolutions as blocks
    # The same norm precedes the blocks of a post-norm model, and follows those of a pre-norm model.
    final_norm="encoder.layer_norm",
    final_norm_condition={"do_stable_layer_norm": True},
    audio_frames=convolution_frames,
    layouts=(
        replace(
            pre_norm_layout("layer_norm", "attention", "final_layer_norm", "feed_forward"),
            condition={"do_stable_layer_norm": True, "adapter_attn_dim": None},  # an adapter adds a third sum
        ),
        BlockLayout(
            "post_norm",
            (
                Point("attention_output", "attention"),
                Point("after_attention", "layer_norm", "input"),
                Point("mlp_input", "layer_norm"),
                Point("mlp_output", "feed_forward"),
                Point("after_mlp", "final_layer_norm", "input"),
                Point("after_mlp_norm", ""),
            ),
            condition={"do_stable_layer_norm": False},
        ),
    ),
)


def spectrogram_frames(config: Any, extractor: Any) -> Frames:
    """Patches of a spectrogram of fixed length, all times of the lowest frequencies first; two class tokens precede."""
    hop, length = extractor.sampling_rate // 100, extractor.sampling_rate // 40  # of a frame: 10 and 25 milliseconds
    reach = (config.patch_size - config.time_stride) * hop + length - hop
    window = (config.max_length - config.patch_size) // config.time_stride + 1
    rows = (config.num_mel_bins - config.patch_size) // config.frequency_stride + 1
    return Frames(strides=(hop, config.time_stride), window=window, reach=reach, rows=rows, special=2)


AST = Family(
    types=("audio-spectrogram-transformer",),
    final_norm="layernorm",
    audio_frames=spectrogram_frames,
    layouts=(pre_norm_layout("layernorm_before", "attention", "layernorm_after", "mlp"),),
)

# The convolutions of Moonshine are in its code, not in its config. A group norm over time follows the first one.
MOONSHINE_FRAMES = Frames(strides=(64, 3, 2), kernels=(127, 7, 3), pads_exactly=False)

MOONSHINE = Family(
    types=("moonshine",),
    depth_fields=("encoder_num_hidden_layers",),
    depth_fields_to_set=("encoder_num_hidden_layers",),
    final_norms=("layer_norm",),
    position_field="",  # the config limits the tokens of the decoder
    audio_frames=lambda config, extractor: MOONSHINE_FRAMES,
    layouts=(pre_norm_layout("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),),
)
