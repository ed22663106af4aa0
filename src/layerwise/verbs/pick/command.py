"""`layerwise pick`: which layer or recipe to use, with the evidence for it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, say
from layerwise.core.display import command_line, operand
from layerwise.core.errors import InputError
from layerwise.core.option_records import flag_arguments
from layerwise.core.options import option_specs
from layerwise.inputs.options import TextOptions
from layerwise.models.spec import ModelSpec
from layerwise.verbs.export.command import print_certificate
from layerwise.verbs.pick.options import PickOptions

if TYPE_CHECKING:
    from layerwise.verbs.pick.result import Pick

DOOR, LINE = "choose", "which layer, with the evidence for it; needs no labels"
HELP = "choose a layer or recipe, with the evidence for it; it may recommend keeping the last layer"

MAIN = "fit labels pairs language rule prefer templates layer_only servable dims dtype device".split()
MAIN += "early_stop export save json".split()


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run_folder",
        metavar="RUN",
        nargs="+",
        help="a model, or the folder of a scan or eval run; several models are ranked",
    )
    add_options(parser, PickOptions)
    add_options(parser, TextOptions, only=["column"], helps={"column": "column of --fit with the text"})
    parser.add_argument(
        "--save", help="folder for pick.json and recipe.safetensors; use it with `export --layer FOLDER:auto`"
    )
    add_options(parser, ModelSpec, exclude=["name", "states"])
    add_json(parser, "the result")


def run(args: Namespace) -> int:
    from layerwise.inputs.modalities import open_source
    from layerwise.models.opening import input_kind_of_model
    from layerwise.runs.folder import is_run
    from layerwise.verbs.pick.api import pick
    from layerwise.verbs.pick.probes import LANGUAGES, proxy_texts
    from layerwise.verbs.pick.result import require_pick_folder

    several, args.run_folder = args.run_folder, args.run_folder[0]
    if args.save is not None:
        require_pick_folder(args.save)  # before the model runs
    options = option_values(args, PickOptions)
    if args.column != TextOptions.column and not args.fit:
        raise InputError("--column names a column of --fit: pass --fit as well, or leave --column out")
    if args.fit:
        spec = ModelSpec(args.run_folder, **option_values(args, ModelSpec, exclude=["name"]))
        kind = "text" if args.rule or is_run(args.run_folder) else input_kind_of_model(spec)
        options["fit"] = open_source(args.fit, kind, column=args.column)
    if len(several) > 1:
        return rank(several, args, options)
    if not args.rule and args.pairs:
        say(f"scoring every layer of {args.run_folder} on the pairs of {args.pairs}")
    elif not args.rule:
        sentences = proxy_texts(args.language)
        say(
            f"scoring every layer of {args.run_folder} on {len(sentences)} bundled {LANGUAGES[args.language]} sentences"
        )
    result = pick(with_loading_options(args, options), **options, progress=True)
    if args.save is not None:
        result.save(args.save)
    if args.export is None or result.keep_last:
        print(result.to_json() if args.json else result.describe("\n".join(next_steps(result, args))))
        return 0 if args.export is None else 2  # what was asked for is not there
    print(result.to_json() if args.json else result.describe())
    if not args.json:
        print_certificate(args.export, as_json=False)
    say(f"saved in {args.export}; load it with SentenceTransformer({args.export!r})")
    return 0


def rank(models: Sequence[str], args: Namespace, options: dict[str, Any]) -> int:
    """The table of several models."""
    from layerwise.verbs.pick.api import pick

    if args.save is not None:
        raise InputError("--save keeps the answer for one model: leave it out, or pass one model")
    loading = option_values(args, ModelSpec, exclude=["name"])
    specs = [ModelSpec(name, **loading) for name in models]
    found = pick(specs, **options, progress=True)
    print(found.to_json() if args.json else found)
    return 0


def with_loading_options(args: Namespace, options: dict[str, Any]) -> Any:
    """What to pick for, with the options of loading a model; those of a run go with --model."""
    from layerwise.runs.folder import is_run

    loading = option_values(args, ModelSpec, exclude=["name"])
    if not is_run(args.run_folder):
        return ModelSpec(args.run_folder, **loading)
    given = [spec.flag for spec in option_specs(ModelSpec) if loading.get(spec.name, spec.default) != spec.default]
    if args.model is not None:
        options["model"] = ModelSpec(args.model, **loading)
    elif given:
        raise InputError(f"{given[0]} is about loading a model, and a run names its own: add --model MODEL")
    return args.run_folder


def next_steps(found: "Pick", args: Namespace) -> Iterator[str]:
    """What to type next, ready to be copied."""
    from layerwise.runs.folder import is_run

    model = found.model.name if is_run(args.run_folder) and not args.model else args.model or args.run_folder
    model = operand(model)
    yield next_step(found, model, args)
    if (static := found.static_model) is not None:
        rows = ["--layer", "0", "--transform", static.transform] if static.transform != "none" else []
        words = ["shrink", model, "--method", "static", *rows, "--data", args.fit or "texts.txt", "--out", "static"]
        yield f"or, without any block:\n{command_line(['layerwise', *words])}"


def next_step(found: "Pick", model: str, args: Namespace) -> str:
    """How to use what was picked."""
    typed = option_values(args, PickOptions) | {"column": args.column}
    if found.keep_last and found.input_kind != "text":
        return f"next: keep using {model} as it is"
    if found.input_kind == "audio":
        words = ["embed", model, "--data", "CLIPS", "--layers", str(found.recipe.layer)]
        words += ["--pooling", found.recipe.pooling] if found.recipe.pooling != "mean" else []
        embed = command_line(["layerwise", *words, "--out", "vectors.parquet"])
        return f"next: speech models cannot be exported; the vectors of this layer, without a map:\n{embed}"
    if found.keep_last:
        data = ["--data", args.fit or "texts.txt", *flag_arguments(TextOptions, {"column": args.column})]
        fewer = command_line(["layerwise", "shrink", model, *data, "--out", "small"])
        if args.prefer == "fast" or not found.layers:
            return f"next: keep using {model} as it is; for similar vectors with fewer blocks:\n{fewer}"
        words = [*flag_arguments(PickOptions, typed), *flag_arguments(TextOptions, typed), "--prefer", "fast"]
        again = command_line(["layerwise", "pick", args.run_folder, *words])
        faster = f"{again}\nor, for similar vectors with fewer blocks:\n{fewer}"
        return f"next: keep using {model} as it is; if speed matters more:\n{faster}"
    more = ["--fit", "TEXTS"] if found.recipe.transform != "none" and found.fitted is None else []
    more += ["--servable"] if args.servable else []
    words = ["export", model, "--layer", f"{args.save or 'run'}:auto", *more, "--out", "embedder"]
    export = command_line(["layerwise", *words])
    return f"next:\n{export}" if args.save else f"next: add --save run to this command, then:\n{export}"
