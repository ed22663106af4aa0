"""Scans that are interrupted half-way, for tests of what goes on afterwards."""

from layerwise.verbs.scan import worker


def stop_after(count):
    """A replacement for scan_shard that is interrupted after `count` shards; `calls` counts those it computed."""
    calls = []

    def stopping(*args):
        if len(calls) == count:
            raise KeyboardInterrupt
        calls.append(1)
        return worker.scan_shard(*args)

    stopping.calls = calls
    return stopping
