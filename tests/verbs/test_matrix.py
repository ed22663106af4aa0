"""Runs of every kind through every verb that takes one: right content, or a refusal that says why; nothing dropped."""

import json
import math
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import pandas as pd
import pytest
from object_store import Store

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import LayerwiseError
from layerwise.core.files import open_folder
from layerwise.runs.folder import Run
from layerwise.verbs.eval.data_root import write_task
from layerwise.verbs.report.content import rounded_or_none

TEXTS = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 9)) for i in range(23)]
METRICS = "prompt_entropy,dataset_entropy,intrinsic_dimension"
FIGURES = ("depth", "heatmap", "correlation", "checkpoints", "stress", "tradeoff", "cka")


class Made:
    """Runs of every kind, made once, by name."""

    def __init__(self, base, model, other, store):
        self.base, self.model, self.other = base, model, other
        texts = base / "texts.txt"
        texts.write_text("\n".join(TEXTS) + "\n")
        pairs = [(TEXTS[i], TEXTS[i + 9], float(i % 5)) for i in range(12)]
        pairs = pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"])
        for name in ("Mine", "Yours"):
            write_task(base / "root", name, "STS", pairs if name == "Mine" else pairs[::-1].reset_index(drop=True))
        scan = {"metrics": METRICS, "threads": 1, "keep_prompts": "all"}
        evaluate = {"tasks": "all", "data_root": base / "root", "threads": 1}
        layerwise.scan(model, texts, out=base / "scan", **scan)
        ways = {"pooling": "mean,last", "tokens": "all,no_first"}
        layerwise.scan(model, texts, out=base / "two poolings", **scan, **ways)
        layerwise.scan(model, texts, out=base / "some layers", layers="1,last", **scan)
        layerwise.eval(model, out=base / "eval", **evaluate)
        maps = [layerwise.Recipe(k, transform=word) for k in range(4) for word in ("center", "remove_top:1")]
        layerwise.eval(model, out=base / "two maps", recipes=maps, fit=texts, **evaluate)
        lengths = [layerwise.Recipe(k, max_length=n) for k in range(4) for n in (5, 9)]
        layerwise.eval(model, out=base / "two lengths", recipes=lengths, **evaluate)
        halves = [layerwise.texts(part).with_labels({"y": [i % 2 for i in range(len(part))]}) for part in
                  (TEXTS[:15], TEXTS[15:])]  # fmt: skip
        probes = "linear,attention,weighted_sum"
        layerwise.probe(model, *halves, label="y", probes=probes, epochs=1, out=base / "probe", threads=1)
        layerwise.lab.stress(model, texts, kind="repeat_one", levels=[0, 0.5, 1], out=base / "stress", threads=1)
        campaign = {"out": str(base / "campaign"), "models": [model, other], "data": {"d": {"data": str(texts)}}}
        campaign |= {"settings": {"s": {"metrics": METRICS}}}
        (base / "campaign.yaml").write_text(json.dumps(campaign))
        layerwise.campaign(base / "campaign.yaml")
        layerwise.scan(other, texts, out=base / "scan of another model", **scan)
        layerwise.eval(other, out=base / "eval of another model", **evaluate)
        for kind in ("scan", "eval"):
            layerwise.LayerTable.load(base / kind).save(base / f"saved table of {kind}")
        shutil.copytree(base / "scan", base / "damaged")
        table = base / "damaged" / "table.parquet"
        table.write_bytes(table.read_bytes()[:-60] + bytes(60))
        shutil.copytree(base / "scan", base / "newer")
        record = json.loads((base / "newer" / "run.json").read_text())
        (base / "newer" / "run.json").write_text(json.dumps(record | {"schema_version": 99}))
        self.places = {path.name: str(path) for path in base.iterdir() if path.is_dir() and path.name != "root"}
        self.places["remote"] = self.upload(store)

    def upload(self, store):
        there = open_folder(store.url("matrix"))
        for path in (self.base / "scan").rglob("*"):
            if path.is_file():
                there.write(path.relative_to(self.base / "scan").as_posix(), path.read_bytes())
        return store.url("matrix")

    def table(self, kind):
        return Run.open(self.places[kind]).table


@pytest.fixture(scope="module")
def made(tmp_path_factory, reading_llama, reading_bert):
    store = Store()
    yield Made(tmp_path_factory.mktemp("matrix"), reading_llama, reading_bert, store)
    store.close()


def call(*words):
    """What the command line prints; raises LayerwiseError with its refusal. Anything unexpected fails the test."""
    out, errors = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = main([str(word) for word in words])
    said = errors.getvalue().strip().splitlines()
    if code == 0:
        return out.getvalue()
    message = next((line for line in said if line.startswith("layerwise: ")), "")
    assert code == 2 and message and "unexpected" not in message, (code, said)
    assert "Traceback" not in errors.getvalue()
    raise LayerwiseError(message.removeprefix("layerwise: "))


# ---- one function per verb: runs it on a run of that kind, and checks that what comes out is all there


def report(made, kind, scratch):
    call("report", made.places[kind], "--html", scratch / "page.html")
    text = (scratch / "page.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    lines = [line for name in ("scan", "stress", "eval") for line in data[name]]
    points = sum(len(line["layers"]) for line in lines) + sum("normed" in line for line in lines)
    assert points == len(made.table(kind)), "every row of the table is a point of a curve"
    named = {model["full"] for model in data["models"]}
    assert named == {row.model for row in made.table(kind)}, "every model is there under its own name"
    for line in lines:
        rows = made.table(kind).where(model=data["models"][line["model"]]["full"], metric=line["metric"])
        assert {rounded_or_none(row.value) for row in rows} >= set(line["value"]), (
            "no curve stands under another model's name"
        )


def compare(made, kind, scratch):
    found = json.loads(call("compare", made.places[kind], made.places[kind], "--json"))
    changes = found["pairs"][0]["changes"]
    assert len(changes) == len(made.table(kind)), "every row of the table is compared"
    assert all(row["difference"] in (0, None) for row in changes)


def compare_page(made, kind, scratch):
    call("compare", made.places[kind], made.places["scan"], "--html", scratch / "page.html")
    assert "What changed" in (scratch / "page.html").read_text()


def plot(figure):
    def draw(made, kind, scratch):
        runs = [made.places[kind]]
        if figure == "correlation":
            runs.append(made.places["eval"])
        if figure == "cka":
            runs.append(made.places["scan"])
        axes = layerwise.plot(runs, figure=figure)
        assert axes.lines or axes.images or axes.collections, "something is drawn"
        if figure == "depth":
            models = {row.model for row in made.table(kind)}
            assert len([line for line in axes.lines if len(line.get_xdata()) > 1]) >= len(models), "a curve per model"
        matplotlib.pyplot.close("all")
        call("report", *runs, "--figure", figure, "-o", scratch / "figure.svg")
        assert (scratch / "figure.svg").stat().st_size > 1000

    return draw


def pick_by_rule(made, kind, scratch):
    metric = next(row.metric for row in made.table(kind))
    found = json.loads(call("pick", made.places[kind], "--rule", f"max:{metric}", "--json"))
    rows = made.table(kind).where(metric=metric, layer=found["recipe"]["layer"])
    assert len(rows), "the layer is one of the table's"
    assert any((row.tokens, row.transform) == (found["recipe"]["tokens"], found["recipe"]["transform"]) for row in rows)


def pick_on_texts(made, kind, scratch):
    texts = scratch / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    found = json.loads(call("pick", made.places[kind], "--fit", texts, "--layer-only", "--json"))
    assert found["model"]["name"] == made.table(kind).require_model().name and 0 <= found["recipe"]["layer"] <= 3


def tradeoff(made, kind, scratch):
    table = made.table(kind)
    metric = next(row.metric for row in table)
    rows = json.loads(call("lab", "tradeoff", made.places[kind], "--score", metric, "--json"))
    wanted = {(row.layer, row.recipe) for row in table.where(metric=metric)}
    assert len(rows) == len(wanted), "every recipe of the table has a line"


def correlate_scan(made, kind, scratch):
    rows = json.loads(call("lab", "correlate", made.places[kind], made.places["eval"], "--json"))
    scored = {(row.metric, row.rows, row.tokens, row.pooling) for row in made.table(kind).where(norm="raw")}
    assert {(row["metric"], row["rows"], row["tokens"], row["pooling"]) for row in rows} <= scored and rows


def correlate_eval(made, kind, scratch):
    rows = json.loads(call("lab", "correlate", made.places["scan"], made.places[kind], "--json"))
    tasks = {(row.metric, row.transform) for row in made.table(kind).where(norm="raw")}
    assert {(row["task"], row["transform"]) for row in rows} == tasks


def export_fit(made, kind, scratch):
    words = ("--layer", 1, "--transform", "center", "--fit", made.places[kind], "--pooling", "mean")
    proof = json.loads(call("export", made.model, *words, "--max-length", 64, "--out", scratch / "model", "--json"))
    assert proof["max_difference"] < 1e-5 and (scratch / "model" / "modules.json").is_file()


def export_scores(made, kind, scratch):
    words = ("--layer", 1, "--pooling", "mean", "--scores", made.places[kind])
    call("export", made.model, *words, "--out", scratch / "model")
    card = (scratch / "model" / "README.md").read_text()
    tasks = {row.metric for row in made.table(kind).where(layer=1, norm="raw", tokens="all", transform="none")
             if row.rows == "-" and row.pooling == "mean"}  # fmt: skip
    assert all(task in card for task in tasks)


def export_auto(made, kind, scratch):
    call("pick", made.places[kind], "--rule", "depth:50%", "--save", scratch)
    call("export", made.model, "--layer", f"{scratch}:auto", "--out", scratch / "model")
    assert json.loads((scratch / "model" / "layerwise.json").read_text())["recipe"]["layer"] in (1, 2)


def difference(made, kind, scratch):
    found = layerwise.difference(made.places[kind], "prompt_entropy", 1, 3)
    assert found.n == len(TEXTS)
    assert math.isfinite(found.mean)


def scan_into(made, kind, scratch):
    copied = copy_of(made, kind, scratch)
    table = layerwise.scan(made.model, made.base / "texts.txt", out=copied, metrics=METRICS, threads=1)
    assert len(table) == len(Run.open(copied).table)


def eval_into(made, kind, scratch):
    copied = copy_of(made, kind, scratch)
    options = {"tasks": "all", "data_root": made.base / "root", "threads": 1}
    layerwise.eval(made.model, out=copied, **options)
    before = {row.identity for row in made.table(kind)}
    assert before <= {row.identity for row in Run.open(copied).table}, "no row of before is lost"


def copy_of(made, kind, scratch):
    if "://" in made.places[kind]:
        return made.places[kind]
    return Path(shutil.copytree(made.places[kind], scratch / "run"))


VERBS = {
    "report": report,
    "compare": compare,
    "compare --html": compare_page,
    **{f"plot {figure}": plot(figure) for figure in FIGURES},
    "pick --rule": pick_by_rule,
    "pick --fit": pick_on_texts,
    "tradeoff": tradeoff,
    "correlate SCAN": correlate_scan,
    "correlate EVAL": correlate_eval,
    "export --fit": export_fit,
    "export --scores": export_scores,
    "export RUN:auto": export_auto,
    "difference": difference,
    "scan --out": scan_into,
    "eval --out": eval_into,
}
KINDS = (
    "scan", "two poolings", "some layers", "remote", "stress", "campaign", "probe", "eval", "two maps", "two lengths",
    "saved table of scan", "saved table of eval", "scan of another model", "eval of another model", "damaged", "newer",
)  # fmt: skip
SCANS = ("scan", "two poolings", "some layers", "remote", "saved table of scan", "scan of another model")
EVALS = ("eval", "two maps", "two lengths", "saved table of eval", "eval of another model")
UNREADABLE = {"damaged": "table.parquet is damaged", "newer": "run.json was written by a newer layerwise"}


def of(kinds, message):
    return dict.fromkeys(kinds, message)


SEVERAL = {"campaign": r"runs of 2 models .*pass the (folder of each run|run of a single model)"}
OTHER_MODEL = of(("scan of another model", "eval of another model"), "other weights, config or tokenizer")
NOTHING_SHARED = "the runs share no metric"
NO_PROMPTS = {"probe": "keeps no values of single texts for .*prompt_entropy"} | of(
    ("stress", "campaign", *EVALS), "has no per-prompt values; repeat the scan with --keep-prompts all"
)
NOT_A_SCAN = of(("stress", "campaign", "probe", *EVALS), "expected a scan and then an eval")
NOT_FOR_FIT = of(
    ("stress", "campaign", "probe", *EVALS), "is not a scan; pass texts or a scan folder of this model to --fit"
)
NOT_AN_EVAL = of(("stress", "campaign", "probe", *SCANS), "expected a scan and then an eval")
ANOTHER_KIND = "contains (a|an) [a-z ]+, not (a|an) [a-z]+; choose another folder for --out"
NOT_A_RUN = {kind: "results without layerwise-run.json" for kind in KINDS if kind.startswith("saved")}

# What is refused, and how; everything that is not listed here must succeed.
REFUSED = {
    "compare": SEVERAL,
    "compare --html": SEVERAL | of(("stress", "probe", *EVALS), NOTHING_SHARED),
    "plot depth": {"stress": "use --figure stress"},
    "plot heatmap": {"stress": "use --figure stress", "campaign": "shows one model, not 2"},
    "plot correlation": NOT_A_SCAN | {
        "some layers": "fewer than four layers in common",
        "scan of another model": "their weights or tokenizers differ",
    },
    "plot checkpoints": of(KINDS, "whose names end with a step") | {"stress": "use --figure stress"},
    "plot stress": of([kind for kind in KINDS if kind != "stress"], "none was passed"),
    "plot tradeoff": of(KINDS, "pass a run folder with tradeoff.json"),
    "plot cka": SEVERAL | of(("stress", "probe", "saved table of scan", *EVALS), "have no stored rows"),
    "pick --rule": {"campaign": "expected the table of one model, got 2"},
    "pick --fit": SEVERAL,
    "tradeoff": SEVERAL,
    "correlate SCAN": NOT_A_SCAN | {
        "some layers": "fewer than four layers in common",
        "scan of another model": "their weights or tokenizers differ",
    },
    "correlate EVAL": NOT_AN_EVAL | {
        "two lengths": "several values for one layer, which differ in max_length",
        "eval of another model": "their weights or tokenizers differ",
    },
    "export --fit": NOT_FOR_FIT | {
        "saved table of scan": "kept no second moments of layer 1",
        "scan of another model": "a scan of another model or max_length",
    },
    "export --scores": of(("stress", "campaign", "probe", *SCANS), "not an eval; --scores takes an eval") | {
        "two maps": "has no score for this recipe and map",
        "two lengths": "has no score for this recipe and map",
        "eval of another model": "is an eval of another model",
    },
    "export RUN:auto": {"campaign": "expected the table of one model, got 2", "two maps": "must be fitted on texts"}
    | OTHER_MODEL,
    "difference": NO_PROMPTS | {"saved table of scan": "has no per-prompt values"},
    "scan --out": of(("stress", "campaign", "probe", *EVALS), ANOTHER_KIND) | NOT_A_RUN | {
        "two poolings": "contains a different scan .*tokens:.*pooling:",
        "some layers": "contains a different scan .*layers:",
        "scan of another model": "contains a different scan .*model:",
    },
    "eval --out": of(("stress", "campaign", "probe", *SCANS, "damaged"), ANOTHER_KIND) | NOT_A_RUN | {
        "remote": "must be a folder on disk, not a URL",
        "eval of another model": "contains the table of another run",
    },
}  # fmt: skip
# A scan writes its table anew from its state, whatever became of the old table.
REPAIRED = {("scan --out", "damaged")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore:only . layers")
@pytest.mark.filterwarnings("ignore:. curves have no match")
def test_a_run_of_any_kind_is_shown_whole_or_refused_with_the_reason(made, verb, kind, tmp_path):
    expected = REFUSED.get(verb, {}).get(kind)
    if kind in UNREADABLE and (verb, kind) not in REPAIRED and "--out" not in verb:
        expected = UNREADABLE[kind]
    if kind == "newer" and "--out" in verb:
        expected = "newer layerwise|contains a scan, not an eval"
    if expected is None:
        VERBS[verb](made, kind, tmp_path)
        return
    with pytest.raises(LayerwiseError, match=expected):
        VERBS[verb](made, kind, tmp_path)
