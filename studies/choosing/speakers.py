"""Do pairs of clips of one speaker choose the layer that labels of the speaker choose? Spoken digits in Whisper.

    python studies/choosing/speakers.py FSDD MODELS NAME [NAME ...] [--clips 144] [--dtype bfloat16]

FSDD holds train.parquet and test.parquet of the Free Spoken Digit Dataset. speakers.csv gets one row per model and
layer: the score of the pairs, the accuracy of the speaker by cross-validation on the same clips, and the accuracy on
the test clips of a classifier that was fitted on these. All pairs of one speaker belong together, so that no clip of
the same speaker is a wrong answer.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import layerwise
from layerwise.inputs.source import hash_id
from layerwise.verbs.pick.labels import class_probe
from layerwise.verbs.pick.probes import PARTNER

sys.path.insert(0, str(Path(__file__).parents[1] / "shrink"))
from kept import add_rows  # noqa: E402

TABLE = Path(__file__).parent / "speakers.csv"
LONGEST = 512  # frames, about ten seconds, as pick reads


def chosen_clips(path: Path, count: int) -> pd.DataFrame:
    """The same number of clips of each speaker, by hashed name."""
    clips = pd.read_parquet(path)
    clips = clips.assign(key=clips.file.map(hash_id)).sort_values("key")
    return clips.groupby("speaker", sort=True).head(count // clips.speaker.nunique())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "models"):
        parser.add_argument(name, type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--clips", type=int, default=144)
    parser.add_argument("--tested", type=int, default=300)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    clips = chosen_clips(args.data / "train.parquet", args.clips)
    test = chosen_clips(args.data / "test.parquet", args.tested)
    side = clips.groupby("speaker").cumcount() % 2
    first, second = clips[side == 0], clips[side == 1]
    pairs = [
        (one.audio, other.audio)
        for one in first.itertuples()
        for other in second[second.speaker == one.speaker].itertuples()
    ]
    for name in args.names:
        model = layerwise.ModelSpec(str(args.models / name), dtype=args.dtype)
        found = layerwise.pick(model, pairs=pairs, progress=True)
        print(found, flush=True)
        vectors = layerwise.embed(model, [*clips.audio, *test.audio], layers="all", pooling="mean", max_length=LONGEST)
        labels = class_probe([str(number) for number in range(len(clips))], np.array(clips.speaker), 0)
        rows = []
        for row in found.layers:
            is_last = row is found.layers[-1]
            both = np.stack(vectors["last" if is_last else f"layer_{row.layer}"].tolist()).astype(np.float64)
            model_ = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(
                both[: len(clips)], clips.speaker
            )
            rows.append({
                "model": name, "clips": len(clips), "layer": row.layer, "norm": "shipped" if is_last else "raw",
                "pairs": round(row.scores[PARTNER], 2),
                "labels": round(100 * labels.score(both[: len(clips)]).mean(), 2),
                "score": round(100 * (model_.predict(both[len(clips) :]) == test.speaker).mean(), 2),
                "chosen_by_pairs": row.layer == found.recipe.layer and is_last == found.keep_last,
            })  # fmt: skip
        table = pd.DataFrame(rows)
        table["chosen_by_labels"] = table.index == table.labels.idxmax()
        print(table.to_string(index=False), flush=True)
        add_rows(TABLE, table, ["model", "clips", "layer", "norm"])


if __name__ == "__main__":
    main()
