"""labelled: examples with their labels, from the columns of one table."""

from dataclasses import replace
from pathlib import Path

from layerwise.core.checks import Choices, require_count, split_choices
from layerwise.core.preprocessors import InputKind
from layerwise.inputs.labels import with_label_columns
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import Source
from layerwise.options.probe import require_label


def labelled(
    data: str | Path | Source,
    label: Choices,
    *,
    kind: InputKind = "text",
    column: str = "text",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """Opens examples together with their labels, for `probe`.

    Args:
        data: a .jsonl, .csv or .parquet file or a hub data set with examples and labels; or a Source of any modality
            that was opened from such a table, whose labels are then read from the same table.
        label: the column with the labels, or several with commas or in a list.
        kind: what the examples are: "text", "audio" or "image". Not needed with a Source.
        column: the column with the text; for audio and images, `audio` or `image` unless another one is named.
        id_column: the column with the id of each example; default: a hash of its content.
        split: the split of a hub data set.
        config: the configuration of a hub data set.
        limit: keep the first examples, this many; None keeps all.
        sample: keep a random sample of this many, chosen by hashed ids; None keeps all.

    Returns:
        A Source whose examples have `labels`. For examples in memory use `Source.with_labels` instead.

    Raises:
        InputError: a file or column does not exist, or a label is missing.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> import pandas as pd
        >>> pd.DataFrame({"text": texts[:3], "topic": ["a", "b", "a"]}).to_csv(folder / "topics.csv", index=False)
        >>> source = layerwise.labelled(folder / "topics.csv", "topic")
        >>> [example.labels["topic"] for example in source]
        ['a', 'b', 'a']
    """
    require_label("label", label)
    source = data
    if not isinstance(source, Source):
        source = open_source(source, kind, column=column, id_column=id_column, split=split, config=config)
    source = with_label_columns(source, split_choices("label", label))
    options = dict(source.options)
    if limit is not None:
        source, options["limit"] = source.first(require_count("limit", limit)), limit
    if sample is not None:
        source, options["sample"] = source.sample(require_count("sample", sample)), sample
    return replace(source, options=options)
