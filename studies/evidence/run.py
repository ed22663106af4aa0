"""Everything from a folder of models: vectors, scores and verdicts, in the order in which a claim can be judged first.

    python studies/evidence/run.py MODELS SHARED_DATA WIKITEXT_TRAIN VECTORS [--more MODELS] [--models NAME ...]
        [--out FOLDER]

MODELS is a folder of models; --more names another. Hours on two cores: about 430,000 tokens per model. What is there
already is not made again, so a call that was stopped can be repeated. Tables go beside this file, or to FOLDER, which
must exist; `layerwise lab reproduce findings --scale released --data FOLDER` judges them too.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# How each model is read: two cores cannot read more than 400 million parameters in float32.
CALLS = (
    ("smollm2-135m", "--dtype", "bfloat16"), ("qwen2.5-coder-0.5b", "--dtype", "bfloat16"), ("opus-mt-en-fr",),
    ("opus-mt-fr-en",), ("tinyllama-1.1b-chat", "--dtype", "bfloat16"), ("qwen2.5-coder-1.5b", "--dtype", "bfloat16"),
    ("smollm2-135m", "--dtype", "bfloat16", "--round-bits", "4"),
    ("smollm2-135m", "--dtype", "bfloat16", "--round-bits", "2"),
    ("opus-mt-fr-en", "--part", "decoder"), ("gemma3-270m",), ("smollm2-135m",),
)  # fmt: skip


def folder_of(name: str, *options: str) -> str:
    """The name that encode.py gives to the folder of vectors."""
    given = dict(zip(options[::2], options[1::2], strict=True))
    parts = [name, given.get("--part"), f"{given['--round-bits']}bit" if "--round-bits" in given else None]
    return "-".join(part for part in (*parts, given.get("--dtype")) if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "data", "wikitext", "vectors"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--more", type=Path, action="append", default=[], metavar="MODELS")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--out", type=Path, default=HERE, metavar="FOLDER")
    args = parser.parse_args()
    for name, *options in CALLS:
        where = next((one / name for one in (args.folder, *args.more) if (one / name).is_dir()), None)
        if where is None or (args.models and name not in args.models):
            print(f"{name}: {'left out' if where else 'not in these folders'}", flush=True)
            continue
        print(" ".join([name, *options]), flush=True)
        call("encode.py", where, args.data, args.wikitext, args.vectors, *options)
        call("score.py", args.data, args.vectors, folder_of(name, *options), "--out", args.out)
        call("judge.py", args.out)


def call(script: str, *arguments: object) -> None:
    subprocess.run([sys.executable, str(HERE / script), *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
