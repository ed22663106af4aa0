"""The desk: a folder where a user works, the commands that every verb is attacked with, and what they must give.

A verb without an entry in GOOD fails tests/abuse/test_abuse.py, so that none escapes the campaign.
"""

import gc
import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from snapshots import TEXTS, campaign_file, put_decoys

from abuse import forked
from abuse.oracles import Tree, tree_of

DATA = ["--data", "texts.txt"]
MANY = ["--data", "many.txt"]  # enough texts to shrink a model on
LABELLED = ["--data", "classes.csv", "--label", "class", "--epochs", "1"]
FAST = ["--metrics", "curvature,intrinsic_dimension,dataset_entropy", "--threads", "1"]
EVAL = ["--tasks", "all", "--data-root", "tasks", "--workers", "0", "--layers", "0,1,2,3"]
GOOD: list[tuple[list[str], list[str]]] = [  # a command, and all that it may change
    (["scan", "model", *DATA, *FAST, "--out", "run"], ["run"]),
    (["scan", "model", *DATA, *FAST, "--out", "run"], []),
    (["scan", "model", *DATA, *FAST], []),
    (["scan", "model", "--data", "link.txt", "--dry-run"], []),
    (["scan", "other", *DATA, *FAST, "--out", "deep/er/run"], ["deep/er/run"]),
    (["lab", "stress", "model", *DATA, "--kind", "repeat_one", "--levels", "0,1", "--out", "stressed"], ["stressed"]),
    (["campaign", "c.yaml"], ["cells"]),
    (["campaign", "c.yaml", "--dry-run"], []),
    (["lab", "data", "tasks", "Mine", "--type", "STS", "--test", "pairs.csv"], ["tasks"]),
    (["eval", "model", *EVAL, "--out", "scores"], ["scores"]),
    (["eval", "model", *EVAL, "--out", "scores"], ["scores/table.parquet", "scores/run.json"]),
    (["eval", "model", *EVAL, "--out", "evicted", "--vectors", "evict"], ["evicted"]),
    (["eval", "model", *EVAL, "--dry-run"], []),
    (["pick", "run", "--rule", "depth:50%", "--save", "run"], ["run/pick.json"]),
    (["pick", "run", "--rule", "last", "--save", "picked"], ["picked"]),
    (["pick", "model", "--fit", "texts.txt"], []),
    (["probe", "model", *LABELLED, "--out", "probes"], ["probes"]),
    (["probe", "model", *LABELLED], []),
    (["export", "model", "--layer", "1", "--out", "small"], ["small"]),
    (["shrink", "model", *MANY, "--blocks", "1", "--out", "shrunk"], ["shrunk"]),
    (
        ["shrink", "other", *MANY, "--blocks", "1", "--method", "distill", "--steps", "2", "--out", "deep/shrunk"],
        ["deep/shrunk"],
    ),
    # By the number of words in common, layer 0 is better than the last one, which would not be exported.
    (["pick", "model", "--labels", "labels.csv", "--export", "deep/small"], ["deep/small"]),
    (["embed", "model", *DATA, "--layers", "1", "--out", "v.parquet"], ["v.parquet"]),
    (["lab", "tradeoff", "scores"], ["scores/tradeoff.json"]),
    (["report", "run", "scores", "--html", "r.html"], ["r.html"]),
    (["report", "run", "--html", "r.html"], ["r.html"]),
    (["compare", "run", "deep/er/run", "--html", "deep/c.html"], ["deep/c.html"]),
    (["report", "run", "-o", "f.png"], ["f.png"]),
    (["lab", "correlate", "run", "scores"], []),
    (["lab", "audit", "known.csv"], []),
    (["doctor", "model"], []),
    (["lab", "views", "a text"], []),
    (["scan", "--metrics", "list"], []),
    (["lab", "reproduce", "fig7", "--out", "paper"], ["paper"]),
    (["lab", "reproduce", "--list"], []),
    (["shrink", "other", "--method", "static", "--data", "many.txt", "--out", "deep/static"], ["deep/static"]),
]
BAD: list[tuple[list[str], list[str]]] = [  # refused or failing; and all that it may change nevertheless
    *[([*words, *out], []) for words, option in (
        (["scan", "model", *DATA, *FAST], "--out"),
        (["lab", "stress", "model", *DATA, "--kind", "random"], "--out"),
        (["eval", "model", *EVAL], "--out"),
        (["export", "model", "--layer", "1"], "--out"),
        (["shrink", "model", *MANY], "--out"),
        (["shrink", "model", *MANY, "--out", "not-made"], "--work"),
        (["pick", "model"], "--export"),
        (["embed", "model", *DATA], "--out"),
        (["pick", "run", "--rule", "last"], "--save"),
        (["report", "run"], "--html"),
        (["compare", "run", "deep/er/run"], "--html"),
        (["report", "run"], "--out"),
        (["lab", "reproduce", "fig7"], "--out"),
    ) for out in ([option, "mine"], [option, "."], [option, ""], [option, "texts.txt"], [option, "texts.txt/x"])],
    (["campaign", "bad.yaml"], []),
    (["lab", "data", "", "Other", "--type", "STS", "--test", "pairs.csv"], []),
    (["lab", "data", ".", "mine", "--type", "STS", "--test", "pairs.csv"], []),
    (["scan", "broken", *DATA, *FAST, "--out", "failed"], ["failed"]),
    (["eval", "broken", *EVAL, "--out", "failed-too"], ["failed-too"]),
    (["export", "broken", "--layer", "2", "--out", "not-made"], []),
    (["scan", "nowhere", *DATA, "--out", "not-made"], []),
    (["lab", "tradeoff", "mine"], []),
    (["report", "mine", "--html", "new.html"], []),
]  # fmt: skip


def desk_for(folder: Path, reading_llama: str, tiny_bert: str, broken_llama: str) -> Path:
    """A folder where a user works: models, data, files that look like ours, a home and a place for temporary files."""
    for name, model in (("model", reading_llama), ("other", tiny_bert), ("broken", broken_llama)):
        shutil.copytree(model, folder / name)
    for name in ("home", "tmp", "deep/er"):
        (folder / name).mkdir(parents=True)
    put_decoys(folder)
    put_decoys(folder / "mine")
    (folder / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    (folder / "many.txt").write_text("\n".join(f"w{i} w{i % 7} w{i % 5} {text}" for i in range(9) for text in TEXTS))
    (folder / "link.txt").symlink_to("texts.txt")
    pairs = [(TEXTS[i], TEXTS[i + 1], float(i)) for i in range(8)]
    pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"]).to_csv(folder / "pairs.csv", index=False)
    alike = [(a, b, len({*a.split()} & {*b.split()})) for i, a in enumerate(TEXTS) for b in TEXTS[i + 1 : i + 6]]
    pd.DataFrame(alike, columns=["text1", "text2", "score"]).to_csv(folder / "labels.csv", index=False)
    classes = pd.DataFrame({"text": TEXTS, "class": [len(text) % 2 for text in TEXTS]})
    classes.to_csv(folder / "classes.csv", index=False)
    rows = [("f", "m", task, layer, 50.0 + layer) for task in ("a", "b") for layer in range(4)]
    pd.DataFrame(rows, columns=["family", "model", "task", "layer", "score"]).to_csv(folder / "known.csv", index=False)
    campaign_file(folder / "c.yaml", "model", "cells")
    campaign_file(folder / "bad.yaml", "model", "mine")
    return folder


SMALL_SHARDS = ["--shard-size", "2"]
# Commands whose result can be compared with the undisturbed one: what they write, and what they read on the desk.
SCAN = ["scan", "model", *DATA, *FAST, *SMALL_SHARDS]
WRITERS: dict[str, tuple[list[str], list[str]]] = {  # each into a new place
    "scan": ([*SCAN, "--out", "new"], ["new"]),
    "stress": (["lab", "stress", "model", *DATA, "--kind", "random", "--levels", "0,1", "--out", "new"], ["new"]),
    "campaign": (["campaign", "c.yaml"], ["cells"]),
    "data": (["lab", "data", "tasks", "Other", "--type", "STS", "--test", "pairs.csv"], ["tasks"]),
    "eval": (["eval", "model", *EVAL, "--out", "new"], ["new"]),
    "eval in processes": ([*["2" if w == "0" else w for w in ["eval", "model", *EVAL]], "--out", "new"], ["new"]),
    "pick": (["pick", "run", "--rule", "depth:50%", "--save", "new"], ["new"]),
    "pick by probes": (["pick", "model", "--fit", "texts.txt", "--save", "new"], ["new"]),
    "probe": (["probe", "model", *LABELLED, "--out", "new"], ["new"]),
    "export": (["export", "model", "--layer", "1", "--out", "new"], ["new"]),
    "export a map": (["export", "model", "--layer=1", "--transform=center", "--fit", "run", "--out", "new"], ["new"]),
    "shrink": (["shrink", "model", *MANY, "--blocks", "1", "--out", "new", "--work", "work"], ["new", "work"]),
    "pick and export": (["pick", "model", "--labels", "labels.csv", "--export", "new"], ["new"]),
    "embed": (["embed", "model", *DATA, "--layers", "1", "--out", "new.parquet", "--overwrite"], ["new.parquet"]),
    "report": (["report", "run", "scores", "--html", "new.html"], ["new.html"]),
    "compare": (["compare", "run", "deep/er/run", "--html", "new.html"], ["new.html"]),
    "plot": (["report", "run", "-o", "new.svg", "--overwrite"], ["new.svg"]),
    "tradeoff": (["lab", "tradeoff", "scores"], ["scores/tradeoff.json"]),
    "audit": (["lab", "audit", "known.csv", "--json"], []),
    "reproduce": (["lab", "reproduce", "fig7", "--out", "new"], ["new"]),
}
READ_ONLY = {"doctor", "lab correlate", "lab views"}  # verbs that write nothing


def verb_of(words: Sequence[str]) -> str:
    """The verb of a command: one word, or two in the lab."""
    return " ".join(words[: 2 if words[:1] == ["lab"] else 1])


READERS: dict[str, list[str]] = {  # commands that read what other commands have made
    "pick": ["pick", "run", "--rule", "last", "--json"],
    "report": ["report", "run", "scores", "--html", "new.html"],
    "report of probes": ["report", "probes", "stressed", "cells", "--html", "new.html"],
    "compare": ["compare", "run", "deep/er/run"],
    "plot": ["report", "run", "-o", "new.svg"],
    "plot tradeoff": ["report", "scores", "--figure", "tradeoff", "-o", "new.svg"],
    "plot cka": ["report", "run", "deep/er/run", "--figure", "cka", "-o", "new.svg"],
    "correlate": ["lab", "correlate", "run", "scores"],
    "scan again": ["scan", "model", *DATA, *FAST, "--out", "run", "--json"],
    "stress again": [*GOOD[5][0], "--json"],
    "campaign again": ["campaign", "c.yaml", "--json"],
    "eval again": ["eval", "model", *EVAL, "--out", "scores", "--json"],
    "probe again": ["probe", "model", *LABELLED, "--out", "probes", "--json"],
    "export a map": ["export", "model", "--layer=1", "--transform=center", "--fit", "run", "--out", "new"],
    "export the pick": ["export", "model", "--layer", "run:auto", "--out", "new"],
    "export a recipe": ["export", "model", "--recipe", "small", "--out", "new"],
    "eval of a recipe": ["eval", "model", *EVAL[:-2], "--recipe", "small", "--out", "new", "--json"],
    "embed with the export": ["embed", "small", *DATA, "--layers", "last", "--out", "new.parquet"],
    "doctor of the export": ["doctor", "small"],
    "audit": ["lab", "audit", "known.csv", "--json"],
}
REBUILT = {"scan again": ["run"], "stress again": ["stressed"], "campaign again": ["cells"], "eval again": ["scores"]}
REBUILT |= {"probe again": ["probes"]}
PREPARED = [  # makes everything that READERS read
    GOOD[0][0], GOOD[4][0], GOOD[5][0], GOOD[6][0], GOOD[8][0], GOOD[9][0], GOOD[13][0], GOOD[16][0], GOOD[18][0],
    ["lab", "tradeoff", "scores"],
]  # fmt: skip


@dataclass
class Case:
    """What came of a case: how many attacks it stands for, what it did, and what is wrong."""

    what: str
    problems: list[str] = field(default_factory=list)
    count: int = 1
    printed: str = ""


@dataclass
class Workshop:
    """The finished desk, from which each case gets a copy, and the undisturbed results."""

    base: Path
    results: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    tree: Tree = field(default_factory=dict)  # of the copy, before the case

    @property
    def streams(self) -> Path:
        return self.base / "streams"

    def fresh(self) -> Path:
        """A copy of the desk for one case. It has the same path every time, since a path can be part of a result."""
        desk = self.base / "case" / "desk"
        if not (self.tree and desk.exists() and self.restored(desk)):
            shutil.rmtree(desk, ignore_errors=True)
            shutil.copytree(self.base / "desk", desk, symlinks=True)
        self.tree = tree_of(desk)
        return desk

    def restored(self, desk: Path) -> bool:
        """Undoes what the case before has changed, which is cheaper than a new copy; False if that takes one."""
        now = tree_of(desk)
        for path in sorted(now.keys() - self.tree.keys()):
            if os.path.islink(path) or not os.path.isdir(path):
                Path(path).unlink(missing_ok=True)  # or gone with its folder
            else:
                shutil.rmtree(path)
        for path in (path for path, status in self.tree.items() if status != now.get(path)):
            origin = self.base / "desk" / os.path.relpath(path, desk)
            if origin.is_dir() or os.path.isdir(path):  # a folder that was deleted or changed, or a file that is one
                return False
            Path(path).unlink(missing_ok=True)  # a link is not copied over
            shutil.copy2(origin, path, follow_symlinks=False)
        return True

    def prepare(self, models: Sequence[str], commands: Sequence[Sequence[str]]) -> None:
        self.streams.mkdir(parents=True)
        desk = desk_for(self.base / "case" / "desk", *models)
        for words in commands:
            outcome = forked.run(words, desk, self.streams, 240)
            if outcome.code:
                raise RuntimeError(f"{words}: {outcome.code} {outcome.err}")
        shutil.move(desk, self.base / "desk")

    def undisturbed(self, name: str, words: Sequence[str], outputs: Sequence[str]) -> Any:
        """What a command gives when nobody disturbs it; computed once."""
        if name not in self.results:
            desk = self.fresh()
            outcome = forked.run(words, desk, self.streams, 240)
            if outcome.code not in (0, 1):
                raise RuntimeError(f"{words}: {outcome.code} {outcome.err}")
            self.results[name] = result_of(desk, outputs, outcome.out)
            self.seconds[name] = outcome.seconds
        return self.results[name]


# Numbers that a repetition may change: durations, times of day, and names of files for which they are part.
COUNTS = rb"finished|seconds|seconds_reading|created|time|forwarded|forwarded_texts"
# Encoding times are ratios that differ a little each time, and so does where the line is wrapped.
TIMES = re.compile(
    rb"encoding time:[^\n]*(\n  (?!layerwise)[^\n]*)*"
    + rb"|\d[\d:.-]*(T[\d:.+]+)?( ?(ms|s|seconds|%|x|times))\b"
    + rb'|"('
    + COUNTS
    + rb')": [^,}\n]+'
)
# The same on a page; and that a command was given with --json. The page that it is compared with may show the moment
# before, so nothing is put in its place.
SHOWN = re.compile(rb"<dt>(finished|seconds)</dt><dd>[^<]*</dd>| --json\b")


def result_of(desk: Path, outputs: Sequence[str], printed: str = "") -> dict[str, str]:
    """Hashes of what a command wrote, file by file, without what two undisturbed runs do not share."""
    found = {}
    for name in outputs:
        root = desk / name
        for path in sorted([root, *root.rglob("*")]):
            if path.is_file() and (content := comparable(path)) is not None:
                found[str(path.relative_to(desk))] = hashlib.blake2b(content, digest_size=8).hexdigest()
    if printed:
        found["stdout"] = hashlib.blake2b(comparable_output(printed), digest_size=8).hexdigest()
    return found


def comparable_output(printed: str) -> bytes:
    """What of standard output is the same each time: of a table as JSON, the rows and what they were computed on."""
    try:
        record = json.loads(printed)
        runs = record["run"].get("runs", [record["run"]])
        facts = [(run.get("data"), run.get("model", {}).get("fingerprint"), run.get("plan")) for run in runs]
        return json.dumps([record["scores"], facts], sort_keys=True).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return without_times(printed.encode())


def comparable(path: Path) -> bytes | None:
    """What of a file is the same each time; None for a file that is not a result. A damaged one is as it is."""
    try:
        return comparable_content(path)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return path.read_bytes()


def comparable_content(path: Path) -> bytes | None:
    name = path.name
    if name == "table.parquet":
        return pd.read_parquet(path).to_csv(index=False).encode()
    if name.endswith((".safetensors", ".parquet", ".txt")) or name in ("modules.json", "config.json", "tokenizer.json"):
        return path.read_bytes() if "vectors" not in path.parts and "features" not in path.parts else None
    if name in ("pick.json", "task.json", "plan.json", "layerwise-run.json"):
        record = json.loads(path.read_bytes())
        kept = {k: v for k, v in record.items() if k not in ("layers", "saving", "environment", "options", "checksum")}
        if "why" in kept:  # a reason may be a measured time
            kept["why"] = [line for line in kept["why"] if not line.startswith("time of ")]
        return json.dumps(kept, sort_keys=True).encode()
    if name == "tradeoff.json":
        return json.dumps([(one["layer"], one["score"]) for one in json.loads(path.read_bytes())["layers"]]).encode()
    if path.suffix == ".html" and name != "status.html":  # which shows one moment
        return SHOWN.sub(b"", without_times(path.read_bytes()))
    return b"there" if path.suffix in (".svg", ".png") else None


def without_times(data: bytes) -> bytes:
    return TIMES.sub(b"-", data)


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    names = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    return [f"differs from the undisturbed result: {', '.join(names[:4])}"] if names else []


def make_models(folder: Path) -> list[str]:
    """The tiny models of the desk: a decoder, an encoder, and a decoder that gives NaN."""
    import torch
    from families import make_model, make_reader, make_tokenizer

    made = []
    for name, family in (("llama", "llama"), ("bert", "bert"), ("broken", "llama")):
        model, tokenizer = make_reader(family) if name == "llama" else (make_model(family), make_tokenizer())
        if name == "broken":
            torch.nn.init.constant_(model.layers[1].mlp.down_proj.weight, float("nan"))
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        made.append(str(folder / name))
    return made


def warm() -> None:
    """Imports what commands import late, so that children need not."""
    import datasets  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import mteb  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import sentence_transformers  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import transformers  # noqa: F401
    from transformers import BertModel, LlamaModel  # noqa: F401

    import layerwise
    from layerwise.verbs.eval.tasks import benchmark_tasks

    for name in layerwise.__all__:
        getattr(layerwise, name)
    benchmark_tasks()  # seven seconds of CPU time in each `eval` otherwise
    forked.the_parser()
    gc.collect()
    gc.freeze()  # else the first collection in each child would copy all of the memory that they share
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "abuse-s3cr3t")
