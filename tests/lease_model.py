"""Every order in which a few processes can take, renew and give back one lease, with crashes and clocks that jump.

The real `Leases` runs against files in memory. Whatever it does that another process could notice or change is one
step: listing, reading, writing, creating or deleting a file, reading the clock, asking whether a process lives. After
each step any other process may go on. A process is stepped by running its action again with the answers that it got so
far, so no thread is needed and equal states are explored once.

What is assumed of a folder: each step happens at once, and a listing shows every file that is there all the while.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any
from unittest.mock import patch

from layerwise.core.remote import RemoteFolder
from layerwise.runs import leases
from layerwise.runs.leases import Leases

PATIENCE = 1.5  # in ticks of the clock
POLLS = 4  # a folder that nobody writes to can be taken after so many attempts, a patience apart
Files = tuple[tuple[str, bytes], ...]


class Pause(BaseException):
    """Raised where a process would take its next step."""


@dataclass(frozen=True)
class Writer:
    """A process: what its Leases hold, and how far its action has come."""

    held: str = ""
    lost: bool = False
    seen: tuple[tuple[str, tuple[bytes, float]], ...] = ()
    action: str = ""  # take, sign or release
    answers: tuple[Any, ...] = ()  # of the steps of the action so far
    alive: bool = True
    ended: bool = False  # it has given its lease back, or its attempts are used up
    attempts: int = 0
    signs: int = 0
    punctual: bool = True  # it has given a sign of life since the last tick of the clock

    @property
    def believes(self) -> bool:
        """True if it writes to the folder."""
        return self.alive and bool(self.held) and not self.lost and self.action != "release"


@dataclass(frozen=True)
class State:
    files: Files = ()
    clock: int = 0
    crashes: int = 0
    writers: tuple[Writer, ...] = ()


@dataclass(frozen=True)
class World:
    """What can happen, and how often."""

    writers: int
    crashes: int = 0
    attempts: int = 1
    signs: int = 0
    ticks: int = 0
    one_machine: bool = True  # a process that has ended is seen to have ended
    exclusive: bool = True  # of two processes that create a file, one succeeds
    punctual: bool = True  # whoever holds a lease, or has just created it, renews it before the clock goes on


@dataclass
class Step:
    """The one step that is taken now, after the answers that are known."""

    state: State
    world: World
    answers: tuple[Any, ...]
    taken: list[Any] = field(default_factory=list)
    place: int = 0

    def answer(self, operation: Callable[[], Any]) -> Any:
        self.place += 1
        if self.place <= len(self.answers):
            return self.answers[self.place - 1]
        if self.taken:
            raise Pause
        self.taken.append(operation())
        return self.taken[0]


class Store:
    """The folder of a run, in memory; each operation is a step."""

    step: Step

    def files(self) -> dict[str, bytes]:
        return dict(self.step.state.files)

    def put(self, files: dict[str, bytes]) -> None:
        self.step.state = replace(self.step.state, files=tuple(sorted(files.items())))

    def names(self, subfolder: str = "") -> list[str]:
        return list(self.step.answer(lambda: tuple(sorted(self.files()))))

    def read(self, name: str) -> bytes | None:
        return self.step.answer(lambda: self.files().get(name))

    def write(self, name: str, data: bytes) -> None:
        self.step.answer(lambda: self.put(self.files() | {name: data}))

    def create(self, name: str, data: bytes) -> bool:
        if not self.step.world.exclusive:
            return RemoteFolder.create(self, name, data)
        return self.step.answer(lambda: self.create_at_once(name, data))

    def create_at_once(self, name: str, data: bytes) -> bool:
        if is_new := name not in self.files():
            self.put(self.files() | {name: data})
        return is_new

    def delete(self, names: Any) -> None:
        for name in names:
            self.step.answer(lambda name=name: self.put({k: v for k, v in self.files().items() if k != name}))


STORE = Store()


def leases_of(writer: Writer, number: int) -> Leases:
    made = Leases(
        patience=PATIENCE, owner=f"{number}" * 16, beats=writer.signs,
        clock=lambda: STORE.step.answer(lambda: float(STORE.step.state.clock)),
    )  # fmt: skip
    made.held = {STORE: writer.held} if writer.held else {}
    made.lost = {STORE} if writer.lost else set()
    made.seen = {STORE: dict(writer.seen)} if writer.seen else {}
    return made


def has_ended(process: Any) -> bool:
    """Whether a process lives is seen on its own machine only."""
    return bool(STORE.step.answer(lambda: seen_to_have_ended(process["pid"])))


def seen_to_have_ended(number: int) -> bool:
    return STORE.step.world.one_machine and not STORE.step.state.writers[number].alive


def stepped(state: State, world: World, number: int, action: str) -> State:
    """The state after the next step of a writer, which begins the action or goes on with it."""
    writer = state.writers[number]
    if not writer.action:
        signs = writer.signs + (action == "sign")
        writer = replace(writer, action=action, answers=(), signs=signs)
    STORE.step = Step(state, world, writer.answers)
    found = leases_of(writer, number)
    result: Any = None
    try:
        with patch.object(leases, "current_process", lambda: {"host": "h", "pid": number, "began": 0}):
            if writer.action == "take":
                result = found.take(STORE)
            elif writer.action == "sign":
                found._sign(STORE, writer.held)
            else:
                found.release(STORE)
        writer = finished(writer, found, world, result)
    except Pause:
        writer = replace(writer, answers=(*writer.answers, *STORE.step.taken))
    after = STORE.step.state
    return replace(after, writers=changed(after.writers, number, writer))


def finished(writer: Writer, found: Leases, world: World, result: Any) -> Writer:
    seen = tuple(sorted(found.seen.get(STORE, {}).items()))
    writer = replace(writer, held=found.held.get(STORE, ""), lost=bool(found.lost), seen=seen, answers=())
    if writer.action == "take":
        attempts = writer.attempts + 1
        writer = replace(writer, attempts=attempts, ended=not result and attempts == world.attempts)
    else:
        writer = replace(writer, ended=writer.action == "release")
    return replace(writer, action="", punctual=True)


def changed(writers: tuple[Writer, ...], number: int, writer: Writer) -> tuple[Writer, ...]:
    return (*writers[:number], writer, *writers[number + 1 :])


def created(state: State, number: int) -> bool:
    """True if a writer is in the middle of taking the folder, and its file is there."""
    return state.writers[number].action == "take" and any(
        f'"owner": "{number}'.encode() in data for _, data in state.files
    )


def next_states(state: State, world: World) -> Iterator[tuple[str, State]]:
    """Everything that can happen next."""
    for number, writer in enumerate(state.writers):
        if not writer.alive or (writer.ended and not writer.action):
            continue
        if writer.action:
            actions = [writer.action]
        elif not writer.held:
            actions = ["take"]
        else:
            can_sign = writer.signs < world.signs and not writer.lost
            actions = ["release", *(["sign"] if can_sign else [])]
        for action in actions:
            yield f"{action} {number}", stepped(state, world, number, action)
        if state.crashes < world.crashes and (writer.action or writer.held):
            dead = Writer(alive=False)
            yield (
                f"crash {number}",
                replace(state, crashes=state.crashes + 1, writers=changed(state.writers, number, dead)),
            )
    late = [
        number
        for number, writer in enumerate(state.writers)
        if writer.alive and ((writer.held and (not writer.punctual or writer.action)) or created(state, number))
    ]
    if state.clock < world.ticks and not (world.punctual and late):
        waiting = tuple(replace(writer, punctual=not writer.held) for writer in state.writers)
        yield "tick", replace(state, clock=state.clock + 1, writers=waiting)


def explored(world: World, problem: Callable[[State, World], str]) -> tuple[int, list[str]]:
    """How many states there are, and the shortest way to one with a problem; without one, the way is empty."""
    STUCK.clear()
    first = State(writers=tuple(Writer() for _ in range(world.writers)))
    before: dict[State, tuple[State, str] | None] = {first: None}
    layer = [first]
    with patch.object(leases, "has_ended", has_ended):
        while layer:
            following = []
            for state in layer:
                if said := problem(state, world):
                    return len(before), [*way_to(state, before), said]
                for name, after in next_states(state, world):
                    if after not in before:
                        before[after] = (state, name)
                        following.append(after)
            layer = following
    return len(before), []


def way_to(state: State, before: dict[State, tuple[State, str] | None]) -> list[str]:
    names: list[str] = []
    while (link := before[state]) is not None:
        state, name = link
        names.append(name)
    return names[::-1]


# ---- what must hold


def believers(state: State) -> list[int]:
    return [number for number, writer in enumerate(state.writers) if writer.believes]


def two_writers(state: State, world: World) -> str:
    """At no time do two processes write."""
    return f"{believers(state)} both write" if len(believers(state)) > 1 else ""


def lasting_writers(state: State, world: World) -> str:
    """Two processes may write after one of them stood still for too long, but not beyond its next sign of life."""
    if len(believers(state)) < 2:
        return ""
    for order in permutations(range(len(state.writers))):
        after = state
        for number in order:
            while after.writers[number].action:
                after = stepped(after, world, number, "")
        for number in order:
            if after.writers[number].believes:
                after = stepped(after, world, number, "sign")
                while after.writers[number].action:
                    after = stepped(after, world, number, "")
        if len(believers(after)) > 1:
            return f"{believers(after)} both write, and go on after a sign of life of each"
    return ""


STUCK: dict[State, bool] = {}  # what is known already, in one exploration


def stuck(state: State, world: World) -> str:
    """A new process can take the folder, whatever those that died have left; and who ends leaves nothing."""
    everybody_ended = all(writer.ended or (writer.alive and not writer.action and not writer.held)
                          for writer in state.writers)  # fmt: skip
    if everybody_ended and state.crashes == 0 and state.files and not any(w.lost for w in state.writers):
        return f"all have ended, and {', '.join(name for name, _ in state.files)} is left"
    dead = tuple(Writer(alive=False) for _ in state.writers)
    alone = replace(state, clock=0, crashes=0, writers=(*dead, Writer()))
    if alone not in STUCK:
        STUCK[alone] = not can_be_taken(alone, replace(world, attempts=POLLS + 1))
    return "nobody can take the folder any more" if STUCK[alone] else ""


def can_be_taken(state: State, world: World) -> bool:
    number = len(state.writers) - 1
    for _ in range(POLLS):
        state = stepped(state, world, number, "take")
        while state.writers[number].action:
            state = stepped(state, world, number, "")
        if state.writers[number].held:
            return True
        state = replace(state, clock=state.clock + 2)
    return False
