"""Embeds texts by a folder of sentence-transformers in vLLM: by its Python interface, and by its HTTP server.

Reads a JSON object from a line of standard input: model, length, texts. Writes one to the file descriptor that it is
given: the vectors of each way, or its error. It must be the first process of a session: when standard input ends, all
processes of the session are killed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS_TO_START = 600
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"}


def from_python(model: str, length: int, texts: list[str]) -> list[list[float]]:
    from vllm import LLM

    llm = LLM(
        model=model, runner="pooling", dtype="float32", max_model_len=length, enforce_eager=True,
        load_format="safetensors",
    )  # fmt: skip
    outputs = llm.embed(texts, use_tqdm=False, tokenization_kwargs={"truncate_prompt_tokens": length})
    return [output.outputs.embedding for output in outputs]


def from_server(model: str, length: int, texts: list[str]) -> list[list[float]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        # Not `vllm serve`, which asks for the version of a package named vllm; the builds for CPUs have other names.
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "model",
        "--runner", "pooling", "--dtype", "float32", "--max-model-len", str(length), "--enforce-eager",
        "--load-format", "safetensors", "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    log = tempfile.TemporaryFile("w+")
    # `-m` also looks for modules in the working directory, where a file of the user's may be called vllm.py.
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parent)
    try:
        wait_for(process, log, f"http://127.0.0.1:{port}/health")
        body = {"model": "model", "input": texts, "encoding_format": "float", "truncate_prompt_tokens": length}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/embeddings", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=SECONDS_TO_START) as answer:
            data = json.load(answer)["data"]
        return [one["embedding"] for one in sorted(data, key=lambda one: one["index"])]
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_for(process: "subprocess.Popen[bytes]", log: Any, address: str) -> None:
    """Waits until the server answers; raises if it stops before."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            raise RuntimeError(f"the server stopped while it started: {reason_in(log.read())}")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"the server did not answer within {SECONDS_TO_START} seconds")


def reason_in(log: str) -> str:
    """The last line that names an error."""
    named = [line.strip() for line in log.splitlines() if "Error" in line]
    return named[-1] if named else log[-300:]


def outcome(way: Callable[..., list[list[float]]], settings: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"vectors": way(**settings)}
    except Exception as error:
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}


def end_with_reader() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(descriptor: int) -> None:
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    settings = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_reader, daemon=True).start()
    # The server first, since vLLM in this process keeps its memory until the end.
    found = {"server": outcome(from_server, settings), "python": outcome(from_python, settings)}
    with os.fdopen(descriptor, "w") as answers:
        print(json.dumps(found), file=answers)


if __name__ == "__main__":
    main(int(sys.argv[1]))
