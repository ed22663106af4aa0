"""Trains a small language model on WikiText-2 while layerwise watches its layers.

    python examples/training/wikitext.py gpt_neox --data wikitext2 --out models/gpt_neox

DATA is a folder with train.parquet and validation.parquet, one paragraph in the column `text` of each row. OUT gets

    layers/step000000 ...   one run per scan, for `layerwise compare`, `report` and `plot --figure checkpoints`
    model                   the trained model with its tokenizer, for `layerwise scan`, `eval` and `pick`
    board                   TensorBoard files: tensorboard --logdir OUT/board
    result.json             validation loss, and what the scans cost

`--size small` (default) takes minutes on one CPU core; `--size large` is for a GPU. `--layer-loss 0.1` adds the entropy
regulariser to the middle layer.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

import layerwise

FAMILIES = ("gpt_neox", "modernbert", "mamba")
SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {
        "layers": 6, "width": 64, "vocabulary": 2048, "block": 48, "batch": 16, "steps": 256, "texts": 64,
        "paragraphs": 4000,
    },
    "large": {
        "layers": 12, "width": 256, "vocabulary": 8192, "block": 128, "batch": 32, "steps": 5000, "texts": 1000,
        "paragraphs": 1_000_000,
    },
}  # fmt: skip
WARMUP, LEARNING_RATE, MASKED_SHARE, HEADS, STATE_SIZE = 20, 2e-3, 0.3, 4, 8
REGULARISED = "50%"  # the layers that --layer-loss acts on
EVALUATED = 16  # batches for the validation loss
SPECIAL = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"]


def paragraphs(path: Path) -> list[str]:
    """The paragraphs of a split, without headings."""
    rows = pyarrow.parquet.read_table(path, columns=["text"])["text"].to_pylist()
    return [row.strip() for row in rows if row.strip() and not row.strip().startswith("=")]


def train_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of the training text; texts begin with <cls> and end with <sep>."""
    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=SPECIAL))
    ids = [(token, raw.token_to_id(token)) for token in ("<cls>", "<sep>")]
    raw.post_processor = processors.TemplateProcessing(single="<cls> $A <sep>", special_tokens=ids)
    names = {f"{token.strip('<>')}_token": token for token in SPECIAL}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=512, **names)


def blocks(texts: list[str], tokenizer: PreTrainedTokenizerFast, length: int) -> list[dict[str, list[int]]]:
    """The whole text as blocks of `length` tokens."""
    stream = [token for ids in tokenizer(texts)["input_ids"] for token in ids]
    return [{"input_ids": stream[i : i + length]} for i in range(0, len(stream) - length + 1, length)]


def make_model(family: str, size: Mapping[str, int], tokenizer: PreTrainedTokenizerFast) -> Any:
    width, tokens = size["width"], {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    shape = {"hidden_size": width, "num_hidden_layers": size["layers"], "vocab_size": len(tokenizer), "pad_token_id": 0}
    own = {
        "gpt_neox": {"intermediate_size": 4 * width, "num_attention_heads": HEADS, "max_position_embeddings": 512},
        "modernbert": {"intermediate_size": 2 * width, "num_attention_heads": HEADS, "max_position_embeddings": 512},
        "mamba": {"state_size": STATE_SIZE, "intermediate_size": 2 * width},
    }[family]
    config = AutoConfig.for_model(family, **shape, **own, **tokens, tie_word_embeddings=True)
    return (AutoModelForMaskedLM if family == "modernbert" else AutoModelForCausalLM).from_config(config)


def scan_steps(steps: int) -> list[int]:
    """1, 2, 4, 8 and so on, and four evenly spaced steps of the second half: early layers change fast."""
    doubling = [2**i for i in range(steps.bit_length()) if 2**i <= steps]
    return sorted({*doubling, *(round(steps * share) for share in (0.625, 0.75, 0.875, 1.0))})


def train(
    family: str,
    data: Path,
    out: Path,
    *,
    size: Mapping[str, int] = SIZES["small"],
    steps: int | None = None,
    seed: int = 0,
    layer_loss: float = 0.0,
) -> dict[str, Any]:
    """Trains one model, and returns what is written to result.json."""
    steps = steps or size["steps"]
    block = size["block"] // 2 if family == "mamba" else size["block"]  # without a GPU kernel it takes a loop per token
    text, held_out = (paragraphs(data / f"{split}.parquet") for split in ("train", "validation"))
    text = text[: size["paragraphs"]]
    tokenizer = train_tokenizer(text, size["vocabulary"])
    torch.manual_seed(seed)
    model = make_model(family, size, tokenizer)
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(out / "board")
    arguments = TrainingArguments(
        str(out / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=size["batch"],
        per_device_eval_batch_size=size["batch"],
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="cosine",
        warmup_steps=WARMUP,
        weight_decay=0.1,
        adam_beta2=0.95,
        seed=seed,
        logging_steps=max(1, steps // 16),
        save_strategy="no",
        report_to=["tensorboard"],
        disable_tqdm=True,
        use_cpu=not torch.accelerator.is_available(),
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=blocks(text, tokenizer, block),
        eval_dataset=blocks(held_out, tokenizer, block)[: EVALUATED * size["batch"]],
        data_collator=DataCollatorForLanguageModeling(
            tokenizer, mlm=family == "modernbert", mlm_probability=MASKED_SHARE
        ),
        processing_class=tokenizer,
    )
    watch = layerwise.training.LayerwiseCallback(
        trainer,
        [text for text in held_out if len(text) > 200][: size["texts"]],
        every=scan_steps(steps),
        out=out / "layers",
        metrics="prompt_entropy,effective_rank,curvature",
        rows="raw,centered",
        max_length=block,
        alerts=[layerwise.training.Alert("effective_rank", below=2.0)],
    )
    trainer.add_callback(watch)
    if layer_loss:
        layerwise.training.LayerLoss(model, layers=REGULARISED, weight=layer_loss).add_to(trainer)
    start, cpu = time.perf_counter(), time.process_time()
    trainer.train()
    result = {
        "family": family,
        "seed": seed,
        "layer_loss": layer_loss,
        "steps": steps,
        "tokens": steps * size["batch"] * block,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "seconds_of_scans": watch.seconds,
        "alerts": list(watch.messages),
    }
    torch.manual_seed(seed)  # which tokens are masked
    result["validation_loss"] = trainer.evaluate()["eval_loss"]
    model.base_model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=[*SIZES], default="small")
    parser.add_argument("--steps", type=int, help="default: as the size says")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layer-loss", type=float, default=0.0, metavar="WEIGHT")
    given = parser.parse_args()
    result = train(
        given.family,
        given.data,
        given.out,
        size=SIZES[given.size],
        steps=given.steps,
        seed=given.seed,
        layer_loss=given.layer_loss,
    )
    print(f"validation loss {result['validation_loss']:.3f}; next: layerwise report {given.out}/layers/* --html r.html")


if __name__ == "__main__":
    main()
