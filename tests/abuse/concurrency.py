"""Concurrency: two commands at once on one folder, two threads on one model, a fork of a process that has used one, and
cells of a notebook."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from snapshots import TEXTS

from abuse import forked, oracles
from abuse.desk import READERS, REBUILT, WRITERS, Case, Workshop, differences, result_of

OTHER_PLAN = ["--max-length", "5"]
# Pairs that a user could start side by side: the same command twice, another plan for the same folder, a reader beside
# a writer. Names of WRITERS or READERS.
SAME = [name for name in WRITERS if name not in ("audit", "eval in processes", "shrink", "pick and export")]
BESIDE = [
    ("scan again", "report"), ("scan again", "pick"), ("scan again", "compare"), ("eval again", "correlate"),
    ("eval again", "report"), ("campaign again", "report of probes"), ("probe again", "report of probes"),
    ("stress again", "report of probes"), ("scan again", "export a map"), ("scan again", "scan again"),
    ("eval again", "eval again"), ("probe again", "probe again"), ("campaign again", "campaign again"),
]  # fmt: skip


def case(workshop: Workshop, draw: random.Random) -> Case:
    kind = draw.choices([twice, other_plan, beside, threads, forks], [5, 2, 4, 2, 1])[0]
    return kind(workshop, draw)


def pair(workshop: Workshop, draw: random.Random, first: list[str], second: list[str], outputs: list[str]) -> Any:
    """Starts two commands with a small delay between them; their outcomes, the desk, and what oracles say."""
    desk = workshop.fresh()
    before = oracles.tree_of(desk)
    children = [forked.start(first, desk, workshop.streams)]
    time.sleep(draw.choice([0, 0, draw.random() * 0.6]))
    children.append(forked.start(second, desk, workshop.streams))
    outcomes = [child.wait(120) for child in children]
    problems = [problem for outcome in outcomes for problem in oracles.all_of(outcome)]
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), outputs)
    problems += oracles.half_written(desk)
    return desk, outcomes, problems


def printed(*outcomes: forked.Outcome) -> str:
    return "\n".join(f"-- {outcome.code}\n{outcome.err[-2000:]}" for outcome in outcomes)


def twice(workshop: Workshop, draw: random.Random) -> Case:
    name = draw.choice(SAME)
    words, outputs = WRITERS[name]
    expected = workshop.undisturbed(name, words, outputs)
    desk, outcomes, problems = pair(workshop, draw, words, words, outputs)
    if all(outcome.code for outcome in outcomes):
        problems.append("both were refused")
    problems += differences({k: v for k, v in expected.items() if k != "stdout"}, result_of(desk, outputs))
    return Case(f"{name}, twice at once", problems, printed=printed(*outcomes))


def other_plan(workshop: Workshop, draw: random.Random) -> Case:
    """Two plans for one folder: one wins, the other is refused, and the folder holds what the winner says."""
    words, outputs = WRITERS["scan"]
    plans = [words, [*words, *OTHER_PLAN]]
    results = [workshop.undisturbed(f"scan {i}", plan, outputs) for i, plan in enumerate(plans)]
    draw_order = draw.random() < 0.5
    first, second = (plans[1], plans[0]) if draw_order else (plans[0], plans[1])
    expected = results[::-1] if draw_order else results
    desk, outcomes, problems = pair(workshop, draw, first, second, outputs)
    winners = [i for i, outcome in enumerate(outcomes) if outcome.code == 0]
    if len(winners) != 1:
        problems.append(f"{len(winners)} of two plans won one folder")
    else:
        wanted = {k: v for k, v in expected[winners[0]].items() if k != "stdout"}
        problems += differences(wanted, result_of(desk, outputs))
    return Case("two plans for one folder", problems, printed=printed(*outcomes))


def beside(workshop: Workshop, draw: random.Random) -> Case:
    names = draw.choice(BESIDE)
    outputs = [[*oracles.outputs_of(READERS[name]), *REBUILT.get(name, [])] for name in names]
    expected = [workshop.undisturbed(f"read by {n}", READERS[n], o) for n, o in zip(names, outputs, strict=True)]
    desk, outcomes, problems = pair(workshop, draw, *(READERS[name] for name in names), outputs[0] + outputs[1])
    for outcome, wanted, own in zip(outcomes, expected, outputs, strict=True):
        if outcome.code == 0:
            problems += differences(wanted, result_of(desk, own, outcome.out))
    return Case(" beside ".join(names), problems, printed=printed(*outcomes))


def threads(workshop: Workshop, draw: random.Random) -> Case:
    """Two threads use one model object at once: right numbers or a refusal, and no hook stays on the model."""
    desk, seed = workshop.fresh(), draw.randrange(10**9)
    outcome = forked.run(lambda: two_threads(seed), desk, workshop.streams, 90)
    problems = [*(outcome.answer or []), *oracles.raw_errors(outcome, (0,)), *outcome.left]
    return Case("two threads on one model", problems, printed=outcome.err[-3000:])


def calls(draw: random.Random) -> Callable[[Any], Any]:
    """A call of the library on a model object, whose answer can be compared."""
    import layerwise

    texts = [text for text in TEXTS if draw.random() < 0.8] or TEXTS[:2]
    if draw.random() < 0.5:
        return lambda model: [
            row.value for row in layerwise.scan(model, texts, metrics="curvature,mean_norm", threads=1)
        ]
    return lambda model: [v.tolist() for v in layerwise.embed(model, texts, layers=2).layer_2]


def two_threads(seed: int) -> list[str]:
    from transformers import AutoModel, AutoTokenizer

    draw = random.Random(seed)
    model = (AutoModel.from_pretrained("model").eval(), AutoTokenizer.from_pretrained("model"))
    work = [calls(draw), calls(draw)]
    expected = [call(model) for call in work]
    found: list[Any] = [None, None]
    together = threading.Barrier(2)

    def job(place: int) -> None:
        together.wait()
        found[place] = answer_or_refusal(work[place], model)

    problems = []
    for _ in range(3):
        started = [threading.Thread(target=job, args=(place,)) for place in (0, 1)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        for wanted, got in zip(expected, found, strict=True):
            if got is None or (not isinstance(got, str) and not close(wanted, got)):
                problems.append("another result beside another thread")
    return problems + hooks_left(model[0])


def close(one: Any, other: Any) -> bool:
    import numpy as np

    return bool(np.allclose(np.array(one), np.array(other), rtol=1e-4, atol=1e-5, equal_nan=True))


def hooks_left(module: Any) -> list[str]:
    """Hooks that are still on a module."""
    left = [name for name, part in module.named_modules() if part._forward_hooks or part._forward_pre_hooks]
    return [f"hook left on {left[0] or 'the model'}"] if left else []


def forks(workshop: Workshop, draw: random.Random) -> Case:
    desk, seed = workshop.fresh(), draw.randrange(10**9)
    if draw.random() < 0.5:
        return notebook(workshop, seed)
    outcome = forked.run(lambda: use_fork_use(seed), desk, workshop.streams, 90)
    problems = [*(outcome.answer or []), *oracles.raw_errors(outcome, (0,)), *outcome.left]
    return Case("a fork of a process that has used a model", problems, printed=outcome.err[-3000:])


def notebook(workshop: Workshop, seed: int) -> Case:
    """Cells of a notebook: verbs inside a running event loop, one that the user interrupts, and two at once."""
    outcome = forked.run(lambda: asyncio.run(cells(seed)), workshop.fresh(), workshop.streams, 90)
    problems = [*(outcome.answer or []), *oracles.raw_errors(outcome, (0,)), *outcome.left]
    return Case("cells of a notebook", problems, printed=outcome.err[-3000:])


async def cells(seed: int) -> list[str]:
    from transformers import AutoModel, AutoTokenizer

    draw = random.Random(seed)
    model = (AutoModel.from_pretrained("model").eval(), AutoTokenizer.from_pretrained("model"))
    work = [calls(draw), calls(draw)]
    began = time.monotonic()
    expected = [call(model) for call in work]
    moment = draw.random() * (time.monotonic() - began)
    interrupt_after(moment)
    with suppress(KeyboardInterrupt):
        for call in work:
            call(model)
        time.sleep(moment + 1)  # if they were faster this time
    problems = hooks_left(model[0])
    for wanted, call in zip(expected, work, strict=True):
        if not close(wanted, call(model)):
            problems.append("another result after an interrupted cell")
    together = await asyncio.gather(*(asyncio.to_thread(answer_or_refusal, call, model) for call in work))
    for wanted, got in zip(expected, together, strict=True):
        if not isinstance(got, str) and not close(wanted, got):
            problems.append("another result beside another cell")
    await asyncio.get_running_loop().shutdown_default_executor()
    return problems + hooks_left(model[0])


def interrupt_after(seconds: float) -> None:
    """What the stop button of a notebook does: KeyboardInterrupt in the main thread."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))


def answer_or_refusal(call: Callable[[Any], Any], model: Any) -> Any:
    from layerwise.core.errors import LayerwiseError

    try:
        return call(model)
    except LayerwiseError as error:
        return str(error)


def use_fork_use(seed: int) -> list[str]:
    import json
    import os

    from transformers import AutoModel, AutoTokenizer

    model = (AutoModel.from_pretrained("model").eval(), AutoTokenizer.from_pretrained("model"))
    work = calls(random.Random(seed))
    expected = work(model)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writing, json.dumps(close(expected, work(model))).encode())
        finally:
            os._exit(0)
    os.close(writing)
    same_here = close(expected, work(model))
    answer = os.read(reading, 100)
    os.close(reading)
    os.waitpid(pid, 0)
    return [] if same_here and answer == b"true" else [f"another result after a fork: {answer!r}"]
