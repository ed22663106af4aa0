"""Arguments: every option of every verb, drawn from valid, edge and absurd values; the parser lists them.

`arguments` draws each option apart. `pairs` prefers pairs of values that no case before had, and mostly sound values,
so that more commands get beyond the check of their options.
"""

import argparse
import random
from collections.abc import Iterator
from functools import cache

from abuse import forked, oracles
from abuse.desk import GOOD, Case, Workshop, verb_of
from layerwise.cli.parser import build_parser, parser_of
from layerwise.core.display import printable
from layerwise.verbs import commands

EDGES = ["0", "1", "-1", "2", "3", "7", "-0", "1e3", "1.5", "0.0", "nan", "inf", "-inf", "1e400", "0x10", "٣"]
HUGE = ["999999999", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 40]
WORDS = [
    "", " ", "\t", ",", ",,", "a,,b", "all,all", "last", "last,last", "-", "--", "None", "null", "true", "%", "50%",
    "150%", "-5%", "nan%", "../up", "/etc/passwd", "/nonexistent/deep/er", "~", "*", "{text}", "{text}{text}", "{0}",
    "{",
    "a\x1b[2Jb", "a\nb", "é" * 300, "x" * 5000, "\u202eabc", "\ud83d", "raw", "Raw", "mean,max,first,last", "mean,Mean",
    "curvature", "curvatur", "fast", "min:curvature", "max:nothing", "depth:50%", "depth:inf%", "sketch:0", "sketch:-1",
    "sketch:99999999999", "exact", "whiten", "remove_top:3", "remove_top:999", "remove_top:-1", "center+mean",
    "whiten@4",
    "whiten@0", "texts.txt", "classes.csv", "pairs.csv", "model", "run", "scores", "mine", "tasks", "small", "deep",
    "run:auto", "run:1", "small:auto", "cuda", "cuda:99", "meta", "mps", "auto", "text", "class", "score", "no_such",
    oracles.URL, "s3://", "file:///etc", "http://127.0.0.1:9/x", "hf://x", "0,1", "1,0", "0,99", "-1,2", "1-2",
    "0,50%,last",
]  # fmt: skip
# Options whose value is where something is written: names of new and of existing places.
PLACES = ["new", "deep/new", "new/deep/er", "mine", "run", "scores", "texts.txt", "texts.txt/x", ".", "", " ", "model"]
PLACES += ["x" * 300, "small", "a\x1bb", "new ", "link.txt", "/proc/x", "/dev/null/x", "tasks", oracles.URL]
OUTPUT_OPTIONS = {"out", "html", "save", "work", "export"}
NOT_DRAWN = {"help", "debug", "verbose", "engine", "address"}  # Ray takes seconds to start; the kills cover it
VALID: dict[str, list[str]] = {
    "layers": ["0", "1,2", "50%", "last", "all"], "metrics": ["curvature", "fast", "prompt_entropy,mean_norm"],
    "limit": ["1", "5", "100"], "max_length": ["2", "8", "64"], "batch_tokens": ["8", "64"], "shard_size": ["1", "3"],
    "rows": ["raw", "centered_unit", "raw,unit"], "tokens": ["all", "no_first"], "pooling": ["mean", "last", "max"],
    "norm": ["raw", "normed"], "sample": ["3", "50"], "min_tokens": ["3"], "seed": ["0", "5"], "dtype": ["float64"],
    "levels": ["0", "0,1", "0.5"], "epochs": ["1"], "steps": ["1"], "blocks": ["1", "2"], "threads": ["1"],
    "workers": ["0"], "rule": ["last", "depth:50%"], "transform": ["center", "whiten"], "fit": ["texts.txt", "run"],
    "data": ["texts.txt", "many.txt", "classes.csv", "demo"], "state": ["exact", "float32", "sketch:4"],
    "column": ["text"], "recipe": ["small", "run"], "count": ["1", "3"], "strength": ["0.5"], "repeats": ["1"],
}  # fmt: skip
COSTLY = {"shrink": 0.3, "probe": 0.5, "export": 0.6, "doctor": 0.5}


@cache
def verbs() -> dict[str, list[argparse.Action]]:
    """The verbs of the command line with all their arguments, as the parser has them."""
    parser = build_parser(commands())
    return {verb: parser_of(parser, verb)._actions for verb in commands()}


def bases() -> dict[str, list[list[str]]]:
    """Commands that work, by verb: the draw adds options to one of them, or changes one of its values."""
    found: dict[str, list[list[str]]] = {}
    for words, _ in GOOD:
        found.setdefault(verb_of(words), []).append(words)
    return found


def drawn_value(action: argparse.Action, draw: random.Random) -> str:
    if action.dest in OUTPUT_OPTIONS:
        return draw.choice(PLACES)
    if action.choices and draw.random() < 0.6:
        return str(draw.choice(list(action.choices)))
    if action.dest in VALID and draw.random() < 0.5:
        return draw.choice(VALID[action.dest])
    return draw.choice(draw.choices([EDGES, HUGE, WORDS], [3, 1, 6])[0])


def with_option(words: list[str], action: argparse.Action, draw: random.Random, value: str | None = None) -> list[str]:
    """The words with this option set to a value, by default a drawn one, in place of one that it has already."""
    flag = action.option_strings[-1]
    if action.nargs == 0:
        return [*words, flag]
    value = drawn_value(action, draw) if value is None else value
    for known in action.option_strings:
        if known in words:
            place = words.index(known)
            return [*words[:place], f"{flag}={value}", *words[place + 2 :]]
    return [*words, f"{flag}={value}"]


def drawn(draw: random.Random) -> list[str]:
    known = verbs()
    verb = draw.choices(list(known), [COSTLY.get(name, 1.0) for name in known])[0]
    words = list(draw.choice(bases()[verb]))
    options = [action for action in known[verb] if action.option_strings and action.dest not in NOT_DRAWN]
    for action in draw.sample(options, min(len(options), draw.choice([1, 1, 2, 2, 3, 5]))):
        words = with_option(words, action, draw)
    given = [
        place for place, word in enumerate(words) if place and not word.startswith("-") and is_positional(words, place)
    ]
    if given and draw.random() < 0.15:
        words[draw.choice(given)] = draw.choice(WORDS)
    if draw.random() < 0.03:
        words.insert(draw.randrange(len(words) + 1), draw.choice(WORDS))
    return [word.replace("\x00", "") for word in words]


PAIR_CANDIDATES, PAIR_OPTIONS = 12, 5  # command lines to choose from for each case, and options in each


@cache
def pair_stream(seed: int) -> tuple[list[list[str]], Iterator[list[str]]]:
    """The command lines of a seed that were made so far, and what makes the next ones."""
    return [], paired(random.Random(f"{seed} pairs"))


def paired(draw: random.Random) -> Iterator[list[str]]:
    """Command lines without end, each with as many pairs of values of options as possible that none before had."""
    covered: set[tuple[str, ...]] = set()
    known = verbs()
    while True:
        verb = draw.choices(list(known), [COSTLY.get(name, 1.0) for name in known])[0]
        candidates = [with_pairs(verb, draw) for _ in range(PAIR_CANDIDATES)]
        words, pairs = max(candidates, key=lambda candidate: len(candidate[1] - covered))
        covered |= pairs
        yield words


def with_pairs(verb: str, draw: random.Random) -> tuple[list[str], set[tuple[str, ...]]]:
    """A command line of a verb with some options, of which at most one has an odd value; and the pairs in it."""
    words = list(draw.choice(bases()[verb]))
    options = [action for action in verbs()[verb] if action.option_strings and action.dest not in NOT_DRAWN]
    chosen = draw.sample(options, min(len(options), PAIR_OPTIONS))
    odd = chosen[0] if chosen and draw.random() < 0.4 else None
    values = {}
    for action in chosen:
        value = drawn_value(action, draw) if action is odd else sound_value(action, draw)
        words = with_option(words, action, draw, value)
        values[action.dest] = value
    found = sorted(values.items())
    pairs = {(verb, *one, *two) for place, one in enumerate(found) for two in found[place + 1 :]}
    return words, pairs


def sound_value(action: argparse.Action, draw: random.Random) -> str:
    """A value that a user would give."""
    if action.dest in OUTPUT_OPTIONS:
        return draw.choice(PLACES[:2])
    values = [str(choice) for choice in action.choices or ()] or VALID.get(action.dest) or ["1", "2"]
    return draw.choice(values)


def pair_case(workshop: Workshop, seed: int, number: int) -> Case:
    made, following = pair_stream(seed)
    while len(made) <= number:
        made.append(next(following))
    return attempt(workshop, made[number])


def is_positional(words: list[str], place: int) -> bool:
    return place == 1 or not words[place - 1].startswith("-")


def causes(words: list[str]) -> Iterator[str]:
    """What a refusal may name: an option in any spelling, the start of a value, a positional argument."""
    for word in words:
        flag, _, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if flag:
            name = flag.strip("-").removeprefix("no-")
            yield from (name, name.replace("-", "_"), name.replace("-", " "))
        for part in {value, *value.split(",")}:
            if len(part.strip()) > 1:
                yield part.strip()[:20]
            yield from [repr(part)] if part.strip() else ["empty", repr(part)]
            yield printable(part.strip())[:20] if len(part.strip()) > 1 else f"/desk/{part.strip()} "
            yield f"layerwise: {part.strip() or ' '} "  # the subject of the sentence
            if part.strip() == ".":
                yield from ("/desk ", ": . is ")
            if part == "-":
                yield " -:"
            if part.startswith("-"):  # taken for an option, so an argument is missing
                yield "arguments are required"
            yield from (piece for piece in part.split("/") if len(piece) > 2)


def case(workshop: Workshop, draw: random.Random) -> Case:
    return attempt(workshop, drawn(draw))


def attempt(workshop: Workshop, words: list[str]) -> Case:
    """Runs one command line and holds it against the oracles."""
    desk = workshop.fresh()
    before = oracles.tree_of(desk)
    outcome = forked.run(words, desk, workshop.streams, 90)
    implied = {
        "lab tradeoff": ["scores/tradeoff.json"],
        "campaign": ["cells"],
        "lab data": ["tasks", words[2] if len(words) > 2 else ""],
    }
    outputs = oracles.outputs_of(words, [name for name in implied.get(verb_of(words), []) if name.strip()])
    problems = oracles.all_of(outcome)
    problems += oracles.names_no_cause(outcome, causes(words))
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), outputs)
    problems += oracles.half_written(desk)
    problems += oracles.secrets_below(
        desk, [name for name in outputs if "://" not in name and name not in (".", "mine")]
    )
    if not is_local(words):
        problems = [problem for problem in problems if not problem.startswith("tried to reach the network")]
    return Case(shown(words), problems, printed=outcome.out[-2000:] + outcome.err[-4000:])


def is_local(words: list[str]) -> bool:
    """False if a word could be the name of something on the hub or in a store; then a lookup is in order."""
    joined = " ".join(words)
    asked = (
        "://",
        "--data",
        "--fit",
        "--test",
        "--labels",
        "--tasks",
        "--recipe",
        "--adapter",
        "--revision",
        "--config",
    )
    return words[1:2] and words[1] in ("model", "other", "run", "scores") and not any(word in joined for word in asked)


def shown(words: list[str]) -> str:
    return " ".join(
        ascii(word)[:80] if not word.isprintable() or " " in word or not word else word[:80] for word in words
    )
