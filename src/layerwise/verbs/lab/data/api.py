"""data: labelled tables of your own as tasks that `eval` scores every layer on."""

from pathlib import Path

from layerwise.core.options import takes
from layerwise.core.outputs import require_path
from layerwise.inputs.tables import read_table
from layerwise.verbs.eval.data_root import LocalTask, write_task
from layerwise.verbs.lab.data.options import DataOptions


@takes(DataOptions)
def data(options: DataOptions) -> LocalTask:
    """Adds a labelled table of your own to a data root, as a task for `eval(..., data_root=root)`.

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
    test, train = (
        read_table(given) if isinstance(given, str | Path) else given for given in (options.test, options.train)
    )
    root = require_path(options.root)
    return write_task(root, options.name, options.type, test, train, subset=options.subset, cap=options.cap)
