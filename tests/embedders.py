"""Tiny embedding models, as their authors would publish them."""

from pathlib import Path

import torch
from families import make_model, make_reader, make_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer


def ship(folder: Path, family: str, pooling, *, dense=0, normalize=False, prompt="", reader=False, **more) -> str:
    """A tiny SentenceTransformer, as its authors would publish it; a `reader` knows pick's bundled sentences."""
    inner = folder.with_name(folder.name + "-inner")
    for part in make_reader(family) if reader else (make_model(family), make_tokenizer()):
        part.save_pretrained(inner)
    first = Transformer(str(inner), max_seq_length=10)
    modules = [first, Pooling(32, pooling, **more)]
    if dense:
        torch.manual_seed(5)
        modules.append(Dense(modules[1].get_embedding_dimension(), dense, activation_function=torch.nn.Tanh()))
    modules += [Normalize()] if normalize else []
    prompts = {"prompts": {"default": prompt}, "default_prompt_name": "default"} if prompt else {}
    SentenceTransformer(modules=modules, device="cpu", **prompts).save(str(folder), create_model_card=False)
    return str(folder)


def ship_model(folder, model, pooling="mean", *, dense=0, normalize=True, prompts=None, default=None):
    """An embedding model as its authors would publish it."""
    inner = folder.with_name(folder.name + "-inner")
    model.save_pretrained(inner)
    make_tokenizer().save_pretrained(inner)
    modules = [Transformer(str(inner), max_seq_length=24), Pooling(32, pooling)]
    if dense:
        torch.manual_seed(5)
        modules.append(Dense(32, dense, activation_function=torch.nn.Tanh()))
    modules += [Normalize()] if normalize else []
    model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts, default_prompt_name=default)
    model.save(str(folder), create_model_card=False)
    return str(folder)
