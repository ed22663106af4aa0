"""The lease protocol in every order of its steps: see lease_model.py for what a step is, and what is assumed."""

import inspect
import textwrap

import pytest
from lease_model import World, explored, lasting_writers, stuck, two_writers

from layerwise.runs import leases
from layerwise.runs.leases import Leases


def strict(state, world):
    return two_writers(state, world) or stuck(state, world)


def lasting(state, world):
    return lasting_writers(state, world) or stuck(state, world)


# What can happen, what must hold, and how many states there are at least: fewer would mean that nothing was explored.
WORLDS = {
    "two processes of one machine": (World(2, crashes=1, attempts=2, signs=1), strict, 600),
    "three processes of one machine": (World(3, crashes=2), strict, 2000),
    "two machines": (World(2, crashes=1, attempts=2, signs=2, ticks=2, one_machine=False), strict, 5000),
    "a process that stands still": (
        World(2, attempts=2, signs=1, ticks=2, one_machine=False, punctual=False), lasting, 2000,
    ),
    "a store without exclusive creation": (World(2, crashes=1, attempts=2, signs=1, exclusive=False), lasting, 800),
}  # fmt: skip
LONG = {
    "three machines": (World(3, attempts=2, signs=1, ticks=2, one_machine=False), strict, 200_000),
    "three processes that try again": (World(3, crashes=2, attempts=2), strict, 10_000),
    "two machines where processes stand still": (
        World(2, attempts=2, signs=2, ticks=3, one_machine=False, punctual=False), lasting, 8000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*WORLDS, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_in_no_order_do_two_processes_write_and_no_lease_stays(name):
    world, must_hold, at_least = (WORLDS | LONG)[name]
    count, way = explored(world, must_hold)
    assert not way, " -> ".join(way)
    assert count >= at_least


def test_a_store_without_exclusive_creation_may_have_two_writers_until_their_next_sign_of_life():
    """The assumption on such stores, which docs/reliability.md states."""
    _, way = explored(WORLDS["a store without exclusive creation"][0], two_writers)
    assert way[-1] == "[0, 1] both write"


FAULTS = {  # the function, what it says, what it could say by mistake, and the world in which this is noticed
    "no second look after creating": (
        Leases.take, "for other in others)", "for other in others[:0])", "three processes of one machine",
    ),
    "no second look, which another machine would be seen by": (
        Leases.take, "for other in others)", "for other in others[:0])", "two machines",
    ),
    "creating need not succeed": (
        Leases.take, "not folder.create(name, self.content()) or", "folder.create(name, self.content()) and",
        "two processes of one machine",
    ),
    "a lease need not be silent": (Leases.is_abandoned, "if content != before:", "if not before:", "two machines"),
    "no patience": (Leases.is_abandoned, "> self.patience", ">= 0", "two machines"),
    "a lease that is not the own one is renewed": (
        Leases._sign, "or not self.is_own(folder, name)", "", "a store without exclusive creation",
    ),
    "a lease is renewed although there is a newer one": (
        Leases._sign, "lease_files(folder)[-1:] != [name]", "False", "a process that stands still",
    ),
    "numbers do not grow": (Leases.take, "else 0) + 1:05d}", "else 1):05d}", "two processes of one machine"),
    "a lease is not given back": (Leases.release, "folder.delete([name])", "pass", "two processes of one machine"),
    "processes count as ended": (
        leases.is_of_dead_process, "has_ended(parse_record", "bool(parse_record", "two processes of one machine",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name, monkeypatch):
    function, right, wrong, world = FAULTS[name]
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, "the line has changed: change the planted fault too"
    made = {}
    exec(source.replace(right, wrong), vars(leases), made)
    owner = Leases if "." in function.__qualname__ else leases
    monkeypatch.setattr(owner, function.__name__, made[function.__name__])
    assert explored(*WORLDS[world][:2])[1]
