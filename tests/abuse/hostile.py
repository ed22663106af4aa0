"""Hostile models, runs, data roots and campaign files: no code runs, nothing is written elsewhere or leaks."""

import json
import random
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd

from abuse import forked, oracles
from abuse.desk import DATA, EVAL, FAST, Case, Workshop, verb_of

CANARY = "executed"  # the file that code of an attacker would make, in the current folder
CODE = f"open('{CANARY}', 'w').write('x')"
PAYLOADS = [
    "<script>open('x')</script>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "\" onload=\"alert(1)",
    "javascript:alert(1)", "<!--", "]]>", "&lt;script&gt;", "</style><svg/onload=alert(1)>", "${alert(1)}",
    "\u2028alert(1)//",
    "\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31m", "a\rb", "\u202egnp.exe", "%s%s%n", "../../../etc/passwd",
    "{{7*7}}", "x" * 9000,
    "\x1b]8;;http://evil\x07click\x1b]8;;\x07", "\x08\x08\x08", "'; --", "\ud83d", "\x00",
]  # fmt: skip


class Page(HTMLParser):
    """What of a page could run: scripts, handlers, links to scripts, and what is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "base", "meta", "link", "form"):
            self.active.append(tag)
        for name, value in attrs:
            target = (value or "").strip().lower()
            if name.startswith("on") or target.startswith(("javascript:", "data:text/html")):
                self.active.append(f"{tag} {name}")
            elif name in ("src", "srcset", "action") and "//" in target:
                self.active.append(f"{tag} {name} {target[:40]}")


def active_parts(path: Path) -> list[str]:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return sorted(page.active)


def model_with_code(desk: Path, draw: random.Random) -> list[list[str]]:
    """A folder that asks transformers to run its code."""
    config = json.loads((desk / "model" / "config.json").read_text())
    config |= {"auto_map": {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}}
    if draw.random() < 0.5:
        config["model_type"] = "evil"
    (desk / "model" / "config.json").write_text(json.dumps(config))
    (desk / "model" / "evil.py").write_text(CODE)
    tokens = json.loads((desk / "model" / "tokenizer_config.json").read_text())
    tokens["auto_map"] = {"AutoTokenizer": ["evil.EvilTokenizer", "evil.EvilTokenizer"]}
    (desk / "model" / "tokenizer_config.json").write_text(json.dumps(tokens))
    return on_a_model(draw)


def model_with_pickle(desk: Path, draw: random.Random) -> list[list[str]]:
    """Weights as a pickle that runs code when it is loaded."""
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return exec, (CODE,)

    (desk / "model" / "model.safetensors").unlink()
    name = draw.choice(["pytorch_model.bin", "model.pt", "model.ckpt", "model.safetensors"])
    (desk / "model" / name).write_bytes(pickle.dumps({"layers.0.weight": Evil()}))
    return on_a_model(draw)


def model_with_odd_config(desk: Path, draw: random.Random) -> list[list[str]]:
    """A config with values that no model has."""
    path = desk / "model" / draw.choice(["config.json", "config.json", "tokenizer_config.json", "tokenizer.json"])
    record = json.loads(path.read_text())
    for key in draw.sample(sorted(record), min(len(record), draw.choice([1, 1, 2]))):
        values = [None, -1, 0, 10**9, 2**70, 1e308, "x", "", [], {}, [1] * 9, True, draw.choice(PAYLOADS)]
        record[key] = draw.choice(values)
    path.write_text(json.dumps(record))
    return on_a_model(draw)


def model_with_odd_header(desk: Path, draw: random.Random) -> list[list[str]]:
    """A safetensors file whose header lies about shapes, offsets or sizes."""
    path = desk / "model" / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = draw.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    lie = draw.choice(["shape", "offsets", "dtype", "length", "extra", "metadata", "name", "missing"])
    if lie == "shape":
        entry["shape"] = draw.choice([[2**40, 2**40], [-1], [0], [], [1.5], "x", entry["shape"][::-1]])
    elif lie == "offsets":
        entry["data_offsets"] = draw.choice([[0, 2**62], [5, 1], [-1, 4], [0, 0], "x", None])
    elif lie == "dtype":
        entry["dtype"] = draw.choice(["F64", "I8", "BOOL", "EVIL", 7, "F8_E4M3"])
    elif lie == "extra":
        header[draw.choice(PAYLOADS)] = dict(entry)
    elif lie == "metadata":
        header["__metadata__"] = {"format": draw.choice(["tf", "", "x" * 10**6, "pickle"])}
    elif lie == "missing":
        del header[name]
    elif lie == "name":
        header[name + draw.choice(PAYLOADS)] = header.pop(name)
    text = json.dumps(header).encode()
    length = draw.choice([2**63, 2**40, 0, len(text) - 3]) if lie == "length" else len(text)
    path.write_bytes(length.to_bytes(8, "little") + text + data[8 + size :])
    return on_a_model(draw)


def on_a_model(draw: random.Random) -> list[list[str]]:
    commands = [
        ["scan", "model", *DATA, *FAST], ["embed", "model", *DATA, "--layers", "1", "--out", "new.parquet"],
        ["doctor", "model"],
        ["export", "model", "--layer", "1", "--out", "new"], ["pick", "model", "--fit", "texts.txt"],
        ["eval", "model", *EVAL, "--out", "new"], ["scan", "model", *DATA, "--dry-run"],
    ]  # fmt: skip
    return draw.sample(commands, 2)


def poisoned(value: Any, draw: random.Random, share: float) -> Any:
    """The record with some of its words replaced by payloads, and some numbers by absurd ones."""
    if isinstance(value, dict):
        return {k: poisoned(v, draw, share) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, draw, share) for v in value]
    if draw.random() > share:
        return value
    if isinstance(value, str):
        return draw.choice([value + draw.choice(PAYLOADS), draw.choice(PAYLOADS)])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return draw.choice([-1, 0, 2**62, 1e300, -5.5, float("nan"), 10**30])
    return value


def run_folder(desk: Path, draw: random.Random) -> list[list[str]]:
    """A run of a stranger: payloads in its records and in the columns of its table."""
    for name in ("run", "scores"):
        for file in ("run.json", "pick.json", "tradeoff.json"):
            if (desk / name / file).exists() and draw.random() < 0.7:
                record = poisoned(json.loads((desk / name / file).read_text()), draw, draw.choice([0.05, 0.2]))
                record = {k: v for k, v in record.items() if k != "checksum"}
                (desk / name / file).write_text(json.dumps(record))
        if draw.random() < 0.6:
            frame = pd.read_parquet(desk / name / "table.parquet")
            column = draw.choice(
                ["model", "metric", "note", "data", "template", "tokens", "pooling", "model", "metric"]
            )
            payload = draw.choice([p for p in PAYLOADS if p not in ("\ud83d",)])
            frame[column] = frame[column].astype(str) + payload
            frame.to_parquet(desk / name / "table.parquet", index=False)
    commands = [
        ["report", "run", "scores", "--html", "new.html"], ["compare", "run", "deep/er/run", "--html", "new.html"],
        ["pick", "run", "--rule", "last"], ["pick", "run", "--rule", "last", "--json"],
        ["lab", "correlate", "run", "scores"],
        ["report", "run", "-o", "new.svg"], ["lab", "tradeoff", "scores"],
        ["export", "model", "--layer", "run:auto", "--out", "new"],
    ]  # fmt: skip
    return draw.sample(commands, 3)


def data_root(desk: Path, draw: random.Random) -> list[list[str]]:
    """A prepared task of a stranger."""
    path = desk / "tasks" / "Mine" / "task.json"
    path.write_text(json.dumps(poisoned(json.loads(path.read_text()), draw, 0.4)))
    if draw.random() < 0.3:
        (desk / "tasks" / "Mine" / "README.md").write_text(
            "---\nconfigs: !!python/object/apply:os.system ['touch executed']\n---"
        )
    if draw.random() < 0.3:
        (desk / "tasks" / "Mine" / "mine.py").write_text(CODE)
    if draw.random() < 0.3:
        (desk / "tasks" / "Mine" / "default" / "test.parquet").unlink()
        (desk / "tasks" / "Mine" / "default" / "test.parquet").symlink_to("/etc/passwd")
    return [["eval", "model", *EVAL, "--out", "new"], ["eval", "model", *EVAL, "--dry-run"]]


def campaign_file(desk: Path, draw: random.Random) -> list[list[str]]:
    """A campaign of a stranger: YAML that makes objects, aliases, deep nesting, odd names and values."""
    record = json.loads((desk / "c.yaml").read_text())
    text = draw.choice([
        json.dumps(poisoned(record, draw, 0.4)),
        "out: !!python/object/apply:os.system ['touch executed']\nmodels: [model]\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nout: cells\nmodels: *b\n",
        "[" * 5000, "out: cells\nmodels: " + "[" * 30 + "]" * 30,
        json.dumps(record | {"out": draw.choice(["mine", ".", "", "../x", "texts.txt", oracles.URL, "/proc/x"])}),
        json.dumps(record | {"models": draw.choice([[], {}, "model", [None], [{"name": "model", "adapter": "/etc"}],
        ["../model"]])}),
        json.dumps(record | {"settings": {draw.choice(PAYLOADS): {"metrics": "curvature"}}}), "<<: {}\n", "\x00",
        "out: cells\nout: x\n",
        json.dumps(record | {"engine": draw.choice([{"workers": -1}, "x", 7, {"address": "evil:1"}, []])}),
    ])  # fmt: skip
    (desk / "c.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    return [["campaign", "c.yaml"], ["campaign", "c.yaml", "--dry-run"], ["campaign", "c.yaml", "--status"]]


def export_folder(desk: Path, draw: random.Random) -> list[list[str]]:
    """An exported model of a stranger."""
    for name in ("layerwise.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        path = desk / "small" / name
        if path.exists() and draw.random() < 0.5:
            path.write_text(json.dumps(poisoned(json.loads(path.read_text()), draw, 0.2)))
    if draw.random() < 0.3:
        modules = json.loads((desk / "small" / "modules.json").read_text())
        if isinstance(modules, list) and modules and isinstance(modules[0], dict):
            modules[0]["type"] = draw.choice(["evil.Evil", "os.system", "builtins.exec", "subprocess.Popen"])
            (desk / "small" / "modules.json").write_text(json.dumps(modules))
        (desk / "small" / "evil.py").write_text(CODE)
    return [
        ["embed", "small", *DATA, "--layers", "last", "--out", "new.parquet"], ["doctor", "small"],
        ["export", "model", "--recipe", "small", "--out", "new"],
    ]  # fmt: skip


ATTACKS: list[Callable[[Path, random.Random], list[list[str]]]] = [
    model_with_code, model_with_pickle, model_with_odd_config, model_with_odd_header, run_folder, run_folder, data_root,
    campaign_file, export_folder,
]  # fmt: skip


def case(workshop: Workshop, draw: random.Random) -> Case:
    attack = draw.choice(ATTACKS)
    plain = workshop.results.setdefault("active parts", pages(workshop))
    desk = workshop.fresh()
    commands = attack(desk, draw)
    problems, printed = [], ""
    for words in commands:
        before = oracles.tree_of(desk)
        outcome = forked.run(words, desk, workshop.streams, 90)
        outputs = oracles.outputs_of(
            words, {"lab tradeoff": ["scores/tradeoff.json"], "campaign": ["cells", "x"]}.get(verb_of(words), [])
        )
        found = oracles.all_of(outcome) + oracles.changed_outside(desk, before, oracles.tree_of(desk), outputs)
        found += oracles.half_written(desk)
        if (desk / CANARY).exists():
            found.append("code of the attacker was run")
        page = desk / "new.html"
        if page.exists():
            if extra := [part for part in active_parts(page) if part not in plain[words[0]]]:
                found.append(f"active parts in the page: {extra[:3]}")
            page.unlink()
        problems += [f"{problem} ({' '.join(words[:3])})" for problem in found]
        printed += f"$ {' '.join(words)}\n{outcome.out[-1000:]}{outcome.err[-1500:]}\n"
    return Case(attack.__name__.replace("_", " "), problems, count=1, printed=printed)


def pages(workshop: Workshop) -> dict[str, list[str]]:
    """The active parts of an undisturbed page, by verb."""
    found = {}
    for verb, words in (("report", ["report", "run", "scores"]), ("compare", ["compare", "run", "deep/er/run"])):
        desk = workshop.fresh()
        forked.run([*words, "--html", "new.html"], desk, workshop.streams)
        found[verb] = active_parts(desk / "new.html")
    return found


def shown(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text)
