"""vLLM as a source of hidden states, in this process or in a Python environment of its own."""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import load
from torch import Tensor

from layerwise.core.errors import InputError, MissingExtra, ModelError
from layerwise.core.progress import announce
from layerwise.core.quiet import is_verbose
from layerwise.models.elsewhere.network import ElsewhereNetwork, open_elsewhere
from layerwise.models.spec import ModelSpec
from layerwise.runs.summary import format_bytes

VARIABLE = "LAYERWISE_VLLM"
SCRIPTS = Path(__file__).parent / "in_vllm"
BATCH_TOKENS = 4096  # that vLLM computes at once
SHORTEST = 512  # tokens of an input that are always possible
LAST_LINES = 8  # of what vLLM wrote before it stopped
DTYPES = ("float32", "bfloat16", "float16")
ASK_VERSION = "import importlib.metadata as m; print(m.version(m.packages_distributions()['vllm'][0]))"


def vllm_python() -> str:
    """The Python that has vLLM: the one that LAYERWISE_VLLM names, or this one."""
    named = os.environ.get(VARIABLE, "")
    if named and shutil.which(named) is None:
        raise InputError(
            f"{VARIABLE} is {named!r}, which is no program; set it to the Python of an environment with vLLM"
        )
    if not named and find_spec("vllm") is None:
        raise MissingExtra(
            f"vLLM is not installed here: set {VARIABLE} to the Python of an environment that has it (docs/scale.md)"
        )
    return named or sys.executable


def vllm_version(python: str) -> str:
    """The version of vLLM in an environment."""
    asked = subprocess.run([python, "-c", ASK_VERSION], capture_output=True, text=True, check=False)
    if asked.returncode:
        raise MissingExtra(f"{python} ({VARIABLE}) has no vLLM: pip install vllm there")
    return asked.stdout.strip()


class Runner(Protocol):
    """vLLM with a model and chosen layers."""

    def run(self, sequences: list[list[int]]) -> Sequence[Tensor]: ...


@dataclass
class VllmStates:
    """Hidden states from vLLM, which starts with the first batch, and again for longer inputs or other layers."""

    settings: Mapping[str, Any]
    engine: str
    python: str
    depth: int
    state_bytes: int  # of one layer and token
    stack: ExitStack = field(default_factory=ExitStack)
    runner: Runner | None = None
    layers: tuple[int, ...] = ()
    length: int = 0

    def states(self, sequences: Sequence[Sequence[int]], layers: Sequence[int]) -> Sequence[Tensor]:
        needed = max(map(len, sequences)) + 1  # vLLM wants room for a next token, which is never computed
        if self.runner is None or tuple(layers) != self.layers or needed > self.length:
            self.start(tuple(layers), max(SHORTEST, self.length, 2 ** math.ceil(math.log2(needed))))
        assert self.runner is not None
        return self.runner.run([list(sequence) for sequence in sequences])

    def start(self, layers: tuple[int, ...], length: int) -> None:
        self.close()
        bytes_per_token = self.state_bytes * len(layers)
        announce(f"starting {self.engine}, which takes a minute or two")
        settings = {**self.settings, "layers": layers, "length": length, "bytes_per_token": bytes_per_token}
        # Not resolved: the Pythons of two virtual environments are often links to the same program.
        if Path(self.python).absolute() == Path(sys.executable).absolute():
            self.runner = runner_here(settings)
        else:
            announce(
                f"hidden states come in files of up to {format_bytes(bytes_per_token * BATCH_TOKENS)}, one at a time"
            )
            self.runner = self.stack.enter_context(runner_there(self.python, settings))
        self.layers, self.length = layers, length

    def close(self) -> None:
        self.runner = None
        self.stack.close()


def runner_here(settings: Mapping[str, Any]) -> Runner:
    """vLLM in this process: hidden states go from its cache to the readings, through no file."""
    sys.path.append(str(SCRIPTS))
    from layerwise_vllm_states import Runner as InVllm

    with tempfile.TemporaryDirectory() as folder, quiet_standard_error():
        return InVllm(**settings, folder=folder)  # type: ignore[no-any-return]


@contextmanager
def quiet_standard_error() -> Iterator[None]:
    """Inside, nothing is written to standard error, not by libraries in C++ either, unless --verbose was given."""
    if is_verbose():
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def runner_there(python: str, settings: Mapping[str, Any]) -> Iterator[Runner]:
    """vLLM in another environment, as a process that ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="layerwise-vllm-"))
    reading, writing = os.pipe()
    command = [python, str(SCRIPTS / "layerwise_vllm_states.py"), str(writing)]
    try:
        with tempfile.TemporaryFile("w+") as log, os.fdopen(reading) as answers:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writing], text=True
            )
            os.close(writing)
            runner = RunnerThere(process, answers, log, folder)
            try:
                runner.ask({**settings, "folder": str(folder)})
                yield runner
            finally:
                runner.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class RunnerThere:
    """Talks to that process."""

    process: "subprocess.Popen[str]"
    answers: Any
    log: Any
    folder: Path

    def run(self, sequences: list[list[int]]) -> Sequence[Tensor]:
        path = self.folder / self.ask(sequences)["file"]
        found = load(path.read_bytes())
        path.unlink()
        return [found[str(place)] for place in range(len(sequences))]

    def ask(self, request: Any) -> dict[str, Any]:
        """The answer to a request; raises if vLLM reports an error, or stopped."""
        assert self.process.stdin is not None
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            line = self.answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ModelError(f"vLLM stopped. Its last lines were:\n{last_lines(self.log)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ModelError(f"vLLM: {answer['error']}")
        return answer

    def stop(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def last_lines(log: Any, count: int = LAST_LINES) -> str:
    """The end of what vLLM wrote."""
    log.seek(0)
    return "\n".join(log.read().splitlines()[-count:])


@contextmanager
def open_vllm(spec: ModelSpec, options: Mapping[str, Any]) -> Iterator[ElsewhereNetwork]:
    """A network whose hidden states vLLM computes."""
    if spec.dtype not in DTYPES:
        raise InputError(f"vLLM does not compute in {spec.dtype}; use --dtype {', '.join(DTYPES)}")
    python = vllm_python()
    network = open_elsewhere(spec)
    names = getattr(network.module.config, "architectures", None) or ["a model without architectures in its config"]
    if not any(name.endswith(("ForCausalLM", "ForConditionalGeneration")) for name in names):
        raise ModelError(f"vLLM gives the hidden states of language models that generate text, not of {names[0]}")
    version = vllm_version(python)
    settings = {
        "model": spec.name, "revision": spec.revision, "dtype": spec.dtype, "batch_tokens": BATCH_TOKENS,
        "trust_remote_code": spec.trust_remote_code, "options": dict(options),
    }  # fmt: skip
    engine = f"vLLM {version}" + (f" with {json.dumps(dict(options), sort_keys=True)}" if options else "")
    source = VllmStates(settings, engine, python, network.depth, network.width * network.dtype.itemsize)
    network.source = source
    try:
        yield network
    finally:
        source.close()
