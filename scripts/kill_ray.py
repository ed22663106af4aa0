"""Kills workers, nodes or the driver of a scan on Ray at random moments, and compares what comes out with a local run.

    python scripts/kill_ray.py MODEL DATA [--kinds worker node driver] [--kills 10] [--shards 40] [--shard-size 64]

If MODEL is a number, a random BERT with two narrow blocks of that width is used: at 2048 its state has over 100 MB
once there are more texts than dimensions. The cluster is real: a head and two nodes on loopback, each with a raylet and
processes of its own. A scan goes on until it finishes, whatever is killed; when it finishes before all kills are done,
another one is begun.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch
from ray.cluster_utils import Cluster
from transformers import BertConfig, BertModel, BertTokenizerFast

from layerwise.engines.checkpoints import Node, largest
from layerwise.engines.ray_cluster import RAY_ENVIRONMENT
from layerwise.runs.table import LayerTable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--kinds", nargs="+", default=["worker", "node", "driver"])
    parser.add_argument("--kills", type=int, default=10, help="of each kind")
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--shard-size", type=int, default=64)
    parser.add_argument("--metrics", default="fast")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    os.environ |= RAY_ENVIRONMENT
    moments = random.Random(args.seed)
    folder = Path(tempfile.mkdtemp(prefix="kill-ray-"))
    model = random_model(int(args.model), folder / "model") if args.model.isdigit() else args.model
    scan = [sys.executable, "-m", "layerwise", "scan", model, "--data", args.data, "--threads", "1"]
    scan += ["--limit", str(args.shards * args.shard_size), "--shard-size", str(args.shard_size)]
    scan += ["--metrics", args.metrics]
    began = time.monotonic()
    run([*scan, "--out", str(folder / "local")]).wait()
    local, seconds = contents(folder / "local"), time.monotonic() - began
    table = LayerTable.load(folder / "local")
    megabytes = max(path.stat().st_size for path in (folder / "local").glob("state-*")) / 1e6
    setting = f"{table.run['data']['prompts']} prompts, {args.shards} shards of {seconds / args.shards:.2f} s"
    print(f"local: {setting}, {megabytes:.0f} MB; state {local['state'][:16]}, rows {local['rows'][:16]}", flush=True)

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    scan += ["--engine", "ray", "--address", cluster.address, "--workers", "2"]
    try:
        for kind in args.kinds:
            kills = runs = 0
            while kills < args.kills:
                out = folder / f"{kind}-{runs}"
                driver = run([*scan, "--out", str(out)])
                while driver.poll() is None:
                    wait_for_progress(out, driver, moments.uniform(0.1, 0.3) * seconds)
                    if driver.poll() is not None or kills >= args.kills:
                        driver.wait()
                        break
                    there = shards_there(out)
                    if kind == "driver":
                        driver.kill()
                        driver.wait()
                        driver = run([*scan, "--out", str(out)])
                    elif kind == "node":
                        lost = nodes.pop(moments.randrange(len(nodes)))
                        os.kill(lost.all_processes["raylet"][0].process.pid, signal.SIGKILL)
                        cluster.remove_node(lost, allow_graceful=False)
                        nodes.append(cluster.add_node(num_cpus=1))
                    else:
                        worker = moments.choice(workers() or [None])
                        if worker is None:
                            continue
                        worker.kill()
                    kills += 1
                    print(f"  {kind} kill {kills}: {there} of {args.shards} shards were done", flush=True)
                assert driver.returncode == 0, f"the driver ended with {driver.returncode}"
                assert contents(out) == local, f"{out} differs from the local run"
                runs += 1
            print(f"{kind}: {kills} kills over {runs} runs; state, rows and prompts are the local runner's", flush=True)
    finally:
        cluster.shutdown()


def random_model(width: int, folder: Path) -> str:
    """A BERT that is wide and cheap, with a tokenizer of single characters."""
    letters = [chr(code) for code in range(33, 127)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    shape = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": 16, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(vocabulary), **shape)).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=16).save_pretrained(folder)
    return str(folder)


def run(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workers() -> list[psutil.Process]:
    """The processes that work on a shard or load the model for it."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or [""]
        if words[0].startswith("ray::Worker"):
            found.append(process)
    return found


def shards_there(out: Path) -> int:
    """Shards whose states are in the folder, merged or not."""
    nodes = [Node(*map(int, path.stem.split("-"))) for path in out.glob("shards/*.safetensors")]
    return sum(node.size for node in largest(nodes))


def wait_for_progress(out: Path, driver: subprocess.Popen[bytes], seconds: float) -> None:
    """Waits until a shard was done since we came, and then a while; kills in an endless start would prove nothing."""
    before = shards_there(out)
    while driver.poll() is None and shards_there(out) == before:
        time.sleep(0.02)
    until = time.monotonic() + seconds
    while driver.poll() is None and time.monotonic() < until:
        time.sleep(0.02)


def contents(out: Path) -> dict[str, str]:
    """Hashes of the merged state, of the rows, and of every prompt's own numbers; nothing else may be left."""
    (state,) = out.glob("state-*.safetensors")
    assert not (out / "shards").exists()
    prompts = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(out.glob("prompts/*.parquet"))))
    hashes = {"state": hashlib.sha256(state.read_bytes()), "prompts": prompts}
    hashes["rows"] = hashlib.sha256((out / "table.parquet").read_bytes())
    return {name: digest.hexdigest() for name, digest in hashes.items()}


if __name__ == "__main__":
    main()
