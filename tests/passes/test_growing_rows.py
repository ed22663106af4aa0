"""Rows that a pass keeps: the same values in any batches, and one block of memory."""

import torch

from layerwise.passes.vectors import FIRST_BLOCK, GrowingRows


def test_rows_come_back_in_any_order_whatever_the_batches():
    rows = torch.randn(7000, 96)
    for sizes in ([7000], [1, 0, 6999], [50] * 140):
        kept, places = GrowingRows(), []
        for batch in rows.split(sizes):
            places += kept.add(batch)
        assert places == list(range(7000))
        order = torch.randperm(7000).tolist()
        assert torch.equal(kept.take(order), rows[order])
        assert kept.take([]).shape == (0, 96)


def test_the_block_grows_seldom_and_keeps_nothing_of_the_batches():
    kept, blocks = GrowingRows(), set()
    for _ in range(2000):
        batch = torch.ones(4, 512, dtype=torch.float16)
        kept.add(batch[:, :256])
        blocks.add(kept.block.data_ptr())
        assert kept.block.dtype == torch.float16
    assert len(blocks) <= 4 and kept.block.nbytes <= 2 * 8000 * 256 * 2 + FIRST_BLOCK


def test_rows_without_columns_or_entries_are_kept():
    kept = GrowingRows()
    assert kept.add(torch.zeros(0, 8)) == range(0, 0) and kept.take([]).shape == (0, 8)
    assert kept.add(torch.ones(2, 8)) == range(0, 2) and kept.take([1, 0]).sum() == 16
