"""Fine-tunes an embedding model on scored pairs of sentences, and compares its layers before and after.

    python examples/training/finetune.py MODEL --pairs train.parquet --texts texts.txt --out tuned

MODEL is a folder or hub id that sentence-transformers loads. The table of pairs has the columns sentence1, sentence2
and score. OUT gets one run per scan in `layers`, and the tuned model in `model`. The defaults take about a minute on a
CPU with a model of 20 million parameters; for a real fine-tune pass `--steps 1000 --batch 64` on a GPU.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import CoSENTLoss

import layerwise


def fine_tune(model_name: str, pairs: Path, texts: Path, out: Path, steps: int, batch: int) -> str:
    """Trains, and returns what `compare` says about the layers before and after."""
    model = SentenceTransformer(model_name)
    columns = ["sentence1", "sentence2", "score"]
    rows = Dataset.from_pandas(pd.read_parquet(pairs, columns=columns))
    arguments = SentenceTransformerTrainingArguments(
        str(out / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=batch,
        learning_rate=2e-5,
        warmup_steps=steps // 10,
        save_strategy="no",
        report_to=[],
        dataloader_pin_memory=torch.accelerator.is_available(),
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=CoSENTLoss(model))
    watch = layerwise.training.LayerwiseCallback(
        trainer,
        layerwise.texts(texts, limit=100),
        every=max(1, steps // 2),
        out=out / "layers",
        max_length=64,
        alerts=[layerwise.training.Alert("effective_rank", fall=0.5, layers="last")],
    )
    trainer.add_callback(watch)
    trainer.train()
    model.save_pretrained(str(out / "model"))
    first, last = (out / "layers" / f"step{step:06d}" for step in (0, steps))
    return str(layerwise.compare([first, last]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    print(fine_tune(given.model, given.pairs, given.texts, given.out, given.steps, given.batch))


if __name__ == "__main__":
    main()
