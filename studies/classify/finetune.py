"""What does fine-tuning score on the same examples, and what does it cost to train?

    python studies/classify/finetune.py SHARED_DATA MODEL [--data NAME ...] [--shots 16 64] [--seed 0] [--rate R]
        [--epochs N] [--lora]

All weights (with --lora, adapters of rank 8 in all linear layers of the blocks) and a linear classifier on the mean of
the last layer. AdamW, linear warm-up and decay, batches of 16. Of RATES, the learning rate is taken that gets most
right on the fifth of the training examples that the probe holds out first; the model is then trained anew on all of
them. The CPU time in scores.csv has both; `last` in the settings is that of the last training alone. --rate skips the
choice.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rows import add_row, packed
from tasks import LABELS, examples
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from layerwise.verbs.probe.labelled import fifths

RATES = {"full": (5e-5, 2e-4), "lora": (5e-4, 2e-3)}
HEAD_RATE = 10  # times the rate of the body: the classifier starts at random
EPOCHS = {16: 20, 64: 10}
BATCH, LENGTH = 16, 128


class Tuned(nn.Module):
    def __init__(self, model: str, classes: int, lora: bool) -> None:
        super().__init__()
        self.body = AutoModel.from_pretrained(model, dtype=torch.float32)
        if lora:
            from peft import LoraConfig, get_peft_model

            self.body = get_peft_model(self.body, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
        self.head = nn.Linear(self.body.config.hidden_size, classes)

    def forward(self, tokens: dict[str, Tensor]) -> Tensor:
        states = self.body(**tokens).last_hidden_state  # (B, T, D)
        mask = tokens["attention_mask"][..., None]
        return self.head((states * mask).sum(dim=1) / mask.sum(dim=1))


class Trainer:
    def __init__(self, args: argparse.Namespace, classes: int, epochs: int) -> None:
        self.args, self.classes, self.epochs = args, classes, epochs
        self.tokenizer = AutoTokenizer.from_pretrained(args.model)
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token

    def tokens(self, texts: list[str]) -> dict[str, Tensor]:
        return dict(self.tokenizer(texts, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"))

    def train(self, texts: list[str], codes: Any, rate: float) -> Tuned:
        torch.manual_seed(self.args.seed)
        model = Tuned(self.args.model, self.classes, self.args.lora).train()
        body = [p for p in model.body.parameters() if p.requires_grad]
        groups = [{"params": body, "lr": rate}, {"params": model.head.parameters(), "lr": HEAD_RATE * rate}]
        optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
        steps = self.epochs * math.ceil(len(texts) / BATCH)
        warm = max(1, steps // 10)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min((step + 1) / warm, (steps - step) / (steps - warm + 1))
        )
        for _ in range(self.epochs):
            for places in torch.randperm(len(texts)).split(BATCH):
                logits = model(self.tokens([texts[i] for i in places]))
                nn.functional.cross_entropy(logits, torch.from_numpy(codes)[places]).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                schedule.step()
                optimiser.zero_grad()
        return model.eval()

    def right(self, model: Tuned, texts: list[str], codes: Any) -> Any:
        with torch.no_grad():
            parts = [model(self.tokens(texts[i : i + 64])).argmax(dim=1) for i in range(0, len(texts), 64)]
        return torch.cat(parts).numpy() == codes


def row_of(args: argparse.Namespace, name: str, shots: int) -> dict[str, Any]:
    train, test = examples(args.data_root, name, shots, args.seed)
    classes = sorted(set(train.label))
    codes, tested = (np.array([classes.index(label) for label in part.label]) for part in (train, test))
    texts = list(train.text)
    trainer = Trainer(args, len(classes), args.epochs or EPOCHS[shots])
    begun, rates = time.process_time(), [args.rate] if args.rate else RATES["lora" if args.lora else "full"]
    rate, right = rates[0], {}
    if len(rates) > 1:
        held = fifths(codes, [int(i) for i in train.id], 0)[0]
        rest = np.setdiff1d(np.arange(len(texts)), held)
        for one in rates:
            model = trainer.train([texts[i] for i in rest], codes[rest], one)
            right[one] = int(trainer.right(model, [texts[i] for i in held], codes[held]).sum())
        rate = max(rates, key=lambda one: right[one])
    last = time.process_time()
    model = trainer.train(texts, codes, rate)
    ended = time.process_time()
    return {
        "model": Path(args.model).name, "method": "lora" if args.lora else "finetuned", "data": name, "shots": shots,
        "seed": args.seed, "train": len(train), "n": len(test), "reading": 0.0, "fitting": ended - begun,
        "correct": packed(trainer.right(model, list(test.text), tested)),
        "settings": json.dumps({"rate": rate, "epochs": trainer.epochs, "last": round(ended - last, 2)}),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_root", type=Path)
    parser.add_argument("model")
    parser.add_argument("--data", nargs="+", choices=list(LABELS), default=["trec6", "emotion", "ag_news"])
    parser.add_argument("--shots", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lora", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.data:
        for shots in args.shots:
            add_row(row_of(args, name, shots))


if __name__ == "__main__":
    main()
