"""Runs a command or a function in a forked process: no imports to wait for, and nothing of it stays here.

The child has its own session, home and folder for temporary files, no network, and a limit of memory. When it ends, it
reports what it left: threads, processes, open files. When it is gone, whatever lives on in its session is a leak too.
"""

import argparse
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

MEMORY = 8 << 30  # bytes of address space that a child may use beyond what it was born with
QUIET_THREADS = ("tqdm", "asyncio", "pyarrow")  # that libraries start once and keep
SYSTEM_FILES = ("/dev/", "/proc/", "pipe:", "anon_inode:", "/memfd:", "/usr/", "/etc/", "/lib")
HARMLESS_FILES = (*SYSTEM_FILES, sys.prefix, sys.base_prefix)  # Python and its packages may stay open


@dataclass
class Outcome:
    """What came of a child: its exit code (negative: the signal that ended it), what it printed, and what it left."""

    code: int
    out: str
    err: str
    seconds: float
    left: list[str] = field(default_factory=list)
    answer: Any = None

    @property
    def refused(self) -> bool:
        return self.code == 2


@dataclass
class Child:
    """A running child."""

    pid: int
    streams: Path
    began: float

    def signal(self, number: int, group: bool = False) -> None:
        try:
            os.killpg(self.pid, number) if group else os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def cpu_seconds(self) -> float:
        """What the child and its ended children have used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def wait(self, limit: float, patience: float = 3.0) -> Outcome:
        """The outcome. The limit is in seconds of CPU time, since other work may keep the machine busy; a child that
        does nothing is ended after ten times as long."""
        hung = False
        while not self.ended():
            waited = time.monotonic() - self.began
            if waited > 10 * limit or (waited > limit and self.cpu_seconds() > limit):
                hung = True
                self.signal(signal.SIGKILL, group=True)
            time.sleep(0.003)
        seconds = time.monotonic() - self.began
        _, status = os.waitpid(self.pid, 0)
        left = []
        until = time.monotonic() + patience
        while (alive := session_members(self.pid)) and time.monotonic() < until:
            time.sleep(0.02)
        for pid, name in alive:
            left.append(f"process left behind: {name}")
            os.kill(pid, signal.SIGKILL)
        report = self.streams / f"{self.pid}.report"
        answer: Any = None
        if report.exists():
            found = json.loads(report.read_text(encoding="utf-8"))
            left, answer = left + found["left"], found["answer"]
            report.unlink()
        texts = []
        for name in ("out", "err"):
            path = self.streams / f"{self.pid}.{name}"
            texts.append(path.read_bytes().decode("utf-8", "backslashreplace") if path.exists() else "")
            path.unlink(missing_ok=True)  # a child that was killed at once has none
        if hung:
            left.append(f"did not end within {limit:.0f} s")
        return Outcome(os.waitstatus_to_exitcode(status), texts[0], texts[1], seconds, left, answer)


def session_members(session: int) -> list[tuple[int, str]]:
    """The processes of a session, without those that have ended."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            name, _, rest = text.partition("(")[2].rpartition(")")
            fields = rest.split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((int(entry), name))
    return found


def start(
    work: str | Sequence[str] | Callable[[], Any],
    desk: Path,
    streams: Path,
    *,
    unprivileged: bool = False,
    first: Callable[[], Any] = lambda: None,
) -> Child:
    """Starts the words of a command line, or a function, in a child whose current folder is the desk.

    An unprivileged child has the same user, but permissions of files hold for it even if that is root. The child calls
    `first` before it begins.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, streams, time.monotonic())
    try:
        if unprivileged:
            obey_permissions()
        in_child(work, desk, streams, first)
    except KeyboardInterrupt:  # before or after the command itself
        os._exit(130)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)
    raise AssertionError("not reached")


def obey_permissions() -> None:
    """Gives up root's right to read and write what permissions forbid (CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", 0x20080522, 0)  # version 3; this process
    held = ctypes.create_string_buffer(24)  # effective, permitted and inheritable, in two halves
    if libc.capget(header, held):
        raise OSError(ctypes.get_errno(), "capget")
    first, *rest = struct.unpack("6I", held.raw)
    if libc.capset(header, struct.pack("6I", first & ~0b110, rest[0] & ~0b110, *rest[1:])):
        raise OSError(ctypes.get_errno(), "capset")


def run(work: Sequence[str] | Callable[[], Any], desk: Path, streams: Path, limit: float = 60.0) -> Outcome:
    return start(work, desk, streams).wait(limit)


def in_child(work: Any, desk: Path, streams: Path, first: Callable[[], Any]) -> None:
    os.setsid()
    pid = os.getpid()
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(streams / f"{pid}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(desk)
    os.environ |= {"HOME": str(desk / "home"), "TMPDIR": str(desk / "tmp")}
    tempfile.tempdir = None
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    calls = block_network()
    first()
    threads, files = {*threading.enumerate()}, open_files()
    code, answer = execute(work)
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    left = [f"tried to reach the network: {call}" for call in calls] if calls else []
    left += leaks(threads, files)
    (streams / f"{pid}.report").write_text(json.dumps({"left": left, "answer": answer}), encoding="utf-8")
    os._exit(code & 0xFF)


@cache
def the_parser() -> argparse.ArgumentParser:
    """The parser of the command line, built once before the forks: a third of the time of a short command."""
    from layerwise.cli.parser import build_parser
    from layerwise.verbs import commands

    return build_parser(commands())


def execute(work: Any) -> tuple[int, Any]:
    """The exit code and, of a function, what it returns."""
    if callable(work):
        return 0, work()
    from layerwise.__main__ import main as run_command
    from layerwise.cli import main

    parser = the_parser()
    main.build_parser = lambda verbs: parser
    sys.argv = ["layerwise", *work]
    try:
        return run_command(list(work)), None
    except SystemExit as stopped:
        return int(stopped.code or 0), None


def block_network() -> list[str]:
    """Makes every connection beyond this machine fail; returns the list of attempts, which grows."""
    attempts: list[str] = []
    usual = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> Any:
        local = self.family == socket.AF_UNIX or str(address[0]) in ("127.0.0.1", "localhost", "::1")
        if local:
            return usual(self, address)
        attempts.append(str(address))
        raise ConnectionRefusedError(111, "the network is blocked in this test")

    def lookup(host: Any, *args: Any, **options: Any) -> Any:
        if str(host) in ("127.0.0.1", "localhost", "::1", "None"):
            return usual_lookup(host, *args, **options)
        attempts.append(str(host))
        raise socket.gaierror(-2, "the network is blocked in this test")

    usual_lookup = socket.getaddrinfo
    socket.socket.connect = connect  # type: ignore[method-assign, assignment]
    socket.getaddrinfo = lookup
    return attempts


def open_files() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
    return found


def leaks(threads: set[threading.Thread], files: dict[str, str]) -> list[str]:
    """What was not there before: threads that Python knows, child processes, files that are still open."""
    import psutil

    until = time.monotonic() + 2.0
    while True:
        new = [t.name for t in threading.enumerate() if t not in threads and not is_quiet(t)]
        if not new or time.monotonic() > until:
            break
        time.sleep(0.02)
    left = [f"thread left behind: {name}" for name in new]
    opened = [name for number, name in open_files().items() if files.get(number) != name]
    for name in opened:
        if not name.startswith(HARMLESS_FILES) and "socket:" not in name and not name.endswith(" (deleted)"):
            left.append(f"file left open: {name}")
    for process in psutil.Process().children(recursive=True):
        words = " ".join(process.cmdline())
        if "resource_tracker" not in words and process.status() != psutil.STATUS_ZOMBIE:
            left.append(f"child process left running: {words[:100]}")
    return left


def is_quiet(thread: threading.Thread) -> bool:
    kind = f"{type(thread).__module__} {thread.name}".lower()
    return any(word in kind for word in QUIET_THREADS)
