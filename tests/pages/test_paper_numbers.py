"""The numbers in studies/paper, docs/reproduce.md and docs/theory.md are those of the studies' tables."""

import pandas as pd
import pytest
from places import ROOT

STUDY = ROOT / "studies/paper"
OWN = {
    "smollm2-135m": "SmolLM2-135M", "gemma3-270m": "Gemma3-270M", "stories15m": "stories15M",
    "gptneox-step629": "GPT-NeoX (WikiText-2)", "gte-small": "gte-small", "all-minilm-l6-v2": "all-MiniLM-L6-v2",
}  # fmt: skip
METRICS = {
    "curvature": "curvature", "dime": "DiME", "infonce": "InfoNCE", "entropy_prompt": "prompt entropy",
    "lidar": "LiDAR", "entropy_dataset": "data-set entropy",
}  # fmt: skip
RULES = {
    "last": "last layer", "depth:80%": "depth 80 %", "min:dime": "least DiME", "min:infonce": "least InfoNCE",
    "min:entropy_dataset": "least data-set entropy",
}  # fmt: skip


def words(path):
    return " ".join((ROOT / path).read_text(encoding="utf-8").split())


def line(*cells):
    return " ".join(["|", *(f"{cell} |" for cell in cells)])


def released():
    curves = pd.read_csv(STUDY / "curves.csv")
    return curves[curves.scale == "released"].set_index(["experiment", "run", "metric"]).sort_index()


def curve(experiment, run, metric):
    found = released().loc[(experiment, run, metric)]
    return found.iloc[0] if isinstance(found, pd.DataFrame) else found


def table_lines():
    layers = {"Pythia-410M": 25, "Mamba-370M": 49, "BERT-base": 13, "LLM2Vec-8B": 33}
    for model, count in layers.items():
        r = curve("fig1", model, "mean_score")
        yield line(model, r.n, f"{r.layers} of {count}", r.highest_at, f"{r.highest:.2f}", f"{r['last']:.2f}")
    for model in list(layers)[:3]:
        r = curve("fig2", model, "entropy_prompt")
        yield line(model, f"{r['first']:.2f}", f"{r.lowest:.2f} ({r.lowest_at} of {r.last_layer})", f"{r['last']:.2f}")
    correlations = pd.read_csv(STUDY / "correlations.csv").query("scale == 'released'").set_index(["model", "metric"])
    for model in ("Pythia-410M", "BERT-base"):
        for metric, shown in METRICS.items():
            r = correlations.loc[(model, metric)]
            numbers = [f"{r[name]:.2f}".replace("-0.00", "0.00") for name in ("distance", "spearman", "kendall")]
            yield line(model, shown, *numbers, f"{100 * r.positive:.0f} %")


def own_lines():
    scores = pd.read_csv(STUDY / "own_scores.csv")
    correlations = pd.read_csv(STUDY / "own_correlations.csv").set_index(["model", "metric", "rows"]).spearman
    for model, shown in OWN.items():
        part = scores[scores.model == model]
        last = part[part.norm == "last"].iloc[0]
        best = part[part.norm == "raw"].set_index("layer").score
        yield line(shown, f"{best.idxmax()} of {last.layer}", f"{best.max():.2f}", f"{last.score:.2f}")
        pairs = (("prompt_entropy", "centered_unit"), ("dataset_entropy", "centered_unit"), ("curvature", "raw"))
        yield line(shown, *(f"{correlations[(model, *pair)]:.2f}" for pair in pairs))


def rule_lines():
    rules = pd.read_csv(STUDY / "rules.csv").query("scale == 'released'")
    table = rules[rules.experiment == "table2"].set_index(["rule", "family"])
    talk = rules[rules.experiment == "least_entropy"].set_index(["rule", "family"]).chosen
    models = ["Pythia-410M", "BERT-base", "LLM2Vec-8B"]
    for rule, shown in RULES.items():
        yield line(shown, *(f"{table.chosen[(rule, model)]:.2f}" for model in models))
    least = (talk[("min:entropy_prompt", model)] for model in models[:2])
    yield line("least prompt entropy (the talk)", *(f"{value:.2f}" for value in least), "-")
    yield line("best layer of each task", *(f"{table.best[('last', model)]:.2f}" for model in models))
    own = pd.read_csv(STUDY / "own_rules.csv").set_index(["rule", "family"])
    names = {"last": "last layer", "depth:80%": "depth 80 %", "min:prompt_entropy": "least prompt entropy"}
    for rule, shown in (names | {"max:prompt_entropy": "most prompt entropy"}).items():
        yield line(shown, *(f"{own.chosen[(rule, model)]:.2f}" for model in [*OWN, "all"]))
    yield line("best layer of each task", *(f"{own.best[('last', model)]:.2f}" for model in [*OWN, "all"]))


def diversity_lines():
    curves = pd.read_csv(STUDY / "curves.csv").query("experiment == 'diversity' and norm == 'raw'")
    curves = curves[curves.rows != "raw"].set_index(["run", "metric"])
    for run, shown in (("gptneox--step629", "GPT-NeoX"), ("all-minilm-l6-v2", "all-MiniLM-L6-v2")):
        for intents in (4, 16, 64):
            names = ("dataset_entropy", "prompt_entropy", "label_text_knn_accuracy")
            texts, tokens, knn = (curves.loc[(f"{run}-{intents}", name)] for name in names)
            cells = [f"{texts['last']:.2f}", f"{texts.lowest:.2f} ({texts.lowest_at})", f"{tokens['last']:.2f}"]
            cells += [f"{knn['first']:.1f}", f"{knn.highest:.1f} ({knn.highest_at})", f"{knn['last']:.1f}"]
            yield line(shown, intents, *cells)


def size_lines():
    curves = pd.read_csv(STUDY / "curves.csv").query("scale == 'small' and experiment == 'fig12' and norm == 'raw'")
    curves = curves.set_index(["run", "metric", "rows"])
    pairs = {"stories260k": "stories260K", "stories15m": "stories15M"}
    pairs |= {"paraphrase-minilm-l3-v2": "paraphrase-MiniLM-L3-v2", "all-minilm-l6-v2": "all-MiniLM-L6-v2"}
    for run, shown in pairs.items():
        tokens, views = curves.loc[(run, "prompt_entropy", "centered_unit")], curves.loc[(run, "lidar", "raw")]
        cells = [f"{tokens['first']:.2f}", f"{tokens.lowest:.2f} ({tokens.lowest_at})", f"{tokens['last']:.2f}"]
        cells += [f"{views['first']:.1f}", f"{views.lowest:.1f} ({views.lowest_at})", f"{views['last']:.1f}"]
        yield line(shown, tokens.last_layer, *cells)


def small(experiment, run, metric, **setting):
    """One curve of a small run, before the final norm."""
    curves = pd.read_csv(STUDY / "curves.csv", keep_default_na=False)
    wanted = {"scale": "small", "experiment": experiment, "run": run, "metric": metric, "norm": "raw"} | setting
    for name, value in wanted.items():
        curves = curves[curves[name].astype(str) == str(value)]
    (row,) = curves.to_dict("records")
    return row


def low(curve, digits=2):
    """First value, lowest with its layer, last."""
    first, least, last = (f"{curve[name]:.{digits}f}" for name in ("first", "lowest", "last"))
    return [first, f"{least} ({curve['lowest_at']})", last]


SMALL = {
    "smollm2-135m": "SmolLM2-135M", "gptneox--step629": "GPT-NeoX", "mamba--step524": "Mamba",
    "all-minilm-l6-v2": "all-MiniLM-L6-v2",
}  # fmt: skip


def small_lines():
    normed = pd.read_csv(STUDY / "rules.csv").query("scale == 'small' and experiment == 'table2' and rule == 'last'")
    normed = normed.set_index("family").chosen
    for run in ("smollm2-135m", "gptneox--step629", "all-minilm-l6-v2"):
        found = small("fig1", run, "mean_score")
        best = f"{found['highest_at']} of {found['last_layer']}"
        after = normed[run.removeprefix("gptneox--")]
        yield line(SMALL[run], best, f"{found['highest']:.2f}", f"{found['last']:.2f}", f"{after:.2f}")
    for run, shown in SMALL.items():
        tokens = small("fig2", run, "prompt_entropy", rows="centered_unit")
        yield line(shown, tokens["last_layer"], *low(tokens), *low(small("fig2", run, "lidar", rows="raw"), 1))
    for step in (8, 64, 629):
        run = f"gptneox--step{step}"
        tokens = small("fig4", run, "prompt_entropy", rows="centered_unit")
        yield line(step, *low(tokens), *low(small("fig4", run, "lidar", rows="raw"), 1))
    curves = {"smollm2-135m": "SmolLM2-135M", "smollm2-135m-tuned": "tuned", "gemma3-270m": "Gemma3-270M"}
    for run, shown in curves.items():
        for length in (16, 32, 48):
            found = small("fig5", run, "prompt_entropy", level=float(length))
            names = ("first", "middle", "lowest", "last")
            yield line(shown, length, *(f"{found[name]:.2f}" for name in names))
    for condition, shown in (("repeat_one", "one token repeated"), ("random", "random tokens")):
        for level in (0.0, 0.25, 0.5, 0.75 if condition == "repeat_one" else 1.0):
            found = small("fig6", "smollm2-135m", "prompt_entropy", condition=condition, level=level)
            yield line(shown, f"{level:g}", *(f"{found[name]:.2f}" for name in ("first", "middle", "last")))
    for run, shown in (("gptneox--step629", "before"), ("gptneox--step629-tuned", "after")):
        scores = small("fig13", run, "mean_score")
        cells = [f"{scores['highest']:.2f} ({scores['highest_at']})", f"{scores['last']:.2f}"]
        for metric, rows in (("infonce", "raw"), ("anisotropy", "raw"), ("prompt_entropy", "centered_unit")):
            cells.append(f"{small('fig13', run, metric, rows=rows)['last']:.2f}")
        yield line(shown, *cells)
    for run, shown in (("autoregressive-0", "autoregressive"), ("supervised-0", "supervised")):
        probe, tokens = small("fig14", run, "label_attention_accuracy"), small("fig14", run, "prompt_entropy")
        cells = [f"{probe['first']:.1f}", f"{probe['highest']:.1f} ({probe['highest_at']})", f"{probe['last']:.1f}"]
        yield line(shown, *cells, *low(tokens))
    for run in ("whisper-tiny.en", "whisper-base"):
        for label, shown in (("label", "digit"), ("speaker", "speaker")):
            found = small("speech", run, f"{label}_linear_accuracy")
            cells = [f"{found['first']:.0f}", f"{found['highest']:.0f} ({found['highest_at']})", f"{found['last']:.0f}"]
            yield line(run, shown, *cells)


def small_correlation_lines():
    found = pd.read_csv(STUDY / "correlations.csv").query("scale == 'small' and model == 'smollm2-135m'")
    found = found.set_index(["metric", "rows"])
    for metric, shown in METRICS.items():
        name = {"entropy_prompt": "prompt_entropy", "entropy_dataset": "dataset_entropy"}.get(metric, metric)
        r = found.loc[(name, "centered_unit" if "entropy" in name else "raw")]
        yield line(shown, f"{r.distance:.2f}", f"{r.spearman:.2f}", f"{r.kendall:.2f}", f"{100 * r.positive:.0f} %")


def small_rule_lines():
    rules = pd.read_csv(STUDY / "rules.csv").query("scale == 'small'").set_index(["experiment", "rule", "family"])
    models = ["smollm2-135m", "step629", "all-minilm-l6-v2", "all"]
    names = RULES | {"min:dataset_entropy": RULES["min:entropy_dataset"]}
    for rule in ("last", "depth:80%", "min:dime", "min:infonce", "min:dataset_entropy"):
        yield line(names[rule], *(f"{rules.chosen[('table2', rule, model)]:.2f}" for model in models))
    least = (rules.chosen[("least_entropy", "min:prompt_entropy", model)] for model in models)
    yield line("least prompt entropy (the talk)", *(f"{value:.2f}" for value in least))
    yield line("best layer of each task", *(f"{rules.best[('table2', 'last', model)]:.2f}" for model in models))


LINES = [
    *table_lines(), *own_lines(), *rule_lines(), *diversity_lines(), *size_lines(), *small_lines(),
    *small_correlation_lines(), *small_rule_lines(),
]  # fmt: skip


@pytest.mark.parametrize("expected", LINES)
def test_every_line_of_the_tables_is_in_the_page(expected):
    assert expected in words("studies/paper/README.md")


def sentences():
    gains = {m: curve("fig1", m, "mean_score") for m in ("Pythia-410M", "Mamba-370M", "BERT-base", "LLM2Vec-8B")}
    by = {model: r.highest - r["last"] for model, r in gains.items()}
    study, docs = "studies/paper/README.md", "docs/reproduce.md"
    yield study, f"by {by['Pythia-410M']:.1f} points in Pythia-410M, {by['Mamba-370M']:.1f} in Mamba-370M, "
    yield study, f"{by['BERT-base']:.1f} in BERT-base and {by['LLM2Vec-8B']:.1f} in LLM2Vec"
    yield docs, f"by {min(by.values()):.1f} to {max(by.values()):.1f} points"
    lows = [
        curve("fig12", f"Pythia-{s}", "entropy_prompt").lowest for s in ("14M", "70M", "160M", "410M", "1B", "6.9B")
    ]
    shown = [f"{low:.2f}" for low in lows]
    yield (
        study,
        f"{shown[0]} nats in Pythia-14M, {shown[1]} in 70M, {shown[2]} in 160M, {shown[3]} in 410M, {shown[4]} in",
    )
    yield study, f"1B and {shown[5]} in 6.9B"
    yield docs, f"from {shown[0]} nats (14M) to {shown[4]} (1B); 6.9B has {shown[5]}"
    tuned = [f"LLM2Vec-{stage}" for stage in ("mntp", "unsupervised", "supervised")]
    last = [curve("fig13", model, "infonce")["last"] for model in ("Llama3-8B", *tuned)]
    yield (
        study,
        f"falls from {last[0]:.2f} to {last[1]:.2f} (first stage), {last[2]:.2f} (unsupervised) and {last[3]:.2f}",
    )
    lows = [curve("fig13", model, "entropy_prompt").lowest for model in ("Llama3-8B", *tuned)]
    yield study, f"is {lows[0]:.2f}, {lows[1]:.2f}, {lows[2]:.2f} and {lows[3]:.2f}: no common direction"
    own = pd.read_csv(STUDY / "curves.csv").query("scale == 'small' and experiment == 'fig13'")
    own = own[(own.rows == "centered_unit") & (own.norm == "raw")].set_index(["run", "metric"])
    causal, both = (own.loc[(run, "prompt_entropy")] for run in ("smollm2-135m", "smollm2-135m-switched"))
    yield study, f"{causal.lowest:.2f} nats with causal attention (layer {causal.lowest_at}) and {both.lowest:.2f} with"
    yield study, f"(layer {both.lowest_at}). Data-set entropy"
    causal, both = (own.loc[(run, "dataset_entropy")] for run in ("smollm2-135m", "smollm2-135m-switched"))
    tuned = pd.read_csv(STUDY / "tuned.csv").set_index("experiment")
    yield study, f"from {tuned.before.fig5:.2f} to {tuned.after.fig5:.2f} nats per token"

    def mean(run, length):
        return small("fig5", run, "prompt_entropy", level=length)["mean"]

    pairs = [(mean("smollm2-135m", length), mean("smollm2-135m-tuned", length)) for length in (16.0, 32.0, 48.0)]
    changes = [before - after for before, after in pairs]
    yield study, f"the tuned model is {min(changes):.2f} to {max(changes):.2f} nats lower"
    yield study, f"from {tuned.before.fig13:.2f} to {tuned.after.fig13:.2f} nats"
    yield study, f"at layer {both.lowest_at} it falls from {causal.lowest:.2f} to {both.lowest:.2f} nats"
    steps = [curve("fig4", f"Pythia-410M--step{step}", "entropy_prompt").lowest for step in (1, 4000, 8000, 143000)]
    yield study, f"{steps[0]:.2f} nats at step 1, {steps[1]:.2f} at step 4,000, {steps[2]:.2f} at step 8,000"
    rules = pd.read_csv(STUDY / "rules.csv").query("scale == 'released'").set_index(["experiment", "rule", "family"])
    gain = (rules.chosen - rules["last"]).round(1)
    talk = [gain[("least_entropy", "min:entropy_prompt", model)] for model in ("Pythia-410M", "BERT-base")]
    yield study, f"gains {talk[0]} points on Pythia-410M and {talk[1]} on BERT-base"
    yield docs, f"least prompt entropy gains {talk[0]} points on Pythia-410M and {talk[1]} on BERT"
    pythia, bert, llm2vec = (gain[("table2", "min:dime", m)] for m in ("Pythia-410M", "BERT-base", "LLM2Vec-8B"))
    yield docs, f"least DiME gains {pythia} points on Pythia-410M, loses {-bert} on BERT and {-llm2vec} on LLM2Vec"
    own = pd.read_csv(STUDY / "own_rules.csv").set_index(["rule", "family"])
    lost = own.chosen[("min:prompt_entropy", "all")] - own["last"][("min:prompt_entropy", "all")]
    yield study, f"{-lost:.1f} points on average over the six"


def corrections():
    """What docs/theory.md takes from tables."""
    rows = []
    layers = pd.read_csv(ROOT / "studies/recipes/layers.csv")
    for (_, _, pooling, _), part in layers.groupby(["model", "template", "pooling", "map"]):
        scores = part.set_index("layer")["mean"].sort_index()
        depth = scores.index.max() - 1  # the entry behind it is the last layer after the final norm
        rows.append((pooling, min(scores.idxmax(), depth) >= depth - 2, scores.max() - scores.iloc[-1]))
    found = pd.DataFrame(rows, columns=["pooling", "late", "gain"]).groupby("pooling")
    late, gain = found.late.agg(["sum", "count"]), found.gain.agg(["mean", "min", "max"]).round(3)
    yield f"| {late['sum']['mean']} of {late['count']['mean']} combinations of model, input and map |"
    yield f"| {late['sum']['last']} of {late['count']['last']} |"
    mean, last = (gain.loc[name] for name in ("mean", "last"))
    # A single gain is rounded as the table of studies/recipes rounds it.
    yield f"{mean['mean']:.1f} points ({mean['min']:.1f} to {mean['max'] + 1e-6:.1f})"
    yield f"{last['mean']:.1f} ({last['min']:.1f} to {last['max'] + 1e-6:.1f})"
    table = pd.read_csv(ROOT / "studies/selection/released.csv").set_index(["rule", "family"]).loc["min:dime"]
    shares = (100 * table[["recovered", "low_tasks", "high_tasks"]]).round().astype(int)
    families = ("Pythia", "RoBERTa", "BERT", "LLM2Vec", "all")
    yield line(*("{} % ({} to {})".format(*shares.loc[family]) for family in families))
    scores = pd.read_csv(ROOT / "studies/selection/table2.csv").query("reading == 'English' and tasks == 29")
    scores = scores.set_index("rule").score
    over = (scores - scores["last"]).round(1)
    yield f"the lowest DiME gains {over['min:dime']} points over the last layer"
    yield f"The lowest InfoNCE loses {-over['min:infonce']}, the highest gains {over['max:infonce']}."
    gains = [curve("fig1", m, "mean_score") for m in ("Pythia-410M", "Mamba-370M", "BERT-base", "LLM2Vec-8B")]
    gains = [r.highest - r["last"] for r in gains]
    yield f"in all four models of Fig. 1, by {min(gains):.1f} to {max(gains):.1f} points"


@pytest.mark.parametrize("expected", list(corrections()))
def test_every_number_of_the_corrections_is_that_of_a_table(expected):
    assert expected in words("docs/theory.md")


@pytest.mark.parametrize("number", ["1.3841", "1.7548", "9.70 and 4.16", "2.77", "4.852 > 2.079", "2.06", "0.69"])
def test_the_examples_of_the_corrections_are_those_that_the_study_prints(number):
    assert number in words("docs/theory.md") and number in words("studies/paper/README.md")


@pytest.mark.parametrize(("page", "expected"), list(sentences()))
def test_every_number_in_the_text_is_that_of_the_tables(page, expected):
    assert expected.strip() in words(page)
