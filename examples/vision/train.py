"""Trains small vision transformers on a table of small images, with one of three objectives and one architecture.

    python examples/vision/train.py --train train.parquet --test test.parquet --out models \
        --objectives supervised,autoregressive --seeds 0,1,2

supervised       a linear classifier on the class token
autoregressive   attention is causal, and each position predicts the normalised pixels of the next patch; the class
                 token predicts the first one
masked           60 % of the patches are grey, and their positions predict the normalised pixels

A run is one folder `OBJECTIVE-SEED` that transformers loads as a ViT. A run that was interrupted continues at its last
checkpoint and ends with the same weights. A run that is complete is left alone.
"""

import argparse
import io
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

OBJECTIVES = ("supervised", "autoregressive", "masked")
MASKED_SHARE = 0.6
CROP_MARGIN = 4  # pixels
CHECKPOINT_EVERY = 100  # steps
EVALUATED = 1000  # images per split, at the end


@dataclass(frozen=True)
class Settings:
    """Everything that determines the weights of a run, besides the images."""

    objective: str
    seed: int
    steps: int
    batch: int = 32
    width: int = 64
    blocks: int = 8
    patch: int = 4
    size: int = 32
    learning_rate: float = 1e-3
    warmup: int = 50

    def model_config(self) -> ViTConfig:
        return ViTConfig(
            hidden_size=self.width,
            num_hidden_layers=self.blocks,
            num_attention_heads=self.width // 32,
            intermediate_size=4 * self.width,
            image_size=self.size,
            patch_size=self.patch,
            is_causal=self.objective == "autoregressive",  # see reading.py
        )


class Learner(nn.Module):
    """A ViT with the linear head of its objective."""

    def __init__(self, settings: Settings, classes: int) -> None:
        super().__init__()
        self.settings = settings
        self.vit = ViTModel(settings.model_config(), add_pooling_layer=False)
        set_causal(self.vit, settings.objective == "autoregressive")
        outputs = classes if settings.objective == "supervised" else 3 * settings.patch**2
        self.head = nn.Linear(settings.width, outputs)

    def loss(self, pixels: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        if self.settings.objective == "supervised":
            return nn.functional.cross_entropy(self.head(self.states(pixels)[:, 0]), labels)
        targets = normalised_patches(pixels, self.settings.patch)  # (B, P, 3 * patch * patch)
        if self.settings.objective == "autoregressive":
            return (self.head(self.states(pixels)[:, :-1]) - targets).square().mean()
        hidden = torch.rand(targets.shape[:2], generator=generator) < MASKED_SHARE  # (B, P)
        rows = self.settings.size // self.settings.patch
        grid = hidden.view(-1, 1, rows, rows).repeat_interleave(self.settings.patch, 2)
        grey = pixels.masked_fill(grid.repeat_interleave(self.settings.patch, 3), 0.0)
        return (self.head(self.states(grey)[:, 1:]) - targets)[hidden].square().mean()

    def states(self, pixels: Tensor) -> Tensor:
        states: Tensor = self.vit(pixel_values=pixels).last_hidden_state  # (B, 1 + P, D)
        return states


def set_causal(model: nn.Module, causal: bool) -> None:
    """Lets each position of a ViT attend to itself and to earlier positions only."""
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = causal


def normalised_patches(pixels: Tensor, patch: int) -> Tensor:
    """The pixels of each patch, row by row, with mean 0 and variance 1 within the patch."""
    patches = nn.functional.unfold(pixels, patch, stride=patch).transpose(1, 2)  # (B, P, 3 * patch * patch)
    return (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()


def load_images(path: Path) -> tuple[Tensor, Tensor]:
    """Images (N, 3, H, W) in [-1, 1] and labels of a table with the columns `img` and `label`."""
    table = pyarrow.parquet.read_table(path, columns=["img", "label"])
    images = [np.asarray(Image.open(io.BytesIO(cell.as_py())).convert("RGB")) for cell in table["img"]]
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 127.5 - 1
    return pixels.contiguous(), torch.tensor(table["label"].to_pylist())


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image shifted by up to `CROP_MARGIN` pixels, and mirrored with probability 0.5."""
    size = images.shape[-1]
    padded = nn.functional.pad(images, (CROP_MARGIN,) * 4, mode="reflect")
    shifts = torch.randint(2 * CROP_MARGIN + 1, (len(images), 2), generator=generator).tolist()
    mirrored = (torch.rand(len(images), generator=generator) < 0.5).tolist()
    crops = [image[:, y : y + size, x : x + size] for image, (y, x) in zip(padded, shifts, strict=True)]
    return torch.stack([crop.flip(-1) if flip else crop for crop, flip in zip(crops, mirrored, strict=True)])


def train(settings: Settings, data: Mapping[str, tuple[Tensor, Tensor]], folder: Path) -> None:
    """Trains one model, or continues it, and saves it in the folder."""
    if (folder / "training.json").exists():
        print(f"{folder} is complete")
        return
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = data["train"]
    torch.manual_seed(settings.seed)
    learner = Learner(settings, int(labels.max()) + 1)
    optimizer = torch.optim.AdamW(learner.parameters(), settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.05)
    checkpoint = folder / "checkpoint.safetensors"
    start, seconds = load_checkpoint(checkpoint, settings, learner, optimizer)
    begun, losses = time.monotonic() - seconds, []
    learner.train()
    for step in range(start, settings.steps):
        # What a step draws does not depend on earlier steps, so that a run can be continued.
        generator = torch.Generator().manual_seed(1_000_003 * settings.seed + step)
        chosen = torch.randint(len(images), (settings.batch,), generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * rate_at(step, settings)
        loss = learner.loss(augmented(images[chosen], generator), labels[chosen], generator)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % CHECKPOINT_EVERY == 0:
            seconds = time.monotonic() - begun
            save_checkpoint(checkpoint, settings, learner, optimizer, step + 1, seconds)
            done = f"{folder.name} step {step + 1}/{settings.steps}"
            print(f"{done} loss {np.mean(losses[-50:]):.4f} {seconds:.0f} s", flush=True)
    save(settings, learner, data, folder, time.monotonic() - begun)
    checkpoint.unlink(missing_ok=True)


def rate_at(step: int, settings: Settings) -> float:
    """A linear warm-up, then a cosine down to zero."""
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    return 0.5 * (1 + math.cos(math.pi * (step - settings.warmup) / max(1, settings.steps - settings.warmup)))


def save_checkpoint(
    path: Path, settings: Settings, learner: Learner, optimizer: torch.optim.Optimizer, step: int, seconds: float
) -> None:
    """Writes weights and optimizer state; the file is complete or absent."""
    tensors = {f"model.{name}": tensor for name, tensor in learner.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
    record = {"settings": json.dumps(asdict(settings)), "step": str(step), "seconds": str(seconds)}
    part = path.with_suffix(".part")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, part, record)
    os.replace(part, path)


def load_checkpoint(
    path: Path, settings: Settings, learner: Learner, optimizer: torch.optim.Optimizer
) -> tuple[int, float]:
    """The next step and the seconds spent so far, after loading the checkpoint, if there is one."""
    if not path.exists():
        return 0, 0.0
    with safe_open(path, "pt") as file:
        record, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if json.loads(record["settings"]) != asdict(settings):
        raise SystemExit(f"{path} was trained with other settings: {record['settings']}; choose another --out")
    learner.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return int(record["step"]), float(record["seconds"])


@torch.no_grad()
def save(
    settings: Settings, learner: Learner, data: Mapping[str, tuple[Tensor, Tensor]], folder: Path, seconds: float
) -> None:
    """Saves the ViT, its processor, the head, and a record with the loss on both splits."""
    learner.eval()
    record: dict[str, object] = {**asdict(settings), "seconds": round(seconds), "images": len(data["train"][0])}
    for name, (images, labels) in data.items():
        chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:EVALUATED]
        images, labels = images[chosen], labels[chosen]
        generator, total, right = torch.Generator().manual_seed(0), 0.0, 0
        for start in range(0, len(images), 100):
            batch, answers = images[start : start + 100], labels[start : start + 100]
            total += learner.loss(batch, answers, generator).item() * len(batch)
            if settings.objective == "supervised":
                right += int((learner.head(learner.states(batch)[:, 0]).argmax(-1) == answers).sum())
        record |= {f"{name}_loss": total / len(images)}
        if settings.objective == "supervised":
            record[f"{name}_accuracy"] = right / len(images)
    learner.vit.save_pretrained(folder)
    half = [0.5, 0.5, 0.5]
    size = {"height": settings.size, "width": settings.size}
    ViTImageProcessorPil(size=size, image_mean=half, image_std=half).save_pretrained(folder)
    save_file(dict(learner.head.state_dict()), folder / "head.safetensors")
    part = folder / "training.json.part"
    part.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(part, folder / "training.json")
    print(json.dumps(record), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="a .parquet file with the columns img and label")
    parser.add_argument("--test", type=Path, required=True, help="the same, held out")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the models")
    parser.add_argument("--objectives", default="supervised,autoregressive", help=", ".join(OBJECTIVES))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    objectives = args.objectives.split(",")
    if unknown := set(objectives) - set(OBJECTIVES):
        parser.error(f"unknown objectives: {', '.join(sorted(unknown))}; choose from {', '.join(OBJECTIVES)}")
    data = {"train": load_images(args.train), "test": load_images(args.test)}
    for seed in map(int, args.seeds.split(",")):
        for objective in objectives:
            train(Settings(objective, seed, args.steps), data, args.out / f"{objective}-{seed}")


if __name__ == "__main__":
    main()
