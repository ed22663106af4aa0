"""Runs a model in vLLM and hands out the hidden states of its blocks.

Imports nothing of layerwise, since vLLM often lives in an environment of its own. As a program, it reads requests from
standard input and answers on the file descriptor that it is given, one JSON object per line each; the hidden states of
a request are in one file, which the reader deletes.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

CONNECTOR = "layerwise_vllm_connector"
EXTRA_STEPS = 100  # vLLM hands states over one step after the request is finished; several processes take longer
GIB = 2**30


class Runner:
    """A model in vLLM, whose layers `layers` are kept."""

    def __init__(
        self, *, model: str, revision: str | None, dtype: str, layers: list[int], length: int, batch_tokens: int,
        bytes_per_token: int, folder: str, trust_remote_code: bool, options: dict[str, Any],
    ) -> None:  # fmt: skip
        processes = options.get("tensor_parallel_size", 1) * options.get("pipeline_parallel_size", 1)
        self.folder = folder if processes > 1 else ""  # "": vLLM runs in this process
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        here = str(Path(__file__).parent)  # for processes that vLLM starts
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
        if here not in sys.path:
            sys.path.append(here)
        tokens = max(length, batch_tokens)
        for name, value in (
            ("VLLM_NO_USAGE_STATS", "1"),
            ("VLLM_LOGGING_LEVEL", "ERROR"),
            # On a CPU; room for the hidden states of a batch, which lie in the cache, and for its keys and values.
            ("VLLM_CPU_KVCACHE_SPACE", str(-(-3 * tokens * bytes_per_token // GIB) + 1)),
        ):
            os.environ.setdefault(name, value)
        from vllm import LLM, SamplingParams
        from vllm.config import KVTransferConfig

        connector = KVTransferConfig(
            kv_connector="LayerwiseConnector", kv_role="kv_producer", kv_connector_module_path=CONNECTOR,
            kv_connector_extra_config={"folder": self.folder},
        )  # fmt: skip
        settings: dict[str, Any] = {
            "model": model, "revision": revision, "dtype": dtype, "max_model_len": length, "load_format": "safetensors",
            "trust_remote_code": trust_remote_code, "skip_tokenizer_init": True, "enforce_eager": True, "seed": 0,
            "max_num_batched_tokens": tokens, "enable_prefix_caching": False, "enable_chunked_prefill": False,
            "speculative_config": {
                "method": "extract_hidden_states", "num_speculative_tokens": 1,
                "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layers}},
            },
            "kv_transfer_config": connector,
        }  # fmt: skip
        self.llm = LLM(**settings | options)
        self.sampling = SamplingParams(max_tokens=1, detokenize=False)

    def run(self, sequences: list[list[int]]) -> list[Any]:
        """The hidden states (T, K, D) of each sequence."""
        prompts = [{"prompt_token_ids": sequence} for sequence in sequences]
        outputs = self.llm.generate(prompts, self.sampling, use_tqdm=False)
        requests = [Path(output.kv_transfer_params["hidden_states_path"]).stem for output in outputs]
        for step in range(EXTRA_STEPS):
            if all(map(self.is_there, requests)):
                break
            time.sleep(0.01 * (step > 3))
            self.llm.llm_engine.step()
        found = [self.take(request) for request in requests]
        for sequence, one in zip(sequences, found, strict=True):
            if one["token_ids"].tolist() != sequence or len(one["hidden_states"]) != len(sequence):
                raise RuntimeError(f"vLLM handed over {len(one['hidden_states'])} of {len(sequence)} tokens")
        return [one["hidden_states"] for one in found]

    def is_there(self, request: str) -> bool:
        from layerwise_vllm_connector import HANDED_OVER

        return Path(self.folder, f"{request}.safetensors").exists() if self.folder else request in HANDED_OVER

    def take(self, request: str) -> Any:
        from layerwise_vllm_connector import HANDED_OVER
        from safetensors.torch import load

        if not self.is_there(request):
            raise RuntimeError("vLLM finished a request without its hidden states")
        if not self.folder:
            return HANDED_OVER.pop(request)
        path = Path(self.folder, f"{request}.safetensors")
        found = load(path.read_bytes())
        path.unlink()
        return found


def main(descriptor: int) -> None:
    from safetensors.torch import save_file

    answers = os.fdopen(descriptor, "w", buffering=1)
    settings = json.loads(sys.stdin.readline())
    runner = Runner(**settings)
    print(json.dumps({"ready": True}), file=answers)
    path = Path(settings["folder"], "batch.safetensors")
    for line in sys.stdin:
        try:
            found = runner.run(json.loads(line))
            save_file({str(i): states for i, states in enumerate(found)}, path)
            answer = {"file": path.name}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    path.unlink(missing_ok=True)  # nobody asks any more; the folder goes where the reader could not delete it
    for rest in Path(settings["folder"]).glob("*.safetensors"):
        rest.unlink()
    Path(settings["folder"]).rmdir()


if __name__ == "__main__":
    main(int(sys.argv[1]))
