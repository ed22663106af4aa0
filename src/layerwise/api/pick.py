"""pick: which layer or recipe to use."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from layerwise.api.runs import as_table
from layerwise.core.errors import InputError
from layerwise.core.files import has_file
from layerwise.inputs.tables import read_table
from layerwise.inputs.text import open_source
from layerwise.models.load import LONGEST_DEFAULT
from layerwise.models.opening import longest, network_of_run, open_network
from layerwise.options.pick import PickOptions
from layerwise.runs.table import TABLE_FILE, LayerTable
from layerwise.selection.labels import label_probe
from layerwise.selection.pick import Pick
from layerwise.selection.run import pick_by_rule, pick_recipe

PICKED_ON = 1000  # texts: maps and probes hardly change beyond


def pick(
    run: Any,
    data: Any = None,
    *,
    labels: Any = None,
    rule: str | None = None,
    layer_only: bool = False,
    static: bool = True,
    model: Any = None,
    max_length: int | None = None,
    seed: int = 0,
) -> Pick:
    """Which layer or recipe to use, how sure that is, and what it saves; the answer may be to keep the last layer.

    `run` is a scan or evaluation, or a model. With `data` (texts of your own kind, without labels) or `labels` (a
    table or file with text,label or text1,text2,score) the model runs once more over them and a small bundled set, and
    probes decide. With `rule`, or with neither, a rule over the run's table decides; without one, the last is kept.
    A recipe with a map has whitened token embeddings beside its layer, which doubles its width, unless `static` is off.
    """
    PickOptions(
        labels=labels, rule=rule, layer_only=layer_only, static=static, model=model, max_length=max_length, seed=seed
    )
    is_run = isinstance(run, LayerTable) or (isinstance(run, str | Path) and has_file(run, TABLE_FILE))
    if rule is not None or (data is None and labels is None):
        if not is_run:
            raise InputError("a rule needs a run of scan to look at; to use a model's probes, pass data= (--data FILE)")
        return pick_by_rule(as_table(run), rule or "last")
    source = open_source(data if data is not None else "demo")
    # A fair sample, but of what would have to be downloaded whole for it.
    chosen = islice(source, PICKED_ON) if source.remote else source.sample(PICKED_ON)
    texts_given = [example.text for example in chosen]
    table = read_table(labels) if isinstance(labels, str | Path) else labels
    if table is not None:
        label_probe(table)  # a table that cannot be used is noticed before weights load
    network = network_of_run(as_table(run).run, model) if is_run else open_network(run if model is None else model)
    length = longest(max_length, network, at_most=LONGEST_DEFAULT)
    found = pick_recipe(
        network, texts_given, labels=table, layer_only=layer_only, static=static, max_length=length, seed=seed
    )
    if max_length is None and found.keep_last:  # as shipped, at the length it was shipped with
        found = replace(found, recipe=replace(found.recipe, max_length=None))
    return found if data is not None else replace(found, fitted=None)  # a map fitted on bundled texts is not yours
