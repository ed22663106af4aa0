"""The merge tree: fixed by shard numbers, the same in memory, on disk and in any order; resumed exactly."""

import json
import random
from dataclasses import dataclass, field

import pytest

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder
from layerwise.engines.checkpoints import (
    Checkpoint,
    Node,
    largest,
    leaf,
    merge_children,
    node_file,
    node_named,
    parent,
    sibling,
)
from layerwise.engines.local import LocalEngine
from layerwise.engines.merging import MergeTree


@dataclass(frozen=True)
class Item:
    id: str

    @property
    def digest(self):
        return int(self.id) + 1


@dataclass
class Nested:
    """A state that shows how it was merged: 5 is shard 5, [[0, 1], 2] is the merge of 0 and 1 with 2."""

    order: object
    ids: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    size: int = 1

    def merge(self, other):
        self.order = [self.order, other.order]
        self.ids, self.missing = self.ids + other.ids, self.missing + other.missing

    def dump(self):
        return json.dumps(vars(self)).encode()

    @classmethod
    def parse(cls, data):
        try:
            return cls(**json.loads(data))
        except ValueError:
            raise InputError("damaged") from None

    def was_made_from(self, count, digests):
        return len(self.ids) == count and sum(int(i) + 1 for i in self.ids) == digests

    def record_missing(self, items):
        self.missing += [item.id for item in items]


def order_of(node):
    """What the tree must give, by its definition."""
    return node.first if node.size == 1 else [order_of(child) for child in node.children()]


def shards_of(count, size=2):
    return [[Item(str(i)) for i in range(size * n, size * n + size)] for n in range(count)]


def run(count, folder=None, stop_at=None, computed=None, **options):
    """The state of so many shards, by the local engine; stops at a shard as Ctrl-C would."""

    def work(model, number, items, report):
        if number == stop_at:
            raise KeyboardInterrupt
        if computed is not None:
            computed.append(number)
        return Nested(number, [item.id for item in items]), {}

    checkpoint = Checkpoint(None if folder is None else DiskFolder(folder), Nested.parse, **options)
    return LocalEngine(None, "none").run_shards(shards_of(count), work, checkpoint)


# ---- the tree


def test_a_small_tree_by_hand():
    assert order_of(Node(0, 5)) == [[[0, 1], [2, 3]], 4]
    assert order_of(Node(0, 7)) == [[[0, 1], [2, 3]], [[4, 5], 6]]
    assert [parent(leaf(n), None) for n in (4, 5, 6)] == [Node(4, 6), Node(4, 6), Node(6, 8)]
    assert parent(leaf(6), 7) == Node(4, 7) and parent(Node(4, 6), 7) == Node(4, 7) and parent(Node(0, 7), 7) is None
    assert sibling(leaf(6), Node(4, 7)) == Node(4, 6) and parent(leaf(0), 1) is None
    assert largest([leaf(0), Node(0, 2), leaf(3), leaf(1)]) == [Node(0, 2), leaf(3)]


@pytest.mark.parametrize("total", [1, 2, 3, 8, 13, 100])
def test_every_node_is_merged_once_into_its_parent(total):
    nodes, open_nodes = [], [Node(0, total)]
    while open_nodes:
        node = open_nodes.pop()
        nodes.append(node)
        open_nodes += node.children() if node.size > 1 else ()
    assert len(nodes) == 2 * total - 1 and {n.first for n in nodes if n.size == 1} == set(range(total))
    for node in nodes:
        for child in node.children() if node.size > 1 else ():
            assert parent(child, total) == node
            if node.is_full:
                assert parent(child, None) == node, "known before the data end"


def test_names_of_nodes_are_read_back_and_others_are_not():
    assert node_named(node_file(Node(8, 12)).partition("/")[2]) == Node(8, 12)
    for name in ("00008.safetensors", "mine.txt", "00008-00008.safetensors", "8-9.safetensors"):
        assert node_named(name) is None


# ---- merging


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 21])
@pytest.mark.parametrize("max_bytes", [0, 100])
def test_the_local_engine_merges_along_the_tree_in_memory_or_not(count, max_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.engines.merging.MAX_MERGED_BYTES", max_bytes)
    in_memory = []
    add = MergeTree.add
    monkeypatch.setattr(MergeTree, "add", lambda tree, *rest: (add(tree, *rest), in_memory.append(len(tree.states))))
    for folder in (None, tmp_path / "run"):
        assert run(count, folder).order == order_of(Node(0, count))
    assert max(in_memory) <= (2 if max_bytes == 0 else count.bit_length())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [f"state-{count:05d}.safetensors"]


def test_files_merged_in_any_order_give_the_same_state(tmp_path):
    total, rng = 13, random.Random(0)
    checkpoint = Checkpoint(DiskFolder(tmp_path), Nested.parse)
    for number in range(total):
        checkpoint.write(leaf(number), Nested(number))
    there, waiting = {leaf(n) for n in range(total)}, []
    while there != {Node(0, total)}:
        waiting = [n for node in there if (n := parent(node, total)) and all(c in there for c in n.children())]
        chosen = rng.choice(waiting)
        merge_children(checkpoint, chosen)
        merge_children(checkpoint, chosen)
        there = there - set(chosen.children()) | {chosen}
    assert checkpoint.read(Node(0, total)).order == order_of(Node(0, total))


# ---- resuming


@pytest.mark.parametrize("stop_at", range(1, 13))
def test_an_interrupted_run_continues_where_it_stopped(stop_at, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(13, tmp_path, stop_at)
    kept = sorted(path.name for path in (tmp_path / "shards").iterdir())
    assert len(kept) == stop_at.bit_count(), "one file per bit of the number of shards"
    computed = []
    assert run(13, tmp_path, computed=computed).order == order_of(Node(0, 13))
    assert computed == list(range(stop_at, 13))
    assert run(13, tmp_path, stop_at=0).order == order_of(Node(0, 13)), "a finished run computes nothing"


def test_a_damaged_node_is_computed_again_and_other_data_are_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(13, tmp_path, 11)
    (tmp_path / "shards" / "00008-00010.safetensors").write_bytes(b"half")
    with pytest.raises(RunError, match="the data differ from those"):
        LocalEngine(None, "none").run_shards(
            shards_of(13, size=3), lambda *_: None, Checkpoint(DiskFolder(tmp_path), Nested.parse)
        )
    with pytest.raises(RunError, match="the data differ from those"):
        run(5, tmp_path)
    computed = []
    assert run(13, tmp_path, computed=computed).order == order_of(Node(0, 13)) and computed == [8, 9, 11, 12]
    for count in (12, 14):
        with pytest.raises(RunError, match="the data differ from those"):
            run(count, tmp_path)


def test_a_single_shard_of_other_data_is_computed_again(tmp_path):
    checkpoint = Checkpoint(DiskFolder(tmp_path), Nested.parse)
    checkpoint.write(leaf(2), Nested(99, ["7"]))
    (tmp_path / "shards" / "mine.txt").write_text("keep")
    assert run(4, tmp_path).order == order_of(Node(0, 4))
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["mine.txt"]


def test_no_data_no_state(tmp_path):
    with pytest.raises(InputError, match="contain no examples"):
        run(0, tmp_path)
