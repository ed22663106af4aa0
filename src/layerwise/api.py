"""The library's verbs: what a Python user calls, and what the command line calls for its user."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from layerwise.arguments import (
    Words,
    as_spec,
    forecast_of,
    longest,
    open_engine,
    open_network,
    open_source,
    outline_and_dtype,
    prepare,
    progress_bar,
    threads_of,
    words,
)
from layerwise.downstream.correlate import correlations
from layerwise.downstream.forecast import forecast_lines
from layerwise.downstream.run import choose_recipes, run_evaluation
from layerwise.downstream.tasks import choose_tasks
from layerwise.engines.local import local_processes
from layerwise.engines.ray import Cluster, RayEngine
from layerwise.errors import InputError
from layerwise.exporter.run import export_recipe, fit_on_texts, require_new
from layerwise.exporter.tradeoff import front, tradeoffs
from layerwise.files import open_folder, write_atomically, write_json
from layerwise.inputs.source import Source
from layerwise.inputs.stress import KINDS, Stress
from layerwise.inputs.tables import read_table
from layerwise.inputs.text import open_texts
from layerwise.inputs.views import STRENGTH
from layerwise.metrics.base import Metric
from layerwise.models.doctor import Finding, examine
from layerwise.models.layers import LayerChoice, choose_layers
from layerwise.models.load import (
    outline_of,
)
from layerwise.ops.pooling import POOLINGS
from layerwise.ops.tokens import TOKEN_CHOICES
from layerwise.ops.transforms import fit_maps
from layerwise.passes.vectors import pooled_vectors
from layerwise.recipe import Readout, Recipe
from layerwise.reporter.content import TRADEOFF_FILE, Run, open_run, run_labels
from layerwise.reporter.figures import FIGURES, require_figure
from layerwise.reporter.page import page
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
from layerwise.sweep.plan import READOUTS
from layerwise.sweep.run import KeepPrompts, run_scan

TIMED_TEXTS = 16
PICKED_ON = 1000  # texts: maps and probes hardly change beyond
KNOWN_LOOKS = (READOUTS, TOKEN_CHOICES, POOLINGS)


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
    scan_plan, source, outline = prepare(
        model, data, metrics=metrics, layers=layers, rows=rows, tokens=tokens, readout=readout, pooling=pooling,
        max_length=max_length, batch_tokens=batch_tokens, shard_size=shard_size, seed=seed, view_strength=view_strength,
        state=state, threads=threads or threads_of(engine),
    )
    forecast_of(model, scan_plan, source, outline, loaded=engine != "local").require_fit()
    with open_engine(engine, model, out) as opened, progress_bar(progress) as on_batch:
        folder = None if out is None else open_folder(out)
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
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} is not one of {', '.join(KINDS)}")
    (outline, _), source = outline_and_dtype(model), open_source(data)
    tried = tuple(levels or [x for x in KINDS[kind].levels if KINDS[kind].a_share or x <= outline.max_length])
    if kind == "length":
        tried, source = lengths_that_fit(outline.tokenizer, source, tried, asked=levels is not None)
    if not KINDS[kind].a_share:
        options["max_length"] = longest(int(max(tried)), outline.max_length)
    options["threads"] = threads or threads_of(engine)
    tables = []
    with open_engine(engine, model, out) as opened:
        for level in tried:
            scan_plan, source, _ = prepare(model, source, metrics=metrics, stress=Stress(kind, level), **options)
            folder = None if out is None else open_folder(out, f"{kind}-{level:g}")
            with progress_bar(progress) as on_batch:
                tables.append(
                    run_scan(opened, scan_plan, source, out=folder, allow_missing=allow_missing, on_batch=on_batch)
                )
    table = LayerTable.join(tables)
    if out is not None:
        table.save(out)
    return table


def lengths_that_fit(
    count: Any, source: Source, levels: Sequence[float], *, asked: bool
) -> tuple[tuple[float, ...], Source]:
    """The texts long enough for every level; of levels that nobody asked for, those that half of them reach."""
    lengths = sorted(len(count(example.text)["input_ids"]) for example in source)
    if not asked:
        levels = [level for level in levels if level <= lengths[len(lengths) // 2]]
    if not levels or max(levels) > lengths[-1]:
        raise InputError(f"no text is that long: the longest has {lengths[-1]} tokens; pass shorter --levels")
    most = max(levels)
    return tuple(levels), source.where(lambda text: len(count(text)["input_ids"]) >= most, f">= {most:g} tokens")


def plan(model: Any, data: Any = "demo", **options: Any) -> Forecast:
    """What `scan` with the same arguments would take: passes, tokens, operations, memory. No weight is loaded."""
    return forecast_of(model, *prepare(model, data, **options))


def embed(
    model: Any,
    data: Any,
    *,
    layers: LayerChoice = "last",
    readout: str = "raw",
    tokens: Any = "all",
    pooling: Any = "mean",
    max_length: int | None = None,
    batch_tokens: int = 4096,
    progress: bool = False,
) -> pd.DataFrame:
    """One vector a text for each chosen layer: columns id, text, and layer_K with the vectors.

    These are the very vectors that `scan` measures.
    """
    network, examples = open_network(model), list(open_source(data))
    chosen = [Readout(layer, readout, tokens, pooling) for layer in choose_layers(layers, network.depth)]
    with progress_bar(progress) as on_batch:
        vectors = pooled_vectors(
            network, examples, chosen, batch_tokens=batch_tokens,
            max_length=longest(max_length, network.max_length), on_batch=lambda done: on_batch(done, 0),
        )
    columns: dict[str, Any] = {"id": [e.id for e in examples], "text": [e.text for e in examples]}
    columns |= {f"layer_{r.layer}": list(rows.float().numpy()) for r, rows in vectors.items()}
    return pd.DataFrame(columns)


def evaluate(
    model: Any,
    tasks: str | Sequence[str],
    *,
    out: str | Path,
    data_root: str | Path | None = None,
    layers: LayerChoice = "all",
    readout: Words = "raw",
    tokens: Words = "all",
    pooling: Words = "mean",
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
    With `recipes`, these are scored instead of bare layers; their maps are fitted on the texts of `fit`, or, with
    fit="task", on each task's own texts without labels. With `workers`, scores are made in so many processes; a
    script then needs `if __name__ == "__main__":`. With engine="ray" (or a Cluster), texts are encoded by the
    workers of a cluster and scored on all its CPUs; `out` and `data_root` are then on a disk that every node sees.
    """
    chosen = choose_tasks(tasks, Path(data_root).absolute() if data_root else None)
    outline, _ = outline_and_dtype(model)
    asked = [recipes] if isinstance(recipes, Recipe) else list(recipes)
    if not asked:
        looks = looks_asked(readout, tokens, pooling)
        asked = choose_recipes(outline.depth, outline.has_norm, choose_layers(layers, outline.depth), looks)
    elif max_length is None:
        max_length = asked[0].max_length
    texts_to_fit = fitting_texts(fit, asked)
    if "://" in str(out):
        raise InputError("eval keeps vectors that are mapped into memory: --out must be a folder on a disk")
    with ExitStack() as opened:
        total = len(chosen) * len(asked)
        bar = opened.enter_context(tqdm(total=total, unit=" scores", disable=None if progress else True))

        def on_score(told: dict[str, Any]) -> None:
            bar.set_postfix_str(told["task"], refresh=False)
            bar.update()

        encoder = opened.enter_context(open_engine(engine, model, out))
        processes = encoder if isinstance(encoder, RayEngine) else opened.enter_context(local_processes(workers))
        return run_evaluation(
            encoder, processes, chosen, asked, out=Path(out).absolute(), threads=threads or threads_of(engine),
            max_length=longest(max_length, outline.max_length), fit="task" if fit == "task" else texts_to_fit,
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
    pooling: Words = "mean",
    precision: str = "float32",
) -> list[str]:
    """What `evaluate` would take, a line each: tasks, texts, unique texts, forward passes, disk. Loads no weight."""
    chosen, outline = choose_tasks(tasks, data_root), outline_of(as_spec(model))
    looks = looks_asked(readout, tokens, pooling)
    recipes = choose_recipes(outline.depth, outline.has_norm, choose_layers(layers, outline.depth), looks)
    return forecast_lines(chosen, len(recipes), outline.width, 4 if precision == "float32" else 2)


def looks_asked(readout: Words, tokens: Words, pooling: Words) -> list[Recipe]:
    """Every combination of the ways to read a layer, before layers are filled in."""
    asked: Any = [(r, t, p) for r in words(readout) for t in words(tokens) for p in words(pooling)]
    for name, given, known in zip(("readout", "tokens", "pooling"), zip(*asked, strict=True), KNOWN_LOOKS, strict=True):
        for word in given:
            if word not in known:
                raise InputError(f"{name} {word!r} is not one of {', '.join(known)}")
    return [Recipe(0, *look) for look in asked]


def fitting_texts(fit: Any, recipes: Sequence[Recipe]) -> tuple[str, ...]:
    """The texts of `fit`; raises where a recipe has a map and there is nothing to fit it on."""
    if fit is None and (mapped := [r.transform for r in recipes if r.transform != "none"]):
        raise InputError(f"transform {mapped[0]} must be fitted on texts of your own kind: pass fit= (--fit FILE)")
    return () if fit is None or fit == "task" else tuple(example.text for example in open_source(fit))


def export(
    model: Any,
    layer: int | str | Recipe | Pick,
    out: str | Path,
    *,
    readout: str = "raw",
    tokens: str = "all",
    pooling: str = "mean",
    transform: str = "none",
    fit: Any = None,
    normalize: bool = False,
    prompt: str = "",
    mode: str = "portable",
    max_length: int | None = None,
    why: str = "",
    scores: Any = None,
) -> Any:
    """That layer, Recipe or Pick as a folder which plain `SentenceTransformer(path)` loads; returns it loaded.

    Vectors are compared with those that `scan` measures before the folder is kept. `transform` is a linear map
    fitted without labels on the texts of `fit`, such as remove_top:3 or whiten; `fit` may also be the folder of a
    scan that kept the second moments of that layer; a Pick fresh from `pick` has its map already. `scores`, a run of
    `evaluate`, go into the model card.
    """
    require_new(Path(out))
    network = open_network(model)
    if isinstance(layer, Pick):
        if Path(layer.model).name != Path(network.name).name:
            raise InputError(f"that pick was made for {layer.model}, not {network.name}; pick again, or name a layer")
        recipe, why = layer.recipe, why or f"{layer.rule}: {'; '.join(layer.why)}"
    elif isinstance(layer, Recipe):
        recipe = layer
    else:
        (number,) = choose_layers(layer, network.depth)
        recipe = Recipe(number, readout, tokens, pooling, transform, normalize, prompt, max_length)
    length = longest(recipe.max_length, network.max_length)
    recipe = replace(recipe, max_length=length)
    ready = layer.map_for(network) if fit is None and isinstance(layer, Pick) else None
    if ready is not None:
        linear = ready
    elif recipe.transform != "none" and isinstance(fit, str | Path) and (Path(fit) / "plan.json").exists():
        linear = fit_maps([(word, moments_of(Path(fit), network, at, length)) for at, word in recipe.parts])
    else:
        linear = fit_on_texts(network, recipe, fitting_texts(fit, [recipe]), length)
    table = as_table(scores) if scores is not None else None
    return export_recipe(network, recipe, linear, Path(out), max_length=length, mode=mode, why=why, scores=table)


def tradeoff(
    run: Any, score: str = "mean", *, model: Any = None, data: Any = "demo", mode: str = "portable", repeats: int = 5
) -> pd.DataFrame:
    """For each layer of an evaluation (or scan): its score, relative latency, parameters and memory; Pareto marked.

    `score` is a task or metric of the run, or `mean` over all tasks. The model is loaded to be timed; pass it where
    the run's own name no longer leads to it. `report` and `plot` show what this leaves in the run's folder.
    """
    table = as_table(run)
    network = open_network(model if model is not None else table.run["model"]["name"])
    batch = [example.text for example in islice(open_source(data), TIMED_TEXTS)]
    frame = tradeoffs(table, network, batch, score=score, mode=mode, repeats=repeats)
    if not isinstance(run, LayerTable):
        write_json(Path(run) / TRADEOFF_FILE, front(frame, score))
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
    is_run = isinstance(run, LayerTable) or (isinstance(run, str | Path) and (Path(run) / TABLE_FILE).exists())
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
    network = open_network(model if model is not None else as_table(run).run["model"]["name"] if is_run else run)
    length = longest(max_length, network.max_length)
    found = pick_recipe(
        network, texts_given, labels=table, layer_only=layer_only, static=static, max_length=length, seed=seed
    )
    return found if data is not None else replace(found, fitted=None)  # a map of bundled texts is none of yours


def audit(scores: Any, metrics: Any = None, *, rules: Words = "last,second_to_last,depth:80%") -> pd.DataFrame:
    """Any rules against any scores: how much of the gap between last and best layer each recovers, and its losses.

    `scores` has family, model, task, layer, score; `metrics` has model, task, layer, metric, value (task "" where it
    belongs to the whole model).
    """
    return audit_rules(cases_from_frames(scores, metrics), [parse_rule(word) for word in words(rules)])


def as_table(run: Any) -> LayerTable:
    return run if isinstance(run, LayerTable) else LayerTable.load(run)


def correlate(scan_table: Any, eval_table: Any, **options: Any) -> pd.DataFrame:
    """Which metrics go with which task scores over the layers: Spearman, Kendall and distance correlation.

    They describe; the p-values are of where the curves bend. See `layerwise.downstream.correlate.correlations`.
    """
    return correlations(as_table(scan_table), as_table(eval_table), **options)


def report(*runs: Any, html: str | Path, title: str = "") -> Path:
    """One HTML file that shows runs of scan, stress and eval, of one model or several; it works offline.

    A run is a folder or a LayerTable. Where a scan and an eval are of one model, their correlations are shown; a
    pick.json or tradeoff.json in a folder is shown as well.
    """
    if not runs:
        raise InputError("no run is named; pass folders that scan, stress or eval wrote")
    opened = [open_run(run) for run in runs]
    return write_page(html, page(opened, title=title, correlated=list(correlated_pairs(opened))))


def compare(
    *runs: Any,
    against: Against = "first",
    rows: str | None = None,
    tokens: str | None = None,
    html: str | Path | None = None,
) -> Comparison:
    """What differs between runs, layer by layer: base and fine-tune, sizes, checkpoints, architectures.

    Each run is held against the first, or the `previous` one. Differences are paired over prompts where the folders
    keep their numbers; CKA is of the pooled rows that they keep. With `html`, all of it is also a page.
    """
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
                try:
                    yield number, correlations(scanned.table, scored.table)
                except InputError:
                    continue  # no four layers in common: nothing to show


def doctor(model: Any) -> list[Finding]:
    """What was found on a very model: layer count, final norm, padding, batch size, finite numbers, tokenizer."""
    return list(examine(open_network(model)))


def texts(data: Any, **options: Any) -> Source:
    """Texts with options: column, id_column, split, config, only ("wikitext"), min_tokens, tokenizer, limit, sample."""
    return open_texts(data, **options)
