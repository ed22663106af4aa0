"""What README.md and the docs claim in numbers is what the committed tables say."""

import json
import re

import pandas as pd
import pytest
from places import ROOT, script

from layerwise.core.recipe import Recipe
from layerwise.verbs.pick.candidates import widened
from layerwise.verbs.pick.labels import MIN_LABELS
from layerwise.verbs.pick.run import LABELS_FOR_EQUAL_WEIGHT

STUDY = ROOT / "studies" / "selection"
README, PICK, EXPORT, VIEWS, EVAL, SELECTION = (
    " ".join((ROOT / name).read_text(encoding="utf-8").split())
    for name in (
        "README.md",
        "docs/pick.md",
        "docs/export.md",
        "studies/views/README.md",
        "studies/eval/README.md",
        "studies/selection/README.md",
    )
)


@pytest.fixture(scope="module")
def headline():
    return script(STUDY / "headline.py")


@pytest.fixture(scope="module")
def found(headline):
    return headline.table()


@pytest.fixture(scope="module")
def figure(found):
    """One figure by (model or set of models, fit, recipe, name)."""
    known = found.fillna({"fitted_on": ""}).set_index(["models", "fitted_on", "recipe", "figure"]).sort_index()
    return lambda *at: known.loc[at].iloc[0] if isinstance(known.loc[at], pd.DataFrame) else known.loc[at]


def span(row, digits=1):
    return f"({row.low:.{digits}f} to {row.high:.{digits}f})"


SMOL, GEMMA = "smollm2-135m", "gemma3-270m"


def test_headline_csv_is_what_its_script_computes_from_the_other_tables(found):
    committed = pd.read_csv(STUDY / "headline.csv")
    pd.testing.assert_frame_equal(committed, found.reset_index(drop=True), atol=2e-4, check_dtype=False)


def test_the_pages_show_the_tables_of_the_study_of_recipes():
    tables = script(ROOT / "studies/recipes/tables.py")
    blocks = tables.make_blocks()
    for page in tables.PAGES:
        text = page.read_text(encoding="utf-8")
        shown = [name for name in blocks if f"<!-- {name}: written by tables.py -->" in text]
        assert shown and tables.write_blocks(page, blocks, check=True), page
    assert "Only these two language models were tested" in README


def test_the_gains_of_the_study_are_those_of_its_scores_and_the_test_tasks_are_those_of_the_protocol():
    tables = script(ROOT / "studies/recipes/tables.py")
    protocol = json.loads((ROOT / "studies/recipes/protocol.json").read_text(encoding="utf-8"))
    scores = pd.read_csv(ROOT / "studies/recipes/test.csv")
    assert set(scores.task) == set(protocol["test"]["tasks"]) and set(scores.model) == set(protocol["test"]["models"])
    means = tables.type_means(scores)["mean"]
    for row in pd.read_csv(ROOT / "studies/recipes/gains.csv").itertuples():
        assert row.gain == pytest.approx(means[(row.model, row.recipe)] - means[(row.model, row.over)], abs=0.006)
        assert row.low - 0.006 <= row.gain <= row.high + 0.006


def test_the_table_of_the_study_of_selection_is_the_headline_table(headline, found):
    page = (STUDY / "README.md").read_text(encoding="utf-8")
    for line in headline.page_tables(found)["texts"]:
        assert line in page


def test_pick_quotes_the_gains_without_a_template_and_the_worst_type(figure, headline):
    chosen = [figure(model, "texts", "chosen", "over last") for model in (SMOL, GEMMA)]
    gained = " and ".join(f"{row.value:.1f} {span(row)}" for row in chosen)
    assert f"an earlier rule {gained}; its worst type was clustering" in PICK
    alone = " and ".join(f"{figure(model, 'texts', 'static', 'over last').value:.1f}" for model in (SMOL, GEMMA))
    assert f"whitened token embeddings first, which run no block: they gained {alone} points on 22 tasks" in PICK
    scores = headline.recipe_scores("texts").pivot_table(index=["model", "task"], columns="recipe", values="score")
    types = pd.read_csv(STUDY / "test_ideas.csv").drop_duplicates("task").set_index("task").type
    by_type = (scores.chosen - scores["last"]).groupby(["model", lambda at: types[at[1]]]).mean()
    assert by_type.idxmin() == (GEMMA, "Clustering")
    assert f"its worst type was clustering, {by_type.min():.1f} on Gemma3-270M" in PICK


def test_the_pages_show_the_ablation_that_was_scored(headline, found):
    block = headline.ablation_block(found)
    for page in headline.PAGES:
        assert f"{headline.START}\n{block}\n{headline.END}" in page.read_text(encoding="utf-8"), page
    if headline.ABLATION.exists():
        tasks = pd.read_csv(headline.ABLATION).groupby(["model", "recipe"]).task.agg(frozenset)
        assert len(set(tasks)) == 1 and len(tasks) == 12  # six recipes of two models, all on the same tasks
        assert f"on {len(tasks.iloc[0])} of the 22 tasks" in block
    else:
        ideas = pd.read_csv(STUDY / "test_ideas.csv").query("model == 'gemma3-270m' and transform == 'remove_top:3'")
        ideas = ideas[(ideas.fitted_on == "texts") & (ideas.layer == 18)]
        assert f"has {ideas.score.mean():.2f} (`test_ideas.csv`)" in block and len(ideas) == 22


def test_recipes_that_the_ablation_scored_again_have_the_scores_of_the_study():
    keys = ["model", "layer", "readout", "transform", "task"]
    ideas = pd.read_csv(STUDY / "test_ideas.csv").query("tokens == 'all' and fitted_on != 'task'")
    both = pd.read_csv(STUDY / "ablation_whole.csv").merge(ideas, on=keys, suffixes=("", "_study"))
    assert set(both.recipe) >= {"last", "static", "chosen", "chosen without static"}
    apart = (both.score - both.score_study).abs().groupby(both.type).max()
    assert apart["STS"] <= 0.0011  # the study kept three digits
    assert apart["Classification"] <= 0.1  # the last bits of vectors move a logistic regression


def test_the_study_quotes_gains_over_the_static_baseline_and_without_single_tasks(figure):
    for name, pattern in (
        ("over static", "| over the static baseline, both of WikiText-2 | +{} {} | +{} {} |"),
        ("over last, without WikiQARetrieval", "| without the one retrieval task | +{} {} | +{} {} |"),
        ("over last, without tasks like the probes", "Without these tasks the gains are {} and {}."),
    ):
        rows = [figure(model, "texts", "chosen", name) for model in (SMOL, GEMMA)]
        cells = [f"{row.value:.1f}" for row in rows]
        if pattern.count("{}") == 4:
            cells = [part for row in rows for part in (f"{row.value:.1f}", span(row))]
        assert pattern.format(*cells) in SELECTION, name


def test_the_study_calls_fitting_on_the_test_sets_own_texts_transductive(figure):
    for recipe, words in (("chosen", ""), ("static", "whitened token embeddings alone, ")):
        smol, gemma = (figure(model, "task", recipe, "over last") for model in (SMOL, GEMMA))
        gains = f"+{smol.value:.1f} {span(smol)} | +{gemma.value:.1f} {span(gemma)}"
        assert f"| {words}own texts (transductive) | {gains} |" in SELECTION


def test_the_study_gives_shares_recovered_with_and_without_the_model_that_carries_them(figure):
    sets = ("all five", "without smollm2-135m", GEMMA)
    every, rest, gemma = (figure(name, "", "layer alone", "recovered") for name in sets)
    assert f"recovers {every.value:.0f} % {span(every, 0)} of the gap" in SELECTION
    assert f"{rest.value:.0f} % {span(rest, 0)} without SmolLM2" in SELECTION
    assert f"{gemma.value:.0f} % {span(gemma, 0)} on Gemma3" in SELECTION
    audited = pd.read_csv(STUDY / "test_layers.csv").query("rule == 'probes-2' and family == 'all'").iloc[0]
    assert every.value == pytest.approx(100 * audited.recovered, abs=0.02)
    assert every.low == pytest.approx(100 * audited.low_tasks, abs=0.02)


def test_pick_shows_both_directions_of_the_papers_rule():
    table = pd.read_csv(STUDY / "released.csv").query("family == 'all'").set_index("rule")
    said = {
        "min:dime": "| lowest DiME (the paper's rule) |",
        "max:dime": "| highest DiME |",
        "depth:80%": "| a fixed depth of 80 % |",
    }
    for rule, words in said.items():
        row = table.loc[rule]
        share = f"{100 * row.recovered:.0f} % ({100 * row.low_tasks:.0f} to {100 * row.high_tasks:.0f})"
        assert f"{words} {share}" in PICK, rule


def test_pick_says_what_the_template_gives_and_what_labels_give():
    tables = script(ROOT / "studies/recipes/tables.py")
    gains = pd.read_csv(ROOT / "studies/recipes/gains.csv").query("over == 'last'")
    gains = gains.pivot(index="model", columns="recipe", values="gain").loc[[SMOL, GEMMA]]
    template = " and ".join(f"{gain:.1f}" for gain in gains.template)
    assert f"(last layer, last token, no map) already gains {template} points" in PICK
    rest = " and ".join(f"{gain:.1f}" for gain in gains.all_dimensions - gains.template)
    assert f"Map, appended mean and layer together add {rest}." in PICK
    means = tables.type_means(pd.read_csv(ROOT / "studies/recipes/test.csv"))["mean"].unstack()
    fixed = means.chosen - means["last"]
    assert f"with 256, gains {fixed[SMOL]:.1f} and {fixed[GEMMA]:.2f}" in PICK
    whole = means.all_dimensions
    assert f"SmolLM2-135M {whole[SMOL]:.1f} and Gemma3-270M {whole[GEMMA]:.1f} with what `pick` recommends" in PICK
    cost = (whole - means.chosen).loc[[SMOL, GEMMA]]
    assert f"(`--dims 256`) cost {cost[SMOL]:.1f} and {cost[GEMMA]:.1f} points" in PICK
    cells = [line.split(" | ") for line in tables.few_labels_table().splitlines()]
    (every,) = [row for row in cells if row[0] == "| **all** (8 models)"]
    best = "the gap between the last layer and each task's best candidate"
    assert f"recovers {every[3]} of {best} without labels, and {every[4]} with them" in PICK
    share = {row[0]: [int(cell.split()[0]) for cell in row[3:5]] for row in cells[2:-2]}
    name, (without, with_labels) = min(share.items(), key=lambda one: one[1][1] - one[1][0])
    assert f"worst change: {name.removeprefix('| ')}, {with_labels} % instead of {without} %" in PICK
    assert sum(without == 0 for without, _ in share.values()) == 4


def test_the_rulebook_has_the_gains_of_the_study():
    audit = json.loads((ROOT / "src/layerwise/verbs/pick/rulebook.json").read_text())["audit"]
    gains = pd.read_csv(ROOT / "studies/recipes/gains.csv").query("recipe == 'all_dimensions' and over == 'last'")
    gains = gains.set_index("model")
    assert audit["tasks"] == pd.read_csv(ROOT / "studies/recipes/test.csv").task.nunique()
    for model, name in ((SMOL, "SmolLM2-135M"), (GEMMA, "Gemma3-270M")):
        row = gains.loc[model]
        assert audit["gains"][name] == pytest.approx([row.gain, row.low, row.high], abs=0.06)
    assert len(audit["gains"]) == 2


def test_export_tells_which_certificates_exceed_a_millionth():
    table = pd.read_csv(ROOT / "studies/export/certificates.csv")
    share = table.max_difference / table.largest_entry
    large = share[share > 1e-6]
    assert len(table) == 13 and len(large) == 3
    assert f"by {large.min():.1e} to {large.max():.1e}".replace("e-06", "e-6") in EXPORT
    cut = pd.read_csv(ROOT / "studies/export/truncated.csv").groupby("model").cosine
    for name, words in ((SMOL, "SmolLM2-135M"), (GEMMA, "Gemma3-270M"), ("stories15m", "stories15M")):
        assert f"{cut.min()[name]:.2f} to {cut.max()[name]:.2f} ({words})" in EXPORT
    assert cut.min()[["all-minilm-l6-v2", "gte-small"]].min() > 0.9999


def test_the_cost_of_a_scan_is_that_of_the_benchmark():
    """benchmarks/README.md against benchmarks/overhead.csv: ratios and ranges, parts, and megabytes."""
    table = pd.read_csv(ROOT / "benchmarks/overhead.csv")
    table["shown"] = [f"{row.cpu:.2f} ({row.cpu_low:.2f} to {row.cpu_high:.2f})" for row in table.itertuples()]
    scans = table[(table.run == "lengths") & (table.way == "scan") & (table.dtype == "float32")]
    scans = scans.set_index(["model", "tokens"])
    page = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    found = re.findall(r"(?m)^\|([^|]*)\| (\d+) \| ([\d.]+ \([^|]*\))" + r" \| ([\d.]+)" * 5 + r" \|$", page)
    names = {"1024": "neox-410m", "512": "neox-70m", "576": "smollm2-135m", "384": "all-minilm-l6-v2"}
    model = ""
    for name, tokens, ratio, *numbers in found:
        model = names[re.search(r"width (\d+)", name)[1]] if name.strip() else model
        row = scans.loc[(model, int(tokens))]
        assert ratio == row.shown
        rest = row.pooling + row.curvature + row["other readings"]
        expected = (row.predicted, row.gram, row.eigenvalues, row.accumulators, rest)
        assert numbers == [f"{value:.2f}" for value in expected]
    assert len(found) == len(scans) == 13
    words = " ".join(page.split())
    for others in (table[table.run == "views"], table[table.run == "peers"]):
        for row in others[others.way != "taps"].itertuples():
            assert row.shown in words, row
    assert table[(table.dtype == "bfloat16") & (table.way == "scan")].shown.item() in words
    peers = table[table.run == "peers"].set_index(["model", "way"]).megabytes.map("{:.0f}".format)
    for model in ("neox-410m", "smollm2-135m"):
        assert re.search(rf"{peers[model, 'scan']} (MB )?instead of {peers[model, 'naive']}", words)


def test_the_cost_of_the_whole_command_is_that_of_the_benchmark():
    table = pd.read_csv(ROOT / "benchmarks/whole_scan.csv")
    words = " ".join((ROOT / "benchmarks/README.md").read_text(encoding="utf-8").split())
    both = table[table.model == "stories15m"].set_index("way").cpu
    assert f"takes {both['command']:.0f} s of CPU time" in words
    assert f"takes {both['loop']:.0f} s: {both['command'] / both['loop']:.2f} times as much" in words
    by_prompts = table[table.model == "stories260k"].set_index("prompts")
    for prompts, row in by_prompts.iterrows():
        assert f"| {prompts:,} | {row.cpu:.1f} | {1000 * row.cpu / prompts:.1f} | {row.megabytes:.0f} |" in words
    assert list(by_prompts.index) == [1_000, 10_000, 100_000]


def test_no_sinks_is_not_no_first_and_the_study_of_eval_says_how_often():
    scores = pd.read_csv(ROOT / "studies/eval/scores.csv").query("readout == 'raw'")
    for model, low, high in ((SMOL, 12, 28), (GEMMA, 5, 10)):
        some = scores[(scores.model == model) & scores.layer.between(low, high)]
        grid = some.pivot_table(index=["layer", "task"], columns="tokens", values="value")
        assert f"layers {low} to {high} the" in EVAL or f"layers {low} to {high} they" in EVAL
        assert f"equal in {(grid.no_sinks == grid.no_first).sum()} of {len(grid)}" in EVAL


def test_table_2_of_the_paper_is_what_the_released_results_give(shared, monkeypatch):
    monkeypatch.syspath_prepend(STUDY)  # as if it were run from there: it imports a neighbour
    again = script(STUDY / "released.py").table2(shared("data/released"))
    pd.testing.assert_frame_equal(again, pd.read_csv(STUDY / "table2.csv"))
    printed = again.set_index(["reading", "tasks", "rule"]).score.round(1)
    assert printed["first entry", 32, "last"] == 45.5 and printed["first entry", 29, "min:dime"] == 48.5


def test_the_counts_of_the_campaign_are_those_of_its_results():
    table = pd.read_csv(ROOT / "tests" / "abuse" / "results.csv")
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    names = {
        "inputs": "odd texts", "arguments": "argument combinations", "damage": "damages",
        "kills": "kills and failing disks", "concurrency": "concurrent pairs", "stores": "vanished stores",
        "hostile": "hostile models, runs, data, campaigns",
    }  # fmt: skip
    for kind, name in names.items():
        rows = table[table.kind == kind]
        clean = rows[rows.failures == 0]
        seeds = ", ".join(map(str, sorted(clean.seed.unique())))
        (line,) = re.findall(rf"(?m)^\| {name} \| ([\d,]*\d).* \| ([\d,]+ \(seeds? [\d, ]+\)) \|$", page)
        assert line == (f"{rows['count'].sum():,}", f"{clean['count'].sum():,} (seed{'s' * (',' in seeds)} {seeds})")


def page(name):
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_pages_agree_on_what_labels_count_and_on_what_doubles_the_width():
    assert (MIN_LABELS, LABELS_FOR_EQUAL_WEIGHT) == (16, 32)
    assert "32 labels count as much as all other tests together, 16 half as much" in PICK
    for name in ("docs/questions.md", "docs/pick.md"):
        assert "16 to 256" in page(name) and "did not improve" in page(name)
    recipe = widened(Recipe(layer=3, pooling="last", transform="remove_top:8"), static=False)
    assert recipe.transform == "remove_top:8+mean", "twice the width, also with --no-static"
    assert "In a template, the mean over all tokens doubles it in any case" in PICK


def test_pages_agree_on_which_commands_read_texts_only():
    (listed,) = re.findall(r"Commands that work on texts only \((.*?)\)", page("docs/architecture.md"))
    names = set(re.findall(r"`([\w ]+)`", listed))
    for kind, more in (("image", set()), ("audio", {"export"})):
        text = page("docs/images.md" if kind == "image" else "docs/audio.md")
        (refused,) = re.findall(rf"((?:`[\w ]+`[\w ,]*)+) raise an error for {kind} models", text)
        assert set(re.findall(r"`([\w ]+)`", refused)) == names | more


def test_pages_give_the_sizes_of_shrunk_and_static_models():
    sizes = pd.read_csv(ROOT / "docs/gallery/gallery.csv").query("made == 'shrink'").set_index("model")
    trained = pd.read_csv(ROOT / "studies/shrink/models.csv").query("minutes == 30").set_index("model")
    before, after = sizes.parameters_before["gte-small"] / 1e6, trained.parameters["gte-small"] / 1e6
    assert f"gte-small has {after:.1f} of {before:.1f} million" in page("docs/shrink.md")
    order = ["all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2"]
    minutes = [f"{seconds / 60:.0f}" for seconds in trained.seconds[order]]
    assert f"took {minutes[0]}, {minutes[1]} and {minutes[2]} minutes" in page("studies/shrink/README.md")
    costs = pd.read_csv(ROOT / "studies/static/costs.csv").set_index(["model", "method"]).megabytes["all-minilm-l6-v2"]
    assert f"takes {costs['static']:.0f} MB for all-MiniLM-L6-v2 ({costs['whole']:.0f} MB whole)" in page(
        "docs/static.md"
    )


def test_the_advice_on_an_index_was_right_in_every_case_that_was_tried():
    """Keeping the index loses beyond its interval and re-embedding loses more, so no other advice would be right."""
    table = pd.read_csv(ROOT / "studies/shrink/advice.csv")
    assert set(table.advice) == {"original", "unknown"} and set(table.texts[table.advice == "unknown"]) == {"requests"}
    assert (table.keeping_high < 0).all() and (table.re_embedding_high < 0).all()
    study, shrink = page("studies/shrink/README.md"), page("docs/shrink.md")
    for row in table.itertuples():
        gain = f"{row.keeping_gain:+.3f} ({row.keeping_low:+.3f} to {row.keeping_high:+.3f})"
        assert f"| {row.old:.3f} | {row.new_queries:.3f} | {row.new:.3f} | {gain} |" in study
    kept, again = (f"{-gain.max():.3f} to {-gain.min():.3f}" for gain in (table.keeping_gain, table.re_embedding_gain))
    assert f"in {len(table)} trials on 237 questions of WikiQA, another {again} of MRR." in shrink
    assert f"in the old index {kept} of MRR, and re-embedding the documents another {again}." in study
