"""Stores: an object store that vanishes while a command writes to it, and returns after a while or for the next one.

The store is moto's S3 server in a process of its own. It stops listening on a signal, and listens again on the next;
what it holds stays.
"""

import atexit
import importlib.util
import random
import signal
import time
import urllib.parse
import urllib.request
from pathlib import Path
from threading import Thread
from typing import Any
from xml.etree import ElementTree

from abuse import forked, oracles
from abuse.desk import WRITERS, Case, Workshop, differences, result_of

TOGGLE = signal.SIGUSR1
CAUSES = ("runs/run-", "127.0.0.1")  # what a refusal may name


class Store:
    """The running server."""

    def __init__(self, workshop: Workshop) -> None:
        self.streams = workshop.streams
        self.port_file = self.streams / "port"
        self.child = forked.start(lambda: serve(self.port_file), workshop.fresh(), self.streams)
        atexit.register(self.child.signal, signal.SIGKILL)
        self.port = self.wait_until_there()
        urllib.request.urlopen(urllib.request.Request(self.address(), method="PUT")).close()

    def wait_until_there(self) -> int:
        until = time.monotonic() + 120
        while not self.port_file.exists():
            if self.child.ended() or time.monotonic() > until:
                raise RuntimeError(f"no store: {self.child.wait(1).err}")
            time.sleep(0.02)
        return int(self.port_file.read_text())

    def vanish(self) -> None:
        self.child.signal(TOGGLE)
        while self.port_file.exists():
            time.sleep(0.01)

    def come_back(self) -> None:
        self.child.signal(TOGGLE)
        self.wait_until_there()

    def address(self, key: str = "") -> str:
        return f"http://127.0.0.1:{self.port}/runs" + (f"/{urllib.parse.quote(key)}" if key else "")

    def url(self, name: str) -> str:
        user = ":".join(oracles.SECRETS)
        return f"s3://{user}@runs/{name}?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{self.port}"

    def download(self, name: str, folder: Path) -> list[str]:
        """Copies what is stored under a name into a folder; returns the names."""
        listed = urllib.request.urlopen(f"{self.address()}?list-type=2&prefix={name}/").read()
        keys = [e.text or "" for e in ElementTree.fromstring(listed).iter() if e.tag.endswith("}Key")]
        for key in keys:
            path = folder / key.removeprefix(f"{name}/")
            if not key.endswith("/"):  # those stand for folders
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(urllib.request.urlopen(self.address(key)).read())
        return keys


def serve(port_file: Path) -> None:
    from moto.moto_server import werkzeug_app
    from werkzeug.serving import make_server

    signal.pthread_sigmask(signal.SIG_BLOCK, {TOGGLE})  # in all threads: it is waited for
    app, port = werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app), 0
    while True:
        server: Any = make_server("127.0.0.1", port, app, threaded=True)
        port = server.server_port
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        port_file.with_suffix(".new").write_text(str(port))
        port_file.with_suffix(".new").rename(port_file)
        signal.sigwait({TOGGLE})
        server.shutdown()
        thread.join()
        server.server_close()
        port_file.unlink()
        signal.sigwait({TOGGLE})


STORES: dict[Path, Store] = {}  # by workshop


def case(workshop: Workshop, draw: random.Random) -> Case:
    if importlib.util.find_spec("moto") is None:
        return Case("moto is not installed", count=0)
    name, run = draw.choice(["scan", "scan", "stress"]), f"run-{draw.randrange(10**9)}"
    words, outputs = WRITERS[name]
    expected = {k: v for k, v in workshop.undisturbed(name, words, outputs).items() if k != "stdout"}
    store = STORES.get(workshop.base) or STORES.setdefault(workshop.base, Store(workshop))
    words = [store.url(run) if word == "new" else word for word in words]
    desk = workshop.fresh()
    before = oracles.tree_of(desk)
    moment, absence = draw.random() * 1.5 * workshop.seconds[name], draw.choice([None, 0.1, 1.0, 4.0])
    child = forked.start(words, desk, workshop.streams)
    time.sleep(moment)
    store.vanish()
    if absence is not None:
        time.sleep(absence)
        store.come_back()
    outcome = child.wait(90)
    problems = [*oracles.all_of(outcome), *oracles.names_no_cause(outcome, CAUSES)]
    if absence is None:
        store.come_back()
    elif outcome.code != 0:
        problems.append(f"did not wait {absence} s for the store: {oracles.last_line(outcome.err)}")
    again = forked.run(words, desk, workshop.streams, 90)
    problems += oracles.all_of(again, (0,))
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), [])
    keys = store.download(run, desk / "new")
    problems += [f"left in the store: {key}" for key in keys if "/lease-" in key]
    problems += differences(expected, result_of(desk, outputs)) + oracles.secrets_below(desk, outputs)
    returns = "returns for the next command" if absence is None else f"returns after {absence} s"
    what = f"{name}: the store vanishes at {moment:.2f} s and {returns}"
    return Case(what, problems, printed=outcome.err[-2000:] + again.err[-3000:])
