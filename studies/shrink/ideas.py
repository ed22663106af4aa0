"""What does each idea for training a cheaper model give, at equal CPU time?

    python studies/shrink/ideas.py MODELS SHARED_DATA ROOT DEBIAN KEPT IDEA [IDEA ...]
        [--seconds 420] [--seed 0] [--blocks 1,5,6]

ROOT is a data root with whole test sets (studies/eval/prepare.py), DEBIAN a table of package descriptions (search.py).
All-MiniLM-L6-v2 is reduced to some of its blocks, and trained on one thread for so many CPU seconds; IDEAS says on what
and how. ideas.csv gets one row per idea, choice of blocks and seed: points lost on tasks that the ideas were chosen by,
points of MRR and recall@10 lost by its queries in the whole model's documents, and the mean cosine with the whole
model's vectors by kind of text. The ideas are in the order in which they were tried.
"""

import argparse
import copy
import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from cheaper import domain_texts
from kept import add_rows, model_key
from losses import row_of
from originals import original
from search import QUERIES, in_hash_order, measures, ranks, vectors
from sentence_transformers import SentenceTransformer
from short_texts import STATEMENTS, word_texts
from study import sentences
from torch import Tensor, nn

from layerwise.maps.ridge import fit_ridge
from layerwise.models.load import network_from_object
from layerwise.verbs.eval.tasks import choose_tasks
from layerwise.verbs.shrink.made_requests import FORMS, filled_forms, vocabulary_words
from layerwise.verbs.shrink.student import Teacher, assemble, own_vectors, pooled_student, pooling_modules
from layerwise.verbs.shrink.texts import PromptedText, parts_of, split_texts
from layerwise.verbs.shrink.training import imitation_loss, similar_length_batches

TABLE = Path(__file__).parent / "ideas.csv"
MODEL = "all-minilm-l6-v2"
TASKS = ["Banking77Classification", "MassiveIntentClassification", "SICK-R", "STSBenchmark", "WikiQAReranking"]
SENTENCES, DOCUMENTS, WARMUP_SHARE = 24000, 5000, 0.1


@dataclass(frozen=True)
class Idea:
    texts: tuple[str, ...] = ("sentences",)
    loss: str = "ours"  # or mse, cosine; +tokens: also of the last hidden states; +whitened: also in rarer directions
    # +differences: each text is read beside one that differs in a word, and what changes is compared as well
    rate: float = 3e-4
    batch: int = 32
    frozen: bool = False  # the embeddings
    trained: bool = True
    rounded: bool = False  # what matrices multiply is rounded to bfloat16, where the processor can


SHORT = ("sentences", "parts", "words")
IDEAS = {
    "linear map": Idea(trained=False),
    "sentences": Idea(),
    "parts and words": Idea(SHORT),
    "made requests": Idea((*SHORT, "requests")),
    "frozen embeddings": Idea(SHORT, frozen=True),
    "loss: squared error": Idea(SHORT, "mse"),
    "loss: cosine alone": Idea(SHORT, "cosine"),
    "loss: tokens too": Idea(SHORT, "ours+tokens"),
    "loss: rare directions too": Idea(SHORT, "ours+whitened"),
    "rate 1e-3": Idea((*SHORT, "requests"), rate=1e-3),
    "rate 1e-4": Idea((*SHORT, "requests"), rate=1e-4),
    "batches of 16": Idea((*SHORT, "requests"), batch=16),
    "loss: differences too": Idea(SHORT, "ours+differences"),
    "linear map, made requests": Idea((*SHORT, "requests"), trained=False),
    "linear map, own requests": Idea((*SHORT, "requests", "own requests"), trained=False),
    "own requests": Idea((*SHORT, "requests", "own requests")),
    "made requests, tokens too": Idea((*SHORT, "requests"), "ours+tokens"),
    "twice the made requests": Idea((*SHORT, "requests", "more requests")),
    "made requests and statements": Idea((*SHORT, "requests", "statements")),
    "made requests, no words": Idea(("sentences", "parts", "requests")),
    "sentences and made requests": Idea(("sentences", "requests")),
    "rounded": Idea(("sentences", "requests"), rounded=True),
}


class Texts:
    """The texts of each kind, and the whole model's vectors of them."""

    def __init__(self, whole: Path, blocks: Sequence[int], data: Path, kept: Path) -> None:
        self.whole, self.kept = whole, kept
        self.network = network_from_object(SentenceTransformer(str(whole), device="cpu"))
        split = split_texts(sentences(data / "wikitext2" / "train.parquet", SENTENCES), [""], 0)
        vocabulary, number = vocabulary_words(self.network.tokenizer), len(split.fit)
        generator = random.Random("0 fit")
        parts = tuple(parts_of(split.fit, "", generator))
        requests = list(filled_forms(FORMS, vocabulary, number, random.Random(0)))
        statements = filled_forms(STATEMENTS, vocabulary, number // 2, random.Random(1))
        self.of_kind = {"sentences": split.fit, "parts": parts} | {
            kind: tuple(PromptedText(text) for text in texts)
            for kind, texts in {
                "words": word_texts(vocabulary, number // 4, generator),
                "requests": requests[: number // 2],
                "more requests": requests[number // 2 :],
                "statements": statements,
                "own requests": domain_texts(data),
            }.items()
        }
        frequent = sorted(word for item in split.fit for word in item.text.split())  # as often as they occur
        for kind in SHORT:
            self.of_kind[f"variants of {kind}"] = tuple(variants(self.of_kind[kind], frequent))
        self.checks = {"sentences": split.check, "parts": split.parts}
        self.held_out = split.held_out
        self.teacher = Teacher(self.network, pooling_modules(self.network), ("",), 256, self.targets, True)
        self.cut, self.blocks = pooled_student(self.teacher, blocks), blocks

    def targets(self, texts: Sequence[PromptedText]) -> Tensor:
        return vectors(self.whole, "text", [item.text for item in texts], self.kept)

    def of_cut(self, texts: Sequence[PromptedText]) -> Tensor:
        """The vectors of the blocks before they are mapped."""
        digest = hashlib.blake2b(repr((texts, self.blocks)).encode(), digest_size=8).hexdigest()
        path = self.kept / f"{model_key(self.whole)}-cut-{digest}.npy"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, own_vectors(self.cut, texts, 256).numpy())
        return torch.from_numpy(np.load(path))

    def start(self, idea: Idea) -> Any:
        """The blocks with the linear map that is fitted on the texts of the idea."""
        rows, targets = (torch.cat([read(self.of_kind[kind]) for kind in idea.texts])
                         for read in (self.of_cut, self.targets))  # fmt: skip
        fitted = fit_ridge(rows, targets, self.of_cut(self.held_out), self.targets(self.held_out))
        return copy.deepcopy(assemble(self.teacher, self.cut, fitted.linear))  # it shares the blocks of the cut


def variants(items: Sequence[PromptedText], words: Sequence[str]) -> Iterator[PromptedText]:
    """Each text with a word replaced, left out, or exchanged with the next: what is hardest to tell apart."""
    generator = random.Random(0)
    for item in items:
        own = item.text.split()
        place = generator.randrange(len(own))
        change = generator.choice(("replace", "leave out", "exchange"))
        if change == "replace" or len(own) == 1:
            own[place] = generator.choice(words)
        elif change == "leave out":
            del own[place]
        else:
            own[place - 1], own[place] = own[place], own[place - 1]
        yield PromptedText(" ".join(own))


def batches(lengths: Sequence[int], size: int, seed: int) -> Iterator[list[int]]:
    """Batches of similar length, epoch after epoch."""
    for epoch in count():
        yield from similar_length_batches(lengths, size, 1000 * seed + epoch)


def token_loss(states: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """The squared error of each token's state, relative to the squares of the targets."""
    weights = mask.unsqueeze(-1)
    return ((states - targets).square() * weights).sum() / (targets.square() * weights).sum()


def train(idea: Idea, texts: Texts, small: Any, seconds: float, seed: int) -> int:
    """Trains in place until so many seconds of CPU time are used; returns the number of steps."""
    words = [item.text for kind in idea.texts for item in texts.of_kind[kind]]
    targets = torch.cat([texts.targets(texts.of_kind[kind]) for kind in idea.texts])
    whole = SentenceTransformer(str(texts.whole), device="cpu") if "tokens" in idea.loss else None
    # The vector of the whole model is the mean of its tokens' states, scaled to length 1: about by this.
    scale = 1 / mean_length(whole, words[:500]) if whole is not None else 1.0
    paired = "differences" in idea.loss
    if paired:
        words += [item.text for kind in idea.texts for item in texts.of_kind[f"variants of {kind}"]]
        targets = torch.cat([targets, *(texts.targets(texts.of_kind[f"variants of {kind}"]) for kind in idea.texts)])
    single = len(words) // 2 if paired else len(words)
    whitening, mean = half_whitening(targets) if "whitened" in idea.loss else None, targets.mean(dim=0)
    encoder, pooling, dense = list(small.children())[:3]
    if idea.frozen:
        encoder.auto_model.embeddings.requires_grad_(False)
    parameters = [weight for weight in small.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=idea.rate, weight_decay=0.0, fused=True)
    began, steps = time.process_time(), 0
    torch.set_float32_matmul_precision("medium" if idea.rounded else "highest")
    for batch in batches([len(text) for text in words[:single]], idea.batch // (1 + paired), seed):
        batch = [*batch, *(place + single for place in batch)] if paired else batch
        done = (time.process_time() - began) / seconds
        if done >= 1:
            torch.set_float32_matmul_precision("highest")
            return steps
        for group in optimizer.param_groups:
            group["lr"] = idea.rate * min(done / WARMUP_SHARE, (1 - done) / (1 - WARMUP_SHARE))
        features = small.preprocess([words[i] for i in batch])
        read = encoder(features)
        found = dense(pooling(dict(read)))["sentence_embedding"]
        loss = loss_of(idea.loss, found, targets[batch])
        if paired:
            ours, theirs = (rows[: len(batch) // 2] - rows[len(batch) // 2 :]
                            for rows in (nn.functional.normalize(found, dim=1), targets[batch]))  # fmt: skip
            loss = loss + (ours - theirs).square().sum() / theirs.square().sum()
        if whitening is not None:
            error = (nn.functional.normalize(found, dim=1) - targets[batch]) @ whitening
            loss = loss + error.square().sum() / ((targets[batch] - mean) @ whitening).square().sum()
        if whole is not None:
            with torch.no_grad():
                states = whole[0](dict(features))["token_embeddings"]
            own = dense.linear(read["token_embeddings"])
            loss = loss + token_loss(own, scale * states, features["attention_mask"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        steps += 1
    raise AssertionError("there is no end of batches")


def mean_length(whole: Any, words: Sequence[str]) -> float:
    """The mean length of the whole model's vectors before they are scaled to 1."""
    pooled = nn.Sequential(*list(whole.children())[:2])
    with torch.no_grad():
        return float(pooled(whole.preprocess(list(words)))["sentence_embedding"].norm(dim=1).mean())


def half_whitening(targets: Tensor) -> Tensor:
    """The matrix after which no direction of the vectors varies much more than another."""
    values, directions = torch.linalg.eigh(torch.cov(targets.T.double()))
    return (directions * (values + 0.1 * values.mean()).pow(-0.25)).float()


def loss_of(name: str, found: Tensor, targets: Tensor) -> Tensor:
    kind = name.partition("+")[0]
    if kind == "mse":
        return nn.functional.mse_loss(found, targets)
    if kind == "cosine":
        return 1 - nn.functional.cosine_similarity(found, targets).mean()
    return imitation_loss(found, targets, unit=True)


def measure(name: str, folder: Path, texts: Texts, root: Path, debian: Path, kept: Path) -> dict[str, Any]:
    """What a small model loses on the tasks and in search, and how close its vectors are."""
    row: dict[str, Any] = {}
    for choice in choose_tasks(TASKS, root):
        lost = row_of(choice, texts.whole, folder, kept / "answers")
        row |= {choice.name: lost["score"], f"{choice.name} lost": round(-lost["difference"], 2)}
    table = in_hash_order(pd.read_parquet(debian)).iloc[:DOCUMENTS]
    queries, documents = table["query"].tolist()[:QUERIES], table.document.tolist()
    index = vectors(texts.whole, "document", documents, kept / "vectors")
    old, new = (measures(ranks(vectors(model, "query", queries, kept / "vectors"), index))
                for model in (texts.whole, folder))  # fmt: skip
    row |= {f"{measure} lost": round(float((old[measure] - new[measure]).mean()), 4) for measure in ("mrr", "recall")}
    small = SentenceTransformer(str(folder), device="cpu")
    for kind, checked in texts.checks.items():
        found = torch.from_numpy(small.encode([item.text for item in checked], show_progress_bar=False))
        row[f"cosine {kind}"] = round(float(nn.functional.cosine_similarity(found, texts.targets(checked)).mean()), 4)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data", "root", "debian", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("ideas", nargs="+", choices=list(IDEAS))
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blocks", default="1,5,6", help="counted from 1")
    args = parser.parse_args()
    torch.set_num_threads(1)
    blocks = [int(number) - 1 for number in args.blocks.split(",")]
    texts = Texts(original(MODEL, args.models, args.kept), blocks, args.data, args.kept / "vectors")
    for name in args.ideas:
        idea = IDEAS[name]
        small = texts.start(idea)
        steps = train(idea, texts, small, args.seconds, args.seed) if idea.trained else 0
        folder = args.kept / "ideas" / f"{name.replace(' ', '-')}-{args.blocks}-{args.seconds:g}-{args.seed}"
        small.eval().save(str(folder), create_model_card=False)
        row = {
            "idea": name,
            "blocks": args.blocks,
            "seed": args.seed,
            "seconds": args.seconds if steps else 0,
            "steps": steps,
        }
        row |= measure(name, folder, texts, args.root, args.debian, args.kept)
        add_rows(TABLE, pd.DataFrame([row]), ["idea", "blocks", "seed", "seconds"])
        print(row, flush=True)


if __name__ == "__main__":
    main()
