"""data: labelled tables of your own as tasks that `eval` scores every layer on."""

from pathlib import Path

import pandas as pd

from layerwise.core.outputs import require_path
from layerwise.inputs.tables import read_table
from layerwise.verbs.eval.data_root import LocalTask, write_task
from layerwise.verbs.lab.data.options import DataOptions, TaskType


def data(
    root: str | Path,
    name: str,
    *,
    type: TaskType,
    test: str | Path | pd.DataFrame,
    train: str | Path | pd.DataFrame | None = None,
    subset: str = "default",
    cap: int | None = None,
) -> LocalTask:
    """Adds a labelled table of your own to a data root, as a task for `eval(..., data_root=root)`.

    Args:
        root: folder that holds your tasks; made if it does not exist.
        name: name of the task. With the name of an mteb task, mteb's own code scores your local files.
        type: kind of task: Classification, Clustering, PairClassification, STS, Reranking or Retrieval. docs/eval.md
            lists the columns that each needs.
        test: table to score on: a data frame, or a .csv, .jsonl or .parquet file.
        train: table to fit the classifier on (Classification only).
        subset: mteb's subset, such as "en".
        cap: keep at most this many test examples, chosen by hashed id.

    Returns:
        The task as it was written: name, type, folder and number of examples.

    Raises:
        InputError: a column is missing, or a table cannot be read as this type of task.

    Example:
        >>> import pandas as pd
        >>> pairs = pd.DataFrame({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [1.0, 4.0]})
        >>> layerwise.lab.data(folder / "tasks", "Mine", type="STS", test=pairs).examples
        2
    """
    DataOptions(type=type, test=test, train=train, subset=subset, cap=cap)
    tables = [read_table(given) if isinstance(given, str | Path) else given for given in (test, train)]
    return write_task(require_path(root), name, type, tables[0], tables[1], subset=subset, cap=cap)
