"""Real models, shipped as authors ship them: does `last` give what SentenceTransformer(path).encode gives?

    python scripts/as_shipped.py MODELS [WORK]

Wraps weights of MODELS (gte-small, smollm2-135m, all-minilm-l6-v2, gemma3-270m, all-mpnet-base-v2) as published models
are wrapped: CLS + Normalize, last token with a prompt, mean with a Dense, a plain decoder, and one that brings its own
modules.json. Prints the largest difference of `embed --layers last` and of `export --layer last` from the model's own
vectors, over the largest entry, and the cosine between them and what mean pooling alone would have given.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

import layerwise
from layerwise.inputs.text import demo_texts

TEXTS = [*demo_texts()[:20], "Short.", " ".join(demo_texts()[:60])]


def wrap(model: Path, out: Path, pooling: str, *, dense: int = 0, normalize: bool = False, prompt: str = "") -> Path:
    first = Transformer(str(model), max_seq_length=128)
    if first.tokenizer.chat_template:  # as an author would who ships an embedding model
        first = Transformer(str(model), max_seq_length=128, modality_config={
            "text": {"method": "forward", "method_output_name": "last_hidden_state"}
        }, module_output_name="token_embeddings")  # fmt: skip
    modules = [first, Pooling(first.get_embedding_dimension(), pooling)]
    if dense:
        torch.manual_seed(0)
        modules.append(Dense(modules[1].get_embedding_dimension(), dense, activation_function=torch.nn.Tanh()))
    modules += [Normalize()] if normalize else []
    prompts = {"prompts": {"query": prompt}, "default_prompt_name": "query"} if prompt else {}
    SentenceTransformer(modules=modules, device="cpu", **prompts).save(str(out), create_model_card=False)
    return out


def main(models: Path, work: Path) -> None:
    shipped = {
        "CLS + Normalize (gte-small)": wrap(models / "gte-small", work / "cls", "cls", normalize=True),
        "last token, prompt (SmolLM2)": wrap(models / "smollm2-135m", work / "last", "lasttoken", prompt="Represent: "),
        "mean + Dense (MiniLM)": wrap(models / "all-minilm-l6-v2", work / "dense", "mean", dense=64),
        "plain decoder (Gemma3)": models / "gemma3-270m",
        "own modules.json (mpnet)": models / "all-mpnet-base-v2",
    }
    for number, (name, folder) in enumerate(shipped.items()):
        own = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, batch_size=4, show_progress_bar=False)
        embedded = np.stack(list(layerwise.embed(folder, TEXTS)["last"]))
        exported = layerwise.export(folder, "last", work / f"out{number}").encode(TEXTS, show_progress_bar=False)
        depth = layerwise.doctor(folder)[0].seen.split()[0]
        mean = np.stack(list(layerwise.embed(folder, TEXTS, layers=depth, pooling="mean")[f"layer_{depth}"]))
        cosine = "-"
        if mean.shape == own.shape:
            cosine = f"{np.mean((mean * own).sum(1) / np.linalg.norm(mean, axis=1) / np.linalg.norm(own, axis=1)):.2f}"
        gaps = [np.abs(found - own).max() / np.abs(own).max() for found in (embedded, exported)]
        print(f"{name:32} embed {gaps[0]:.1e}  export {gaps[1]:.1e}  cosine to raw mean pooling {cosine}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(sys.argv[1]), Path(scratch))
