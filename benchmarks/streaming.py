"""What does a scan of a model take that is larger than memory?

    python benchmarks/streaming.py MODEL --way WAY [--limit GB] [--texts N] [--tokens N] [--batch-tokens N]
    python benchmarks/streaming.py random-8b FOLDER

The second form writes a random model in the shape of Llama 3.1 8B (16 GB; delete it afterwards). The first one scans N
texts of the bundled ones, each cut at the same number of tokens, with the default metrics of all layers, on one thread.
Ways: whole (all weights in memory), stream (--stream), offload (accelerate's disk offload, as --device-map would do it
on a machine with less memory). With --limit the process may not have more writable memory of its own (RLIMIT_DATA).
streaming.csv gets a row: peak of anonymous memory, seconds, gigabytes of weights that were asked for from disk.
"""

import argparse
import json
import re
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "streaming.csv"
SHAPE = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def write_random(folder: Path) -> None:
    """One weight file per block, from one seed; the words of its tokenizer are those of the bundled texts."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    from layerwise.inputs.text import demo_texts

    folder.mkdir(parents=True)
    config = AutoConfig.for_model("llama", **SHAPE)
    config.save_pretrained(folder)
    with torch.device("meta"):
        names = {name: weight.shape for name, weight in AutoModel.from_config(config).named_parameters()}
    parts: dict[str, list[str]] = {}
    for name in names:
        number = re.search(r"layers\.(\d+)\.", name)
        parts.setdefault(f"model-{int(number[1]) + 1 if number else 0:05d}.safetensors", []).append(name)
    generator, index = torch.Generator().manual_seed(0), {}
    for file, held in parts.items():
        weights = {
            name: torch.empty(names[name], dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
            if len(names[name]) > 1
            else torch.ones(names[name], dtype=torch.bfloat16)
            for name in held
        }
        save_file(weights, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(held, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    splitter = pre_tokenizers.Whitespace()
    words = sorted({word for text in demo_texts() for word, _ in splitter.pre_tokenize_str(text)})
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<pad>", "<s>", "</s>", *words])}, "<pad>"))
    raw.pre_tokenizer = splitter
    PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=8192
    ).save_pretrained(folder)


class Peak:
    """The largest anonymous memory of this process, looked at every tenth of a second."""

    def __init__(self) -> None:
        self.largest = 0
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        while True:
            status = Path("/proc/self/status").read_text()
            self.largest = max(self.largest, int(re.search(r"RssAnon:\s+(\d+)", status)[1]) * 1024)  # type: ignore[index]
            time.sleep(0.1)


def weights_asked_for() -> Callable[[], int]:
    """Counts the bytes of weights that streaming maps or accelerate loads; each is used once after that."""
    from accelerate.utils import OffloadedWeightsLoader

    from layerwise.models.stored_weights import StoredWeights

    total = 0
    read, load = StoredWeights.read, OffloadedWeightsLoader.__getitem__

    def counted_read(self: Any, names: Any, *rest: Any) -> Any:
        nonlocal total
        found = read(self, names, *rest)
        total += sum(self.places[self.stored_name(name)].array().nbytes for name in found)
        return found

    def counted_load(self: Any, key: str) -> Any:
        nonlocal total
        weight = load(self, key)
        total += weight.nbytes
        return weight

    StoredWeights.read, OffloadedWeightsLoader.__getitem__ = counted_read, counted_load  # type: ignore[method-assign]
    return lambda: total


def put_blocks_on_disk(model: str) -> None:
    """From here on, device_map="auto" does what it does on a machine that has no memory for any block."""
    import torch
    from transformers import AutoConfig, AutoModel

    with torch.device("meta"):
        names = [name for name, _ in AutoModel.from_config(AutoConfig.from_pretrained(model)).named_children()]
    places = {name: "disk" if name == "layers" else "cpu" for name in names}
    load, scratch = AutoModel.from_pretrained, tempfile.TemporaryDirectory()
    AutoModel.from_pretrained = lambda *given, **options: load(
        *given, **(options | {"device_map": places, "offload_folder": scratch.name})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--way", choices=["whole", "stream", "offload"], default="stream")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--dtype", default="bfloat16")
    args = parser.parse_args()
    if args.model == "random-8b":
        write_random(args.folder)
        return
    if args.limit:
        resource.setrlimit(resource.RLIMIT_DATA, (int(args.limit * 1e9),) * 2)
    peak = Peak()
    import pandas as pd
    import torch

    import layerwise
    from layerwise.inputs.text import demo_texts
    from layerwise.models.spec import ModelSpec
    from layerwise.verbs.scan.api import plan, timed_plan
    from layerwise.verbs.scan.options import ScanOptions

    torch.set_num_threads(1)
    asked_for, texts = weights_asked_for(), demo_texts()
    texts = [" ".join(texts[i : i + 8]) for i in range(args.texts)]  # long enough to be cut
    options = {"max_length": args.tokens, "batch_tokens": args.batch_tokens}
    device_map = "auto" if args.way == "offload" else None
    spec = ModelSpec(args.model, dtype=args.dtype, stream=args.way == "stream", device_map=device_map)
    row: dict[str, object] = {"model": Path(args.model).name, "dtype": args.dtype, "texts": args.texts}
    row |= {"tokens": args.tokens, "batch_tokens": args.batch_tokens, "way": args.way, "limit_gb": args.limit}
    if args.way == "offload":
        put_blocks_on_disk(args.model)
    if args.way == "stream":
        forecast = plan(spec, texts, **options)
        row["forecast_gb"] = round(forecast.peak_bytes / 1e9, 2)
        row["forecast_seconds"] = round(timed_plan(ScanOptions(spec, texts, threads=1, **options)).total)
    before, began = asked_for(), time.monotonic()
    table = layerwise.scan(spec, texts, threads=1, progress=True, **options)
    row |= {
        "seconds": round(time.monotonic() - began), "anonymous_gb": round(peak.largest / 1e9, 2),
        "read_gb": round((asked_for() - before) / 1e9, 2), "sum_of_values": sum(one.value for one in table),
    }  # fmt: skip
    rows = pd.DataFrame([row])
    if TABLE.is_file():
        rows = pd.concat([pd.read_csv(TABLE), rows])
    rows.to_csv(TABLE, index=False)
    print(row)


if __name__ == "__main__":
    main()
