"""shrink without a method: the cheap ways to make a model smaller are made, measured and compared.

Each is what its own command makes, from the same texts and the same vectors of the original, in a folder of its own.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from layerwise.core.columns import fill_words, in_columns
from layerwise.core.errors import ExportError, InputError, MissingExtra, ModelError
from layerwise.core.files import DiskFolder
from layerwise.core.hub import offline
from layerwise.core.outputs import require_path
from layerwise.core.progress import announce, announcements
from layerwise.inputs.timed_texts import room_for_text, text_of_length
from layerwise.maps.fitted import texts_fingerprint
from layerwise.models.modules import as_sentence_transformer
from layerwise.models.network import Network
from layerwise.models.shipped import similarity_of
from layerwise.passes.timing import RelativeTime, clock_of, measured, relative_times
from layerwise.runs.exported import RECORD_FILE
from layerwise.runs.folder import write_record
from layerwise.runs.identity import ModelRef
from layerwise.runs.leases import sole_writer
from layerwise.runs.ownership import claim, require_usable
from layerwise.runs.records import WAYS, environment
from layerwise.verbs.export.api import export
from layerwise.verbs.export.backends.onnx import INT8_FILE, load_graph
from layerwise.verbs.export.summary import mean_words
from layerwise.verbs.shrink.index_advice import check_compatibility, grouped_agreement
from layerwise.verbs.shrink.options import ShrinkOptions
from layerwise.verbs.shrink.static_models import export_static
from layerwise.verbs.shrink.student import (
    Vectors,
    blocks_read,
    open_whole,
    portable_backend,
    search_prompts,
    teacher_prompts,
)
from layerwise.verbs.shrink.texts import GivenTexts, PromptedText, TextSplit, open_given, split_texts
from layerwise.verbs.shrink.work import delete_work, stored_vectors, work_folder

Shrink = Callable[..., Any]
Encode = Callable[[Sequence[str], int], object]  # texts and how many at a time
WHOLE, STATIC, INT8 = "whole", "static", "int8"
LENGTHS = {"short": 8, "long": 256}  # tokens of the texts to time on
AT_ONCE = (1, 32)
# Half of the blocks (studies/shrink/losses.csv and search.csv).
TRAINING_ADDS = (
    "four models made so lost 0.9 to 2.1 points in the mean of 22 tasks, 5.0 to 6.2 on the worst, "
    "and at most 0.025 of MRR in the old index"
)
LEAST_GAIN = 0.9  # of the whole model's time; a way that is hardly faster is not worth a change


@dataclass(frozen=True)
class Way:
    """A model that may take the place of the original, and what was measured of it.

    Attributes:
        name: its folder.
        words: what it is.
        size: the bytes of its weights.
        times: encoding time as a share of the original's, by length of texts and how many at once.
        agreement: how close its vectors are to the original's, by kind and length of texts.
        compatibility: what a search in the original's index finds with it; None where that was not tested.
    """

    name: str
    words: str
    size: int
    times: Mapping[str, RelativeTime]
    agreement: Mapping[str, Any] | None = None
    compatibility: Mapping[str, Any] | None = None

    @property
    def time(self) -> float:
        """The mean of the times, as ratios."""
        return math.exp(sum(math.log(found.ratio) for found in self.times.values()) / len(self.times))

    @property
    def keeps_index(self) -> bool:
        return self.compatibility is not None and self.compatibility["advice"] == "keep"

    @property
    def worst_group(self) -> Mapping[str, Any] | None:
        """The kind of texts on which it agrees least with the original."""
        groups = self.agreement["groups"] if self.agreement else []
        return min(groups, key=lambda group: group["mean_cosine"]) if groups else None

    def to_record(self) -> dict[str, Any]:
        """The way as a JSON object."""
        return {
            "name": self.name, "words": self.words, "bytes": self.size,
            "times": {key: found.to_record(None) for key, found in self.times.items()},
            "agreement": self.agreement, "compatibility": self.compatibility,
        }  # fmt: skip


@dataclass(frozen=True)
class CheaperWays:
    """The ways to make a model smaller, and which of them to take. `print` shows them.

    Attributes:
        model: the original.
        texts: name, fingerprint and number of the texts that all of them were made of.
        ways: the original first, then those that were made.
        not_made: why the others were not, by name.
        recommended: the folder to use; "" for the original.
        answer: sentences about the choice.
    """

    model: ModelRef
    texts: Mapping[str, Any]
    ways: tuple[Way, ...]
    not_made: Mapping[str, str]
    recommended: str
    answer: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "model": self.model.to_record(), "data": dict(self.texts), "ways": [way.to_record() for way in self.ways],
            "not_made": dict(self.not_made), "recommended": self.recommended, "answer": list(self.answer),
            "environment": environment(),
        }  # fmt: skip

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def __repr__(self) -> str:
        lines = [f"{self.model.name}, {self.texts['count']:,} texts ({self.texts['name']})", ""]
        lines += in_columns(list(quality_rows(self.ways)), right={1})
        lines += ["", "encoding time as a share of the whole model's; in brackets the middle half of the repeats"]
        lines += in_columns(list(time_rows(self.ways)))
        lines += ["", *(fill_words(f"not made: {name}: {why}", indent="  ") for name, why in self.not_made.items())]
        return "\n".join([*lines, *(fill_words(line, indent="  ") for line in self.answer)])


def quality_rows(ways: Sequence[Way]) -> list[tuple[str, ...]]:
    """What is kept: size, the lowest agreement, and the search in the original's index."""
    rows: list[tuple[str, ...]] = [("", "MB", "lowest cosine", "MRR lost in your index", "if re-embedded")]
    for way in ways:
        cases = (way.compatibility or {}).get("cases") or {}
        lost = [mean_words(cases[case]["loss"]) for case in ("new_old", "new_new")] if cases else ["not known"] * 2
        worst = way.worst_group
        cosine = f"{worst['mean_cosine']:.2f} {short_group(worst['name'])}" if worst else ""
        rows.append((way.words, f"{way.size / 1e6:.0f}", *((cosine, *lost) if way.name != WHOLE else ("", "", ""))))
    return rows


def short_group(name: str) -> str:
    """`all`, `up to 8 words`: the name of a group without what all of them share."""
    return name.removeprefix("texts of ").partition(" (")[0]


def time_rows(ways: Sequence[Way]) -> list[tuple[str, ...]]:
    rows = [("", *(f"{at_once} {length}" for length in LENGTHS for at_once in AT_ONCE))]
    for way in ways[1:]:
        rows.append((way.words, *(f"{t.ratio:.2f} ({t.low:.2f}-{t.high:.2f})" for t in way.times.values())))
    return rows


def compare_ways(options: ShrinkOptions, shrink: Shrink) -> CheaperWays:
    """Makes the ways that are not there yet, measures all of them, and writes ways.json beside their folders."""
    out = require_path(options.out)
    work = work_folder(out, options.work)
    require_usable(DiskFolder(out), "ways")
    require_usable(DiskFolder(work), "shrink")
    given = open_given(options.data, options.queries, options.documents, options.pairs)
    if given is None:
        raise InputError("shrink needs texts: pass --data, --queries, --documents or --pairs (data=, queries=, ...)")
    with announcements(options.progress):
        network = open_whole(options.model)
        portable_backend(network)
        split = split_texts(given, teacher_prompts(network), options.seed, search_prompts(network))
        made_of = texts_fingerprint([item.prompt + item.text for item in (*split.fit, *split.held_out, *split.check)])
        claim(DiskFolder(out), "ways", model=network.fingerprint(), texts=made_of, seed=str(options.seed))
        claim(DiskFolder(work), "shrink")
        with sole_writer(DiskFolder(out)):
            makers, not_made = makers_of(options, shrink, network, given, split, out, work), {}
            for place, (name, make) in enumerate(makers.items(), start=1):
                if (out / name).exists():
                    continue
                announce(f"way {place} of {len(makers)}: {name}")
                try:
                    make()
                except (InputError, ModelError, ExportError, MissingExtra) as error:
                    not_made[name] = str(error)
            ways = measured_ways(network, [name for name in makers if name not in not_made], out, work, split)
            recommended, answer = choose(ways)
            found = CheaperWays(
                network.identity(), {"name": given.name, "fingerprint": made_of, "count": len(split.fit)}, ways,
                not_made, recommended, (*answer, *words_on_training(ways, blocks_read(network) // 2)),
            )  # fmt: skip
            write_record(out, WAYS, found.to_dict())
            if options.work is None:
                delete_work(work)
    return found


def makers_of(
    options: ShrinkOptions, shrink: Shrink, network: Network, given: GivenTexts, split: TextSplit, out: Path, work: Path
) -> dict[str, Callable[[], object]]:
    """What makes each way, by the name of its folder."""
    settings: dict[str, Any] = {
        "queries": options.queries, "documents": options.documents, "pairs": options.pairs, "seed": options.seed,
        "progress": options.progress, "method": "linear", "work": work,
    }  # fmt: skip
    of_static = replace(options, method="static", out=out / STATIC, work=None, compatible=True)
    stored, texts = partial(stored_vectors, network, work), [item.text for item in split.check]
    return {
        **{f"blocks-{count}": partial(shrink, network, options.data, out / f"blocks-{count}", blocks=count, **settings)
           for count in block_counts(blocks_read(network))},
        STATIC: partial(export_static, network, given, out / STATIC, of_static, stored),
        INT8: partial(export, network, "last", out / INT8, format="onnx", texts=texts),
    }  # fmt: skip


def words_on_training(ways: Sequence[Way], half: int) -> list[str]:
    """What was not tried, because it takes longer."""
    words = [way.words for way in ways if way.name == f"blocks-{half}"]
    train = f"--method distill --blocks {half} --minutes 30"
    return [f"not tried: training {words[0]} ({train}); {TRAINING_ADDS}"] if words else []


def block_counts(depth: int) -> list[int]:
    """Three quarters of the blocks, and half of them."""
    return [count for count in dict.fromkeys((3 * depth // 4, depth // 2)) if 0 < count < depth]


def measured_ways(
    network: Network, names: Sequence[str], out: Path, work: Path, split: TextSplit
) -> tuple[Way, ...]:  # fmt: skip
    """The original and the ways, timed in turn."""
    encoders = {WHOLE: encoder_of(as_sentence_transformer(network, network.default_length))}
    ways = [Way(WHOLE, "the whole model", network.weight_bytes, {})]
    for name in names:
        if name == INT8:
            graph = load_graph(out / name, INT8_FILE)
            encoders[name] = graph.encode
            ways.append(int8_way(network, graph, out / name, work, split))
        else:
            encoders[name] = encoder_of(load_way(out / name, network.device))
            record = json.loads((out / name / RECORD_FILE).read_text(encoding="utf-8"))
            made = record["shrunk"] or record["static"]
            size = sum(path.stat().st_size for path in (out / name).rglob("*.safetensors"))
            words = (
                "static" if name == STATIC else f"{record['blocks']['after']} of {record['blocks']['before']} blocks"
            )
            ways.append(Way(name, words, size, {}, made["agreement"], made["compatibility"]))
    announce(f"timing {len(ways)} models")
    texts = [item.text for item in split.check]
    times = {way.name: dict[str, RelativeTime]() for way in ways}
    for length, tokens in LENGTHS.items():
        room = room_for_text(network.tokenizer, "", network.default_length)
        text = text_of_length(network.tokenizer, texts, min(tokens, max(1, room)))
        for at_once in AT_ONCE:
            runs = [partial(encode, [text] * at_once, at_once) for encode in encoders.values()]
            clock = clock_of(network.device)
            found = relative_times([measured(way.name, run, clock) for way, run in zip(ways, runs, strict=True)], WHOLE)
            for name, time in found.items():
                times[name][f"{at_once} {length}"] = time
    return tuple(replace(way, times=times[way.name]) for way in ways)


def load_way(folder: Path, device: torch.device) -> Any:
    from sentence_transformers import SentenceTransformer

    with offline():
        return SentenceTransformer(str(folder), device=str(device))


def encoder_of(model: Any) -> Encode:
    return lambda texts, at_once: model.encode(list(texts), batch_size=at_once, show_progress_bar=False)


def int8_way(network: Network, graph: Any, folder: Path, work: Path, split: TextSplit) -> Way:
    """The original with weights in 8 bits, in ONNX Runtime; compared like the others."""
    graph.tokenizer.prompt = ""  # the texts have their own

    def found(texts: Sequence[PromptedText]) -> torch.Tensor:
        rows: torch.Tensor = graph.encode([item.prompt + item.text for item in texts])
        return rows

    announce("comparing vectors of the int8 graph")
    vectors: Vectors = partial(stored_vectors, network, work)
    of_search = search_prompts(network)
    agreement = grouped_agreement(vectors, found, split, of_search[1] if of_search else teacher_prompts(network)[0])
    search = check_compatibility(vectors, found, split, similarity_of(network.shipped), of_search)
    size = (folder / INT8_FILE).stat().st_size
    return Way(INT8, "int8 in ONNX Runtime", size, {}, agreement.to_record(), search.to_record())


def choose(ways: Sequence[Way]) -> tuple[str, list[str]]:
    """The fastest way that keeps the index, and why; "" where the model should stay as it is."""
    others = ways[1:]
    known = [way for way in others if way.compatibility and way.compatibility["cases"]]
    if not known:
        why = next((way.compatibility["answer"] for way in others if way.compatibility), "no way could be compared")
        return "", [f"recommended: keep your model, until a search can be tested ({why})"]
    faithful = [way for way in known if way.keeps_index and way.time < LEAST_GAIN]
    if not faithful:
        best = min(known, key=lambda way: way.compatibility["cases"]["new_old"]["loss"]["mean"])  # type: ignore[index]
        assert best.compatibility is not None
        lost = mean_words(best.compatibility["cases"]["new_old"]["loss"])
        return "", [
            f"recommended: keep your model. Of the ways that are faster, none keeps your index; {best.words} loses "
            f"least there ({lost} of MRR)"
        ]
    best = min(faithful, key=lambda way: way.time)
    assert best.compatibility is not None
    return best.name, [
        f"recommended: {best.words}, in {best.time:.2f} of the time",
        f"your index: {best.compatibility['answer']}",
    ]
