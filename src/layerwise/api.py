"""The library's verbs: what a Python user calls, and what the command line calls for its user."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from tqdm.auto import tqdm

from layerwise.arguments import (
    Words,
    as_spec,
    forecast_of,
    longest,
    network_of_run,
    open_engine,
    open_network,
    open_source,
    outline_and_dtype,
    prepare,
    progress_bar,
    threads_of,
)
from layerwise.checks import READOUTS, ROW_TREATMENTS, TOKEN_CHOICES, require_options, require_word, split_words
from layerwise.downstream.correlate import correlations
from layerwise.downstream.forecast import forecast_lines
from layerwise.downstream.run import run_evaluation
from layerwise.downstream.tasks import choose_tasks
from layerwise.engines.local import local_processes
from layerwise.engines.ray import Cluster, RayEngine
from layerwise.errors import InputError
from layerwise.exporter.run import export_recipe, fit_on_texts, require_new
from layerwise.exporter.tradeoff import TRADEOFF_KEYS, front, tradeoffs
from layerwise.files import has_file, open_folder, write_atomically
from layerwise.folders import claim, require_new_file, require_record, require_usable, write_record
from layerwise.inputs.source import Source
from layerwise.inputs.stress import KINDS, Stress
from layerwise.inputs.tables import read_table
from layerwise.inputs.text import open_texts, tokens_in
from layerwise.inputs.views import STRENGTH
from layerwise.metrics.base import Metric
from layerwise.models.doctor import Finding, examine
from layerwise.models.layers import LayerChoice, choose_layers
from layerwise.models.load import LONGEST_DEFAULT, outline_of
from layerwise.models.readouts import Ways, expand_layers, last_recipe, split_last
from layerwise.ops.transforms import fit_maps
from layerwise.passes.vectors import pooled_vectors, require_finite_vectors
from layerwise.recipe import Recipe
from layerwise.reporter.content import TRADEOFF_FILE, Run, open_run, run_labels
from layerwise.reporter.figures import FIGURES, require_figure
from layerwise.reporter.page import is_page, page
from layerwise.results import TABLE_FILE, LayerTable
from layerwise.selection.audit import audit as audit_rules
from layerwise.selection.cases import cases_from_frames
from layerwise.selection.labels import label_probe
from layerwise.selection.pick import Pick
from layerwise.selection.rules import parse_rule
from layerwise.selection.run import pick_by_rule, pick_recipe
from layerwise.sweep.comparison import Against, Comparison, compare_runs
from layerwise.sweep.forecast import Forecast
from layerwise.sweep.moments import moments_of
from layerwise.sweep.run import KeepPrompts, run_scan

TIMED_TEXTS = 16
PICKED_ON = 1000  # texts: maps and probes hardly change beyond


def scan(
    model: Any,
    data: Any = "demo",
    *,
    out: str | Path | None = None,
    metrics: str | Sequence[str | Metric] = "fast",
    layers: LayerChoice = "all",
    rows: Words = "raw",
    tokens: Words = "all",
    readout: Words = "raw",
    pooling: Words = "mean",
    max_length: int | None = None,
    batch_tokens: int = 4096,
    shard_size: int = 1024,
    seed: int = 0,
    view_strength: float = STRENGTH,
    state: str = "auto",
    threads: int | None = None,
    keep_prompts: KeepPrompts = "auto",
    allow_missing: int = 0,
    engine: str | Cluster = "local",
    progress: bool = False,
) -> LayerTable:
    """Every metric of every layer of a model on your texts, in one pass over them.

    `model` is a hub id, a folder, a ModelSpec, a transformers model, a SentenceTransformer or a pair (module,
    tokenizer); `data` is a list of texts, a file, a hub data set, or `texts(...)` with options. With `out`, a folder or
    a url such as s3://bucket/run, the run is kept there and taken up again where it stopped. `engine` is local, ray
    (many processes or nodes; also a `Cluster` with its size): the same plan gives the same bits. Up to `allow_missing`
    examples that cannot be computed are left out, and every row says how many. `state` says how sums over the data set
    are kept: exact, float32, sketch:512, or auto, the most exact of them that takes no more than eight gigabytes.
    """
    require_options(threads=threads, keep_prompts=keep_prompts, allow_missing=allow_missing)
    scan_plan, source, outline = prepare(
        model, data, metrics=metrics, layers=layers, rows=rows, tokens=tokens, readout=readout, pooling=pooling,
        max_length=max_length, batch_tokens=batch_tokens, shard_size=shard_size, seed=seed, view_strength=view_strength,
        state=state, threads=threads or threads_of(engine),
    )
    folder = None if out is None else open_folder(out)
    if folder is not None:
        require_usable(folder, "scan")
    forecast_of(model, scan_plan, source, outline, loaded=engine != "local").require_fit()
    with open_engine(engine, model, out) as opened, progress_bar(progress) as on_batch:
        return run_scan(
            opened, scan_plan, source, out=folder, keep_prompts=keep_prompts, allow_missing=allow_missing,
            on_batch=on_batch,
        )


def stress(
    model: Any,
    data: Any = "demo",
    *,
    kind: str,
    levels: Sequence[float] | None = None,
    metrics: str | Sequence[str | Metric] = "prompt_entropy,prompt_entropy_normalized",
    out: str | Path | None = None,
    threads: int | None = None,
    allow_missing: int = 0,
    engine: str | Cluster = "local",
    progress: bool = False,
    **options: Any,
) -> LayerTable:
    """Every layer on prompts made more and more extreme, token by token: repetition, random tokens, length.

    `kind` is repeat_one, repeat_any, random, length (the first tokens of texts that are long enough for every
    level) or random_length. The rows say kind and level in `condition` and `level`.
    """
    require_word("kind", kind, KINDS)
    require_options(threads=threads, allow_missing=allow_missing)
    (outline, _), source = outline_and_dtype(model), open_source(data)
    tried = tuple(levels or [x for x in KINDS[kind].levels if KINDS[kind].a_share or x <= outline.max_length])
    if kind == "length":
        tried, source = lengths_that_fit(outline.tokenizer, source, tried, asked=levels is not None)
    if not KINDS[kind].a_share:
        options["max_length"] = longest(int(max(tried)), outline)
    options["threads"] = threads or threads_of(engine)
    tables = []
    place = None if out is None else open_folder(out)
    if place is not None:
        require_usable(place, "stress", stress=kind)
    with open_engine(engine, model, out) as opened:
        if place is not None:
            claim(place, "stress", stress=kind, model=opened.identity.fingerprint)
        for level in tried:
            scan_plan, source, _ = prepare(model, source, metrics=metrics, stress=Stress(kind, level), **options)
            folder = None if out is None else open_folder(out, f"{kind}-{level:g}")
            with progress_bar(progress) as on_batch:
                tables.append(
                    run_scan(opened, scan_plan, source, out=folder, allow_missing=allow_missing, on_batch=on_batch)
                )
    table = LayerTable.join(tables)
    if place is not None:
        table.save(place)
    return table


def lengths_that_fit(
    count: Any, source: Source, levels: Sequence[float], *, asked: bool
) -> tuple[tuple[float, ...], Source]:
    """The texts long enough for every level; of levels that nobody asked for, those that half of them reach."""
    lengths = sorted(n for example in source if (n := tokens_in(count, example.text)) < math.inf) or [0]
    if not asked:
        levels = [level for level in levels if level <= lengths[len(lengths) // 2]]
    if not levels or max(levels) > lengths[-1]:
        raise InputError(f"no text is that long: the longest has {lengths[-1]} tokens; pass shorter --levels")
    most = max(levels)
    return tuple(levels), source.where(lambda text: tokens_in(count, text) >= most, f">= {most:g} tokens")


def plan(model: Any, data: Any = "demo", **options: Any) -> Forecast:
    """What `scan` with the same arguments would take: passes, tokens, operations, memory. No weight is loaded."""
    return forecast_of(model, *prepare(model, data, **options))


def embed(
    model: Any,
    data: Any,
    *,
    layers: LayerChoice = "last",
    readout: str = "raw",
    tokens: str = "all",
    pooling: str | None = None,
    max_length: int | None = None,
    batch_tokens: int = 4096,
    progress: bool = False,
) -> pd.DataFrame:
    """One vector per text for each chosen layer: columns id, text, and layer_K or last with the vectors.

    `last` is the model as shipped: what `SentenceTransformer(model).encode` gives, with its own pooling, map,
    normalisation and prompt. A layer number is that layer, pooled as the model pools unless `pooling` says otherwise.
    There is one row for each row of the data: one without a text has null vectors, and `attrs["blank_rows"]` counts
    them.
    """
    require_options(readout=readout, tokens=tokens, pooling=pooling, max_length=max_length, batch_tokens=batch_tokens)
    rows = list(open_source(data).every_row())
    examples = [example for _, example in rows if example is not None]
    network = open_network(model)
    chosen = expand_layers(network, layers, ways_to_read(readout, tokens, pooling))
    numbers, with_last = split_last(layers)
    named = {f"layer_{k}": chosen[i] for i, k in enumerate(choose_layers(numbers, network.depth) if numbers else ())}
    named |= {"last": last_recipe(network)} if with_last else {}
    prompt = chosen[0].prompt  # the model's own, the same for all
    behind = [replace(example, text=prompt + example.text) for example in examples] if prompt else examples
    with progress_bar(progress) as on_batch:
        vectors = pooled_vectors(
            network, behind, [recipe.at for recipe in chosen], batch_tokens=batch_tokens,
            max_length=longest(max_length, network), on_batch=lambda done: on_batch(done, 0),
        )
    require_finite_vectors(vectors, examples, network.dtype)
    ids, texts_read = [e.id if e else given for given, e in rows], [e and e.text for _, e in rows]
    columns: dict[str, Any] = {"id": ids, "text": texts_read}
    for name, recipe in named.items():
        each = iter(vectors[recipe.at].float().numpy())
        columns[name] = [next(each) if example else None for _, example in rows]
    frame = pd.DataFrame(columns)
    frame.attrs["blank_rows"] = len(rows) - len(examples)
    return frame


def evaluate(
    model: Any,
    tasks: str | Sequence[str],
    *,
    out: str | Path,
    data_root: str | Path | None = None,
    layers: LayerChoice = "all",
    readout: Words = "raw",
    tokens: Words = "all",
    pooling: Words | None = None,
    recipes: Recipe | Sequence[Recipe] = (),
    fit: Any = None,
    max_length: int | None = None,
    prompts: dict[str, str] | None = None,
    batch_tokens: int = 4096,
    precision: str = "float32",
    vectors: str = "keep",
    workers: int = 0,
    engine: str | Cluster = "local",
    threads: int | None = None,
    progress: bool = False,
) -> LayerTable:
    """Every layer on MTEB tasks, scored by mteb itself, with one forward pass a text.

    `tasks` is paper32, names, types such as STS, or `all` of a `data_root` made by `layerwise data`. Scores are in
    points from 0 to 100, the task's name is the row's metric. What is in `out` already is not computed again.
    Layers are pooled as the model itself pools unless `pooling` says otherwise; `last`, the model as shipped, is a row
    of its own (readout `shipped`, where it ships a pooling; else the last layer, normed where there is a norm).
    With `recipes`, these are scored instead of bare layers; their maps are fitted on the texts of `fit`, or, with
    fit="task", on each task's own texts without labels. With `workers`, scores are made in so many processes; a
    script then needs `if __name__ == "__main__":`. With engine="ray" (or a Cluster), texts are encoded by the
    workers of a cluster and scored on all its CPUs; `out` and `data_root` are then on a disk that every node sees.
    """
    require_options(
        readout=readout, tokens=tokens, pooling=pooling, max_length=max_length, batch_tokens=batch_tokens,
        precision=precision, vectors=vectors, workers=workers, threads=threads,
    )
    threads = threads or threads_of(engine)
    chosen = choose_tasks(tasks, Path(data_root).absolute() if data_root else None)
    outline, _ = outline_and_dtype(model)
    asked = [recipes] if isinstance(recipes, Recipe) else list(recipes)
    if not asked:
        asked = expand_layers(outline, layers, ways_to_read(readout, tokens, pooling), normed_last=True)
    else:
        require_one_length(asked, max_length)
        if len(lengths := {recipe.max_length for recipe in asked}) == 1:
            max_length = lengths.pop()
    texts_to_fit = fitting_texts(fit, asked)
    if "://" in str(out):
        raise InputError("eval keeps vectors that are mapped into memory: --out must be a folder on a disk")
    require_usable(open_folder(out), "eval")
    with ExitStack() as opened:
        total = len(chosen) * len(asked)
        bar = opened.enter_context(tqdm(total=total, unit=" scores", disable=None if progress else True))

        def on_score(told: dict[str, Any]) -> None:
            bar.set_postfix_str(told["task"], refresh=False)
            bar.update()

        encoder = opened.enter_context(open_engine(engine, model, out))
        processes = encoder if isinstance(encoder, RayEngine) else opened.enter_context(local_processes(workers))
        return run_evaluation(
            encoder, processes, chosen, asked, out=Path(out).absolute(), threads=threads,
            max_length=longest(max_length, outline), fit=texts_to_fit,
            batch_tokens=batch_tokens, prompts=prompts, precision=precision, vectors=vectors, on_score=on_score,
        )


def plan_evaluation(
    model: Any,
    tasks: str | Sequence[str],
    *,
    data_root: str | Path | None = None,
    layers: LayerChoice = "all",
    readout: Words = "raw",
    tokens: Words = "all",
    pooling: Words | None = None,
    precision: str = "float32",
) -> list[str]:
    """What `evaluate` would take, a line each: tasks, texts, unique texts, forward passes, disk. Loads no weight."""
    require_options(readout=readout, tokens=tokens, pooling=pooling, precision=precision)
    chosen, outline = choose_tasks(tasks, data_root), outline_of(as_spec(model))
    recipes = expand_layers(outline, layers, ways_to_read(readout, tokens, pooling), normed_last=True)
    return forecast_lines(chosen, len(recipes), outline.width, 4 if precision == "float32" else 2)


def ways_to_read(readout: Words, tokens: Words, pooling: Words | None) -> Ways:
    """The ways to read a layer; no pooling means the model's own."""
    own = split_words("pooling", pooling) if pooling else ()
    return Ways(split_words("readout", readout), split_words("tokens", tokens), own)


def require_one_length(recipes: Sequence[Recipe], max_length: int | None) -> None:
    """Raises where a length is asked for that a recipe contradicts: a recipe's own length is part of it."""
    for recipe in recipes:
        if max_length is not None and recipe.max_length not in (None, max_length):
            raise InputError(
                f"the recipe of layer {recipe.layer} has max_length {recipe.max_length}, and {max_length} is asked "
                "for; leave out one of them"
            )


def fitting_texts(fit: Any, recipes: Sequence[Recipe]) -> tuple[str, ...] | Literal["task"]:
    """The texts of `fit`, or `task`; raises where a recipe has a map and there is nothing to fit it on."""
    if fit is None and (mapped := [r.transform for r in recipes if r.transform != "none"]):
        raise InputError(f"transform {mapped[0]} must be fitted on texts of your own kind: pass fit= (--fit FILE)")
    if isinstance(fit, str) and fit == "task":
        return "task"
    return () if fit is None else tuple(example.text for example in open_source(fit))


def export(
    model: Any,
    layer: int | str | Recipe | Pick,
    out: str | Path,
    *,
    readout: str = "raw",
    tokens: str = "all",
    pooling: str | None = None,
    transform: str = "none",
    fit: Any = None,
    normalize: bool = False,
    prompt: str | None = None,
    mode: str = "portable",
    max_length: int | None = None,
    why: str = "",
    scores: Any = None,
) -> Any:
    """That layer, Recipe or Pick as a folder which plain `SentenceTransformer(path)` loads; returns it loaded.

    `last` is the model as shipped; a layer number is pooled as the model itself pools, and its texts get the model's
    own prompt, unless `pooling` and `prompt` say otherwise. Vectors are compared with those that `scan` measures, and
    for `last` with those of the original model, before the folder is kept. `transform` is a linear map
    fitted without labels on the texts of `fit`, such as remove_top:3 or whiten; `fit` may also be the folder of a
    scan that kept the second moments of that layer; a Pick fresh from `pick` has its map already. `scores`, a run of
    `evaluate`, go into the model card.
    """
    require_options(
        readout=readout, tokens=tokens, pooling=pooling, transform=transform, mode=mode, max_length=max_length
    )
    require_new(out)
    network = open_network(model)
    if isinstance(layer, Pick):
        layer.require_same_model(network)
        recipe, why = layer.recipe, why or f"{layer.rule}: {'; '.join(layer.why)}"
    elif isinstance(layer, Recipe):
        recipe = layer
    else:
        (recipe,) = expand_layers(network, layer, ways_to_read(readout, tokens, pooling))
        recipe = replace(recipe, transform=transform, normalize=normalize, max_length=max_length)
        recipe = recipe if prompt is None else replace(recipe, prompt=prompt)
    length = longest(recipe.max_length, network)
    recipe = replace(recipe, max_length=length)
    ready = layer.map_for(network) if fit is None and isinstance(layer, Pick) else None
    if ready is not None:
        linear = ready
    elif recipe.transform != "none" and isinstance(fit, str | Path) and has_file(fit, "plan.json"):
        kept = [(word, moments_of(fit, network, at, length, recipe.prompt)) for at, word in recipe.parts]
        linear = fit_maps(kept)
    else:
        linear = fit_on_texts(network, recipe, fitting_texts(fit, [recipe]), length)
    table = as_table(scores) if scores is not None else None
    return export_recipe(network, recipe, linear, Path(out), max_length=length, mode=mode, why=why, scores=table)


def tradeoff(
    run: Any, score: str = "mean", *, model: Any = None, data: Any = "demo", mode: str = "portable", repeats: int = 5
) -> pd.DataFrame:
    """For each layer of an evaluation (or scan): its score, relative latency, parameters and memory.

    Of an evaluation, the column `pareto` marks layers that no other beats at both score and size; a metric of a scan
    has no better end, so nothing is marked. `score` is a task or metric of the run, or `mean` over all tasks. The
    model is loaded to be timed; pass it where the run's own name no longer leads to it. `report` and `plot` show what
    this leaves in the run's folder.
    """
    require_options(mode=mode, repeats=repeats)
    table = as_table(run)
    if not isinstance(run, LayerTable):
        require_record(run, TRADEOFF_FILE, TRADEOFF_KEYS)
    network = network_of_run(table.run, model)
    batch = [example.text for example in islice(open_source(data), TIMED_TEXTS)]
    frame = tradeoffs(table, network, batch, score=score, mode=mode, repeats=repeats)
    if not isinstance(run, LayerTable):
        write_record(run, TRADEOFF_FILE, front(frame, score), TRADEOFF_KEYS)
    return frame


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
    require_options(max_length=max_length, seed=seed)
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


def audit(scores: Any, metrics: Any = None, *, rules: Words = "last,second_to_last,depth:80%") -> pd.DataFrame:
    """Any rules against any scores: how much of the gap between last and best layer each recovers, and its losses.

    `scores` has family, model, task, layer, score; `metrics` has model, task, layer, metric, value (task "" where it
    belongs to the whole model).
    """
    return audit_rules(cases_from_frames(scores, metrics), [parse_rule(word) for word in split_words("rules", rules)])


def as_table(run: Any) -> LayerTable:
    return run if isinstance(run, LayerTable) else LayerTable.load(run)


def correlate(scan_table: Any, eval_table: Any, **options: Any) -> pd.DataFrame:
    """Which metrics go with which task scores over the layers: Spearman, Kendall and distance correlation.

    They describe; the p-values are of where the curves bend. See `layerwise.downstream.correlate.correlations`.
    """
    if "readout" in options:
        require_word("readout", options["readout"], READOUTS)
    return correlations(as_table(scan_table), as_table(eval_table), **options)


def report(*runs: Any, html: str | Path, title: str = "", overwrite: bool = False) -> Path:
    """One HTML file that shows runs of scan, stress and eval, of one model or several; it works offline.

    A run is a folder or a LayerTable. Where a scan and an eval are of one model, their correlations are shown; a
    pick.json or tradeoff.json in a folder is shown as well. An earlier page of layerwise is replaced, any other file
    only with `overwrite`.
    """
    if not runs:
        raise InputError("no run is named; pass folders that scan, stress or eval wrote")
    require_new_file(html, overwrite=overwrite, ours=is_page)
    opened = [open_run(run) for run in runs]
    return write_page(html, page(opened, title=title, correlated=list(correlated_pairs(opened))))


def compare(
    *runs: Any,
    against: Against = "first",
    rows: str | None = None,
    tokens: str | None = None,
    html: str | Path | None = None,
    overwrite: bool = False,
) -> Comparison:
    """What differs between runs, layer by layer: base and fine-tune, sizes, checkpoints, architectures.

    Each run is held against the first, or the `previous` one. Differences are paired over prompts where the folders
    keep their numbers; CKA is of the pooled rows that they keep. With `html`, all of it is also a page; an earlier
    page of layerwise is replaced, any other file only with `overwrite`.
    """
    if html is not None:
        require_new_file(html, overwrite=overwrite, ours=is_page)
    for name, word, known in (("rows", rows, ROW_TREATMENTS), ("tokens", tokens, TOKEN_CHOICES)):
        if word is not None:
            require_word(name, word, known)
    compared = compare_runs(runs, against=against, rows=rows, tokens=tokens)
    if html is not None:
        opened = [open_run(run) for run in runs]
        folders = [run.folder or "RUN" for run in opened]
        words = ["layerwise", "compare", *folders, "--against", against, "--html", str(html)]
        write_page(html, page(opened, compared=compared.to_dict(), told=str(compared), made_by=words))
    return compared


def plot(*runs: Any, figure: str = "depth", ax: Any = None, **options: Any) -> Any:
    """A figure for a paper, at column width, on one matplotlib Axes, which is returned.

    `figure` is depth, heatmap, correlation (a scan and an eval), checkpoints, stress, tradeoff or cka (two runs, or a
    Comparison). A run is a folder or a LayerTable. Options: metric, rows, tokens, pooling, readout; measure for
    correlation; cost for tradeoff.
    """
    require_figure(figure, options)
    if not runs:
        raise InputError("no run is named; pass folders that scan, stress or eval wrote")
    draw = FIGURES[figure]
    if figure == "cka":
        compared = runs[0] if isinstance(runs[0], Comparison) else compare_runs(runs[:2], **options)
        return draw(compared.to_dict()["pairs"][0], ax=ax)
    if figure == "correlation":
        return draw(correlate(*runs), ax=ax, **options)
    if isinstance(runs[0], Comparison):
        return draw(runs[0].table, ax=ax, **options)
    opened = [open_run(run) for run in runs]
    if figure == "tradeoff":
        return draw(opened[0].tradeoff, ax=ax, **options)
    tables = [run.table.named(label) for run, label in zip(opened, run_labels(opened), strict=True)]
    return draw(LayerTable.join(tables), ax=ax, **options)


def write_page(path: str | Path, text: str) -> Path:
    write_atomically(Path(path), text.encode("utf-8", errors="replace"))
    return Path(path)


def correlated_pairs(runs: Sequence[Run]) -> Iterator[tuple[int, pd.DataFrame]]:
    """The number of a scan, and its correlations with each eval of the same weights that shares layers with it."""
    for number, scanned in enumerate(runs):
        for scored in runs:
            prints = [run.table.run.get("model", {}).get("fingerprint") for run in (scanned, scored)]
            if (scanned.kind, scored.kind) != ("scan", "eval") or prints[0] is None or prints[0] != prints[1]:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the page itself says how many layers there are
                for table in (scored.table, of_one_recipe(scored.table)):
                    try:
                        yield number, correlations(scanned.table, table)
                        break
                    except InputError:  # several prompts or lengths: the first alone; no four layers: nothing to show
                        continue


def of_one_recipe(scored: LayerTable) -> LayerTable:
    """The scores of bare layers, or of the first map where there are none: one score per layer and readout."""
    first = next((s for s in scored if s.transform == "none"), next(iter(scored)))
    return LayerTable(tuple(s for s in scored if s.recipe[3:] == first.recipe[3:]), scored.run)


def doctor(model: Any) -> list[Finding]:
    """What was found on a very model: layer count, final norm, padding, batch size, finite numbers, tokenizer."""
    return list(examine(open_network(model)))


def texts(data: Any, **options: Any) -> Source:
    """Texts with options: column, id_column, split, config, only ("wikitext"), min_tokens, tokenizer, limit, sample."""
    return open_texts(data, **options)
