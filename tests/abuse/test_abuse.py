"""The campaign of tests/abuse: its short form, its oracles, and that no verb escapes it."""

import os
import random
import signal
import subprocess
import sys
from itertools import combinations

import pytest
from places import ROOT, script

from abuse import arguments, oracles
from abuse.campaign import KINDS, UNITS
from abuse.desk import GOOD, READ_ONLY, WRITERS, comparable, verb_of
from abuse.faults import FAULTS
from abuse.forked import Outcome
from layerwise.verbs import commands

NAMES = set(commands())


def test_every_verb_is_attacked():
    assert {verb_of(words) for words, _ in GOOD} == NAMES, (
        "add a command of the new verb to GOOD in tests/abuse/desk.py"
    )
    killed = {verb_of(words) for words, _ in WRITERS.values()}
    assert killed | READ_ONLY == NAMES, "add the new verb to WRITERS, or to READ_ONLY if it writes nothing"
    assert {*arguments.verbs()} == {*arguments.bases()} == NAMES
    assert {*KINDS} == {*UNITS}


def test_a_case_depends_on_seed_and_number_only():
    draws = [[arguments.drawn(random.Random(f"7 arguments {i}")) for i in range(40)] for _ in range(2)]
    assert draws[0] == draws[1] and len({tuple(words) for words in draws[0]}) > 35


def test_pairs_are_drawn_so_that_new_ones_come_first():
    lines = [next(stream) for stream in [arguments.paired(random.Random(5))] for _ in range(300)]
    again = [next(stream) for stream in [arguments.paired(random.Random(5))] for _ in range(300)]
    assert lines == again
    drawn = random.Random(5)
    by_chance = [arguments.with_pairs(draw_verb(drawn), drawn)[0] for _ in range(300)]
    assert len(pairs_in(lines)) > len(pairs_in(by_chance))


def pairs_in(lines):
    options = [{(verb_of(words), word) for word in words if word.startswith("--")} for words in lines]
    return {frozenset(pair) for found in options for pair in combinations(sorted(found), 2)}


def draw_verb(draw):
    known = list(arguments.verbs())
    return draw.choices(known, [arguments.COSTLY.get(name, 1.0) for name in known])[0]


def test_every_fault_can_be_planted():
    """They are run by hand, so the function or the line that a fault changes may have moved since."""
    for _, fault, _, _ in FAULTS:
        with fault():
            pass
    planted = script(ROOT / "scripts/planted_faults.py").FAULTS
    for name, fault in planted.items():
        assert fault.right in (ROOT / "src/layerwise" / fault.file).read_text(encoding="utf-8"), name
        assert all((ROOT / folder).is_dir() for folder in fault.tests.split()), name


@pytest.mark.long
def test_the_short_form_finds_nothing():
    root = ROOT
    path = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "tests.abuse", "--cases", "5", "--seed", "24", "--results", os.devnull]
    done = subprocess.run(words, cwd=root, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == list(KINDS)


def test_a_page_is_the_same_result_after_the_same_command_with_json(tmp_path):
    """A report beside a command may show the run before or after it."""
    pages = []
    for number, words in enumerate(("probe model --out probes", "probe model --out probes --json")):
        path = tmp_path / f"{number}.html"
        path.write_text(f"<dt>seconds</dt><dd>{number}.5</dd><pre>layerwise {words}\nlayerwise report probes</pre>")
        pages.append(comparable(path))
    assert pages[0] == pages[1]


def outcome(code=0, out="", err="", left=()):
    return Outcome(code, out, err, 0.1, list(left))


def test_the_oracles_see_what_they_are_for(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("a")
    before = oracles.tree_of(tmp_path)
    (tmp_path / "mine" / "notes.txt").write_text("b")
    (tmp_path / ".x.0011aabb-7-0011aabb.layerwise").write_text("")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json").write_text(oracles.SECRETS[1])
    changed = oracles.changed_outside(tmp_path, before, oracles.tree_of(tmp_path), ["out"])
    assert [line.rpartition(" ")[2] for line in changed] == [".x.0011aabb-7-0011aabb.layerwise", "mine/notes.txt"]
    assert oracles.changed_outside(tmp_path, before, oracles.tree_of(tmp_path), ["mine"]), "never files of the user"
    assert oracles.half_written(tmp_path) and oracles.secrets_below(tmp_path, ["out"])
    for wrong in (
        outcome(2, err="layerwise: unexpected KeyError: 'x'. Run with --debug"),
        outcome(1, err="Traceback (most recent call last):\n"),
        outcome(-signal.SIGSEGV),
        outcome(2, err="no"),
        outcome(out=f"saved in {oracles.URL}"),
        outcome(out="\x1b[2J"),
        outcome(left=["thread left behind: Thread-3"]),
    ):
        assert oracles.all_of(wrong), wrong
    refusal = outcome(2, err="layerwise: --limit must be at least 1, not 0")
    assert not oracles.all_of(refusal) and not oracles.names_no_cause(refusal, ["limit"])
    assert oracles.names_no_cause(refusal, ["column", "texts.txt"])
