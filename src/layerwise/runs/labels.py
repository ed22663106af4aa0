"""Labels: short, unique names for the models of several tables."""

import re
from collections import Counter
from collections.abc import Sequence

from layerwise.runs.table import LayerTable

STEP = re.compile(r"(?:step|checkpoint)[-_]?(\d+)$")


def model_labels(tables: Sequence[LayerTable]) -> list[str]:
    """A short name for each table's model: as many trailing name parts as needed to be unique.

    The label of a checkpoint includes its parent folder; the revision is added if only that differs.
    """
    models_and_revisions = [next(((s.model, s.revision) for s in table.scores), ("no model", "")) for table in tables]
    models = {name for name, _ in models_and_revisions}
    name_parts = {name: name.strip("/").split("/") for name in models}
    longest = max(map(len, name_parts.values()), default=0)
    # For each number of parts: how many models end with the same parts.
    suffix_counts = [Counter(tuple(parts[-count:]) for parts in name_parts.values()) for count in range(1, longest + 1)]
    short_names = {}
    for name, parts in name_parts.items():
        count = 2 if STEP.match(parts[-1]) else 1
        while count < len(parts) and suffix_counts[count - 1][tuple(parts[-count:])] > 1:
            count += 1
        short_names[name] = "/".join(parts[-count:])
    revisions = Counter(name for name, _ in set(models_and_revisions))
    return [
        f"{short_names[name]} @ {revision}" if revisions[name] > 1 else short_names[name]
        for name, revision in models_and_revisions
    ]


def training_step(label: str) -> int | None:
    """The step at the end of a checkpoint name, such as 629 in gptneox/step629."""
    match = STEP.search(label)
    return int(match.group(1)) if match else None
