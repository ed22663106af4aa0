"""Snapshots of folders, files of a user that look like ours, and a script that tells what commands changed."""

import hashlib
import json
import sys
from pathlib import Path

import pandas as pd

import layerwise
from layerwise.verbs.eval.data_root import write_task

TEXTS = [" ".join(f"w{(3 * i + 5 * j * j) % 89}" for j in range(4 + i % 5)) for i in range(11)]
SCAN = {"metrics": "dataset_entropy", "shard_size": 4, "threads": 1}
DECOYS = {
    "state-01.csv": b"a,b\n1,2\n",
    "state-00001.safetensors": b"not of layerwise",
    "state-00002.safetensors.bak": b"also not",
    "shards/notes.txt": b"notes",
    "shards/00000-00001.safetensors": b"mine",
    "prompts/my.parquet": b"PAR1 mine",
    "table.parquet": b"PAR1 census",
    "vectors/segment-1.safetensors": b"mine",
    "kind.json": b"{}",
    "pick.json": b'{"favourite": 3}',
    "tradeoff.json": b"[1]",
    ".hidden": b"secret",
    "README.md": b"my notes",
}


def snapshot(*roots):
    """Every file, folder and link below the roots: its path, and a hash of what it holds."""
    found = {}
    for root in map(Path, roots):
        for path in sorted(root.rglob("*")):
            if path.is_symlink():
                found[str(path)] = f"link to {path.readlink()}"
            else:
                found[str(path)] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def put_decoys(folder):
    """Puts all files that are not there yet into the folder, and returns the paths of those."""
    put = []
    for name, data in DECOYS.items():
        path = Path(folder) / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            put.append(str(path))
    return put


def ours_in(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


def write_root(root):
    pairs = [(TEXTS[i], TEXTS[i + 1], float(i)) for i in range(8)]
    write_task(root, "Mine", "STS", pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"]))
    return root


def campaign_file(path, model, out):
    texts = path.parent / "campaign-texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    record = {"out": str(out), "models": [model], "data": {"d": {"data": str(texts)}}}
    path.write_text(json.dumps(record | {"settings": {"s": {"metrics": "curvature"}}}), encoding="utf-8")
    return path


def run_verb(verb, model, root, out):
    """Runs a verb of the library into a folder; stress:KIND names the kind."""
    if verb == "scan":
        return layerwise.scan(model, TEXTS, out=out, **SCAN)
    if verb == "eval":
        return layerwise.eval(model, "Mine", data_root=root, out=out, layers="1")
    if verb == "campaign":
        return layerwise.campaign(campaign_file(root / "c.yaml", model, out))
    kind = verb.partition(":")[2]
    return layerwise.lab.stress(model, TEXTS, kind=kind, levels=[0.5], metrics="curvature", out=out, threads=1)


def run_commands(commands, root):
    """Runs each command line in this process; for each, its exit code and the paths that it changed below the root."""
    from abuse.forked import block_network

    from layerwise.__main__ import main

    attempts = block_network()
    result, before = [], snapshot(root)
    for command in commands:
        attempts.clear()
        try:
            code = main(command)
        except SystemExit as stopped:
            code = stopped.code
        after = snapshot(root)
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        result.append({"command": command, "code": code, "changed": changed, "network": list(attempts)})
        before = after
    return result


if __name__ == "__main__":
    commands, root, answer = sys.argv[1:]
    found = run_commands(json.loads(Path(commands).read_text(encoding="utf-8")), root)
    Path(answer).write_text(json.dumps(found), encoding="utf-8")
