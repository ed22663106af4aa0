"""Are printed encoding times right? Three exports, against CPU times measured by plain sentence-transformers.

    python scripts/check_times.py MODELS OUT

MODELS holds all-minilm-l6-v2, gte-small and smollm2-135m. The exports are made in OUT unless they are there. Each is
then timed without layerwise in three processes of their own, and the median counts: with the state of its memory
allocator, a process may differ from the next by a tenth. Run it on an idle machine. It fails if a time differs by more
than 10 %, or if more than one of the nine is marked as unsteady.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TEMPLATE = 'This sentence : "{text}" means in one word:"'
TOLERANCE, MOST_MARKED = 0.1, 1
PROCESSES, ROUNDS, CALL_SECONDS = 3, 7, 0.2
BATCHES = {3: 32, 20: 32, 270: 4}  # texts by their number of tokens


def make_exports(models: Path, out: Path) -> dict[str, Path]:
    """Half of MiniLM with a linear map, a layer of gte-small, and a layer of SmolLM2 in a template."""
    import layerwise
    from layerwise.inputs.text import demo_sentences

    smol = layerwise.Recipe(28, pooling="last", transform="remove_top:8+mean", template=TEMPLATE)
    texts, folders = demo_sentences(), {}
    for name in ("all-minilm-l6-v2", "gte-small", "smollm2-135m"):
        folders[name] = out / name
        if folders[name].exists():
            continue
        if name == "all-minilm-l6-v2":
            layerwise.shrink(str(models / name), texts, folders[name], choose="even", compatible=False)
        elif name == "gte-small":
            layerwise.export(str(models / name), 8, folders[name])
        else:
            layerwise.export(str(models / name), smol, folders[name], fit=texts)
    return folders


def measure(whole: str, exported: str) -> dict[int, float]:
    """The median ratio of CPU times for each length; the whole model without a chat template, with mean pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer

    if (Path(whole) / "modules.json").is_file():
        one = SentenceTransformer(whole, device="cpu")
    else:
        tokenizer = AutoTokenizer.from_pretrained(whole)
        tokenizer.chat_template, tokenizer.pad_token = None, tokenizer.pad_token or tokenizer.eos_token
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            first = Transformer(whole, tokenizer_name_or_path=folder)
        one = SentenceTransformer(modules=[first, Pooling(first.get_embedding_dimension(), "mean")], device="cpu")
    two = SentenceTransformer(exported, device="cpu")
    found = {}
    for tokens, count in BATCHES.items():
        texts = texts_of(one.tokenizer, tokens, count)
        seconds(one, texts), seconds(two, texts)
        rounds = [seconds(two, texts) / seconds(one, texts) for _ in range(ROUNDS)]
        found[tokens] = statistics.median(rounds)
    return found


def texts_of(tokenizer: Any, tokens: int, count: int) -> list[str]:
    """Texts of so many tokens, from the beginning of a book that everybody knows."""
    book = (
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
        "it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the season of "
        "darkness, it was the spring of hope, it was the winter of despair, "
    )
    ids = tokenizer(book, add_special_tokens=False)["input_ids"] * (2 + tokens // 50)
    texts = (tokenizer.decode(ids[start : start + tokens]).strip() for start in range(len(ids) - tokens))
    exact = [text for text in texts if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == tokens]
    return (exact * count)[:count]


def seconds(model: Any, texts: list[str]) -> float:
    """The CPU time of encoding the texts, over calls that together take a while."""
    began, calls = time.process_time(), 0
    while time.process_time() - began < CALL_SECONDS:
        model.encode(texts, batch_size=32, show_progress_bar=False)
        calls += 1
    return (time.process_time() - began) / calls


def main() -> int:
    models, out = map(Path, sys.argv[1:3])
    wrong = marked = 0
    print("model              tokens  printed  outside  difference")
    for name, folder in make_exports(models, out).items():
        command = [sys.executable, __file__, "--measure", str(models / name), str(folder)]
        found = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(PROCESSES)
        ]
        outside = {tokens: statistics.median(one[tokens] for one in found) for tokens in found[0]}
        times = json.loads((folder / "layerwise.json").read_text(encoding="utf-8"))["encoding_times"]
        for printed, (tokens, ratio) in zip(times, outside.items(), strict=True):
            difference = printed["ratio"] / ratio - 1
            wrong += abs(difference) > TOLERANCE
            marked += printed["unsteady"]
            mark = "  unsteady" if printed["unsteady"] else ""
            print(f"{name:17}  {tokens:>6}  {printed['ratio']:7.3f}  {ratio:7.3f}  {100 * difference:+8.1f} %{mark}")
    print(f"{wrong} of 9 differ by more than {TOLERANCE:.0%}; {marked} of 9 are marked as unsteady")
    return int(wrong > 0 or marked > MOST_MARKED)


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps(measure(*sys.argv[2:4])))
    else:
        sys.exit(main())
