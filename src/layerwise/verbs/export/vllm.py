"""Are the vectors of an exported folder the same in vLLM? Run there, if LAYERWISE_VLLM names a Python that has it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerwise.core.progress import announce
from layerwise.models.elsewhere.vllm import SCRIPTS, VARIABLE, last_lines, vllm_python, vllm_version
from layerwise.verbs.export.certificate import ExpectedVectors

WAYS = {"python": "its Python interface", "server": "its HTTP server"}
TOLERANCE = 1e-4  # of the largest entry; another program's kernels sum in another order


@dataclass(frozen=True)
class VllmCheck:
    """How far vLLM's vectors are from the measured ones, relative to the largest entry, by each way to ask it."""

    version: str
    differences: Mapping[str, float]
    errors: Mapping[str, str]

    @property
    def is_exact(self) -> bool:
        return not self.errors and max(self.differences.values()) <= TOLERANCE


def check_in_vllm(folder: Path, expected: ExpectedVectors, max_length: int) -> VllmCheck:
    """Embeds the texts of the certificate in vLLM, in float32."""
    python = vllm_python()
    version = vllm_version(python)
    announce(f"comparing with vLLM {version} ({VARIABLE}), which takes two or three minutes")
    found = vectors_in_vllm(python, folder, list(expected.texts), max_length)
    differences, errors = {}, {}
    for way, answer in found.items():
        if "error" in answer:
            errors[way] = str(answer["error"])
            continue
        vectors = torch.tensor(answer["vectors"], dtype=torch.float64)
        if vectors.shape != expected.vectors.shape:
            errors[way] = f"vectors of shape {tuple(vectors.shape)}, not {tuple(expected.vectors.shape)}"
        else:
            differences[way] = float((vectors - expected.vectors.double()).abs().max()) / expected.largest
    return VllmCheck(version, differences, errors)


def vectors_in_vllm(python: str, folder: Path, texts: list[str], length: int) -> dict[str, dict[str, Any]]:
    """What each way answers: vectors, or an error."""
    reading, writing = os.pipe()
    answer = ""
    with tempfile.TemporaryFile("w+") as log, os.fdopen(reading) as answers:
        process = subprocess.Popen(
            [python, str(SCRIPTS / "layerwise_vllm_vectors.py"), str(writing)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writing], text=True, start_new_session=True,
        )  # fmt: skip
        os.close(writing)
        assert process.stdin is not None
        # When this end is closed, also because this process was killed, vLLM and all of its processes end.
        with suppress(BrokenPipeError), process.stdin as questions:
            print(
                json.dumps({"model": str(folder.absolute()), "length": length, "texts": texts}),
                file=questions,
                flush=True,
            )
            answer = answers.readline()
        process.wait()
        if not answer:
            return dict.fromkeys(WAYS, {"error": last_lines(log, 1)})
        found: dict[str, dict[str, Any]] = json.loads(answer)
        return found
