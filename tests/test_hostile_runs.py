"""Runs and data from a stranger, damaged ones, and urls with secrets: refused by name, nothing leaks, nothing aborts."""

import subprocess
import sys
from pathlib import Path

import pytest
from runs import scan_table

THREADS = """
import os, sys
import pyarrow.parquet
from layerwise.results import LayerTable
before = len(os.listdir("/proc/self/task"))
LayerTable.load(sys.argv[1])
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux lists them")
def test_reading_a_table_starts_no_thread_that_could_outlive_python(tmp_path):
    # A thread of Arrow that frees our bytes while Python ends aborts the process: one `pick RUN` in three did.
    scan_table().save(tmp_path)
    found = subprocess.run([sys.executable, "-c", THREADS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0"
