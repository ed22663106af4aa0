"""The numbers in studies/paper and docs/reproduce.md are those of the study's tables."""

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent
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


LINES = [*table_lines(), *own_lines(), *rule_lines(), *diversity_lines(), *size_lines()]


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
    yield study, f"at layer {both.lowest_at} it falls from {causal.lowest:.2f} to {both.lowest:.2f} nats"
    steps = [curve("fig4", f"Pythia-410M--step{step}", "entropy_prompt").lowest for step in (1, 4000, 8000, 143000)]
    yield study, f"{steps[0]:.2f} nats at step 1, {steps[1]:.2f} at step 4,000, {steps[2]:.2f} at step 8,000"
    rules = pd.read_csv(STUDY / "rules.csv").query("scale == 'released'").set_index(["experiment", "rule", "family"])
    gain = (rules.chosen - rules["last"]).round(1)
    talk = [gain[("least_entropy", "min:entropy_prompt", model)] for model in ("Pythia-410M", "BERT-base")]
    yield study, f"gains {talk[0]} points on Pythia-410M and {talk[1]} on BERT-base"
    yield docs, f"least prompt entropy gains {talk[0]} points on Pythia-410M and {talk[1]} on BERT"
    yield docs, f"least DiME gains {gain[('table2', 'min:dime', 'Pythia-410M')]} points on Pythia-410M"
    own = pd.read_csv(STUDY / "own_rules.csv").set_index(["rule", "family"])
    lost = own.chosen[("min:prompt_entropy", "all")] - own["last"][("min:prompt_entropy", "all")]
    yield study, f"{-lost:.1f} points on average over the six"


@pytest.mark.parametrize(("page", "expected"), list(sentences()))
def test_every_number_in_the_text_is_that_of_the_tables(page, expected):
    assert expected.strip() in words(page)
