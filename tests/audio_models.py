"""Tiny random models of every audio family that layerwise reads, with their feature extractors, and clips for them."""

import io

import numpy as np
import soundfile
import torch
from families import DEPTH, WIDTH
from transformers import (
    ASTFeatureExtractor,
    AutoConfig,
    AutoModel,
    Wav2Vec2FeatureExtractor,
    WhisperFeatureExtractor,
)

RATE = 16_000

COMMON = {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "num_attention_heads": 4, "intermediate_size": 48}
CONVOLUTIONS = {
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 8, 4),
    "conv_stride": (5, 4, 2),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}
STABLE = {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}  # as the large models
WHISPER = {
    "d_model": WIDTH,
    "encoder_layers": DEPTH,
    "decoder_layers": DEPTH,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": 97,
    "num_mel_bins": 16,
    "max_source_positions": 50,  # one second
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
AST = {"patch_size": 4, "frequency_stride": 2, "time_stride": 2, "max_length": 60, "num_mel_bins": 16}
MOONSHINE = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "encoder_num_hidden_layers": DEPTH,
    "decoder_num_hidden_layers": DEPTH + 1,
    "encoder_num_attention_heads": 4,
    "decoder_num_attention_heads": 4,
    "vocab_size": 97,
    "pad_token_id": 0,
}

# name -> (model type, options of the config)
AUDIO = {
    "whisper": ("whisper", WHISPER),
    "wav2vec2": ("wav2vec2", COMMON | CONVOLUTIONS),
    "wav2vec2-stable": ("wav2vec2", COMMON | CONVOLUTIONS | STABLE),
    "hubert": ("hubert", COMMON | CONVOLUTIONS),
    "hubert-stable": ("hubert", COMMON | CONVOLUTIONS | STABLE),
    "wavlm": ("wavlm", COMMON | CONVOLUTIONS),
    "wavlm-stable": ("wavlm", COMMON | CONVOLUTIONS | STABLE),
    "ast": ("audio-spectrogram-transformer", COMMON | AST),
    "moonshine": ("moonshine", MOONSHINE),
}
EXACT = {"wav2vec2-stable", "hubert-stable", "wavlm-stable"}  # padding and a mask change nothing
WINDOWED = {"whisper", "ast"}
NORMED = {"whisper", "wav2vec2-stable", "hubert-stable", "wavlm-stable", "ast", "moonshine"}


def make_audio_config(name):
    model_type, options = AUDIO[name]
    return AutoConfig.for_model(model_type, **options)


def make_audio_model(name):
    """A model with random weights, norms and biases included: an untrained norm of ones would hide mistakes."""
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModel.from_config(make_audio_config(name)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model


def make_extractor(name):
    if name == "whisper":
        return WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    if name == "ast":
        return ASTFeatureExtractor(num_mel_bins=16, max_length=60)
    return Wav2Vec2FeatureExtractor(do_normalize=name != "moonshine", return_attention_mask=name in EXACT)


def save_audio(folder, name):
    """A folder with the model and its feature extractor."""
    make_audio_model(name).save_pretrained(folder)
    make_extractor(name).save_pretrained(folder)
    return str(folder)


def tone(samples, number=0):
    """A sound that changes over time, and noise: no two numbers give the same one."""
    random = np.random.default_rng(number)
    time = np.arange(samples) / RATE
    sweep = np.sin(2 * np.pi * (200 + 60 * number + 900 * time) * time)
    return (0.3 * sweep + 0.02 * random.standard_normal(samples)).astype(np.float32)


def clips(n=9, *, shortest=3_000, step=700):
    """Clips of different lengths; the first two are equally long."""
    return [(tone(shortest + step * max(0, number - 1), number), RATE) for number in range(n)]


def wav_bytes(samples, rate=RATE, form="WAV"):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype="PCM_16")
    return file.getvalue()
