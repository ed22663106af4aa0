"""pick: which layer or recipe to use."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.preprocessors import require_tokenizer
from layerwise.inputs.modalities import open_source
from layerwise.inputs.tables import read_table
from layerwise.models.load import LONGEST_DEFAULT
from layerwise.models.opening import longest, network_of_run, open_network
from layerwise.options.pick import PickOptions
from layerwise.options.record import pick_record
from layerwise.runs.folder import Run, is_run
from layerwise.selection.labels import label_probe
from layerwise.selection.pick import Pick
from layerwise.selection.rules import Rule
from layerwise.selection.run import pick_by_rule, pick_recipe

PICKED_ON = 1000  # texts: maps and probes hardly change beyond


def pick(
    run: Any,
    data: Any = None,
    *,
    labels: Any = None,
    rule: str | Rule | None = None,
    layer_only: bool = False,
    static: bool = True,
    model: Any = None,
    max_length: int | None = None,
    seed: int = 0,
) -> Pick:
    """Which layer or recipe to use, how sure that is, and what it saves; the answer may be to keep the last layer.

    `run` is a scan or evaluation, or a model. With `data` (texts of your own kind, without labels) or `labels` (a
    table or file with text,label or text1,text2,score) the model runs once more over them and a small bundled set, and
    probes decide. With `rule`, a word or a Rule of your own, that rule decides from the run's table alone; with none of
    these, the last layer is kept.
    A recipe with a map has whitened token embeddings beside its layer, which doubles its width, unless `static` is off.
    """
    options = PickOptions(
        labels=labels, rule=rule, layer_only=layer_only, static=static, model=model, max_length=max_length, seed=seed
    )
    opened = Run.open(run) if is_run(run) else None
    if rule is not None or (data is None and labels is None):
        if opened is None:
            raise InputError("a rule needs a run of scan to look at; to use a model's probes, pass data= (--data FILE)")
        found = pick_by_rule(opened.table, rule or "last")
        return replace(found, options=pick_record(options, run=run, data=None))
    source = open_source(data if data is not None else "demo")
    # A fair sample, but of what would have to be downloaded whole for it.
    chosen = islice(source, PICKED_ON) if source.remote else source.sample(PICKED_ON)
    texts_given = [example.text for example in chosen]
    table = read_table(labels) if isinstance(labels, str | Path) else labels
    if table is not None:
        label_probe(table)  # a table that cannot be used is noticed before weights load
    if opened is not None:
        network = network_of_run(opened.table.require_model(), model)
    else:
        network = open_network(run if model is None else model)
    require_tokenizer(network.preprocessor, "pick")
    length = longest(max_length, network, at_most=LONGEST_DEFAULT)
    found = pick_recipe(
        network, texts_given, labels=table, layer_only=layer_only, static=static, max_length=length,
        name=source.name, seed=seed,
    )  # fmt: skip
    if max_length is None and found.keep_last:  # as shipped, at the length it was shipped with
        found = replace(found, recipe=replace(found.recipe, max_length=None))
    found = replace(found, options=pick_record(options, run=run, data=None if data is None else source.options))
    return found if data is not None else replace(found, fitted=None)  # a map fitted on bundled texts is not yours
