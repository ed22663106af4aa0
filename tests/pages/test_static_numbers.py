"""Measured numbers of studies/static: its tables are made again from the CSV files and must stand in the page."""

import importlib.util

import pandas as pd
import pytest
from places import ROOT

STATIC = ROOT / "studies" / "static"


def tables():
    spec = importlib.util.spec_from_file_location("static_table", STATIC / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["lines_of_scores", "lines_of_choices", "lines_of_costs", "lines_of_index"])
def test_the_tables_of_the_page_are_those_of_the_csv_files(name):
    page = (STATIC / "README.md").read_text()
    lines = list(getattr(tables(), name)())
    assert len(lines) > 2
    assert not [line for line in lines if line not in page]


def claims():
    table = tables()
    means, costs = table.test_scores().mean(), table.csv("costs.csv").set_index(["model", "method"])
    small, other = "all-minilm-l6-v2", "gte-small"
    yield (
        f"the static model of all-MiniLM-L6-v2 scores {means[small, 'static']:.2f}, model2vec's "
        f"{means[small, 'model2vec']:.2f}, the whole model {means[small, 'whole']:.2f}"
    )
    large = "all-mpnet-base-v2"
    yield (
        f"For gte-small it is {means[other, 'static']:.2f} against {means[other, 'model2vec']:.2f}, for {large} "
        f"{means[large, 'static']:.2f} against {means[large, 'model2vec']:.2f}"
    )
    for model in (small, other, large):
        gaps = table.test_scores()[model, "static"] - table.test_scores()[model, "model2vec"]
        assert "(+" in table.difference(gaps), "the interval is above 0, as the page says"
    fast, index = costs.times_as_fast.round().astype(int), table.csv("index.csv").set_index("model").loc[small]
    times = [fast[model, "static"] for model in (small, other)]
    yield f"{times[0]} times as fast as all-MiniLM-L6-v2 and {times[1]} times as fast as gte-small"
    yield f"with an MRR of {index.static_queries:.3f} (WikiQA); its own queries reach {index.teacher:.3f}"


def words(page):
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_the_sentences_of_the_study_are_those_of_the_csv_files():
    text = words("studies/static/README.md")
    assert not [claim for claim in claims() if claim not in text]


def test_the_page_gives_the_worst_task_beside_the_mean():
    table = tables()
    scores, wholes = table.test_scores(), pd.read_csv(STATIC.parent / "shrink" / "scores.csv")
    wholes = wholes[wholes.method == "whole"].pivot(index="task", columns="model", values="score").loc[scores.index]
    assert (wholes["all-minilm-l6-v2"] == scores["all-minilm-l6-v2", "whole"]).all(), "the same tasks and examples"
    fast = table.csv("costs.csv").set_index(["model", "method"]).times_as_fast
    docs, worst = (ROOT / "docs/static.md").read_text(encoding="utf-8"), []
    for model in ("all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2"):
        gap = scores[model, "static"] - wholes[model]
        assert len(gap) == 15 and gap.idxmin() == "WikiQARetrieval"
        worst.append(-gap.min())
        cells = (
            f"{wholes[model].mean():.2f}", f"{scores[model, 'static'].mean():.2f}", table.difference(gap),
            f"{gap.min():.1f}", f"{scores[model, 'model2vec'].mean():.2f}", f"{fast[model, 'static']:.0f}",
        )  # fmt: skip
        assert table.line(model, *cells) in docs, table.line(model, *cells)
    assert "lose {:.1f}, {:.1f} and {:.1f} points there".format(*worst) in words("studies/static/README.md")
    index = table.csv("index.csv").set_index("model")
    falls = [f"from {row.teacher:.3f} to {row.static_queries:.3f} for {{}}" for row in index.itertuples()]
    of_index = dict(zip(index.index, falls, strict=True))
    small, large = of_index["all-minilm-l6-v2"], of_index["all-mpnet-base-v2"]
    assert (index.teacher - index.static_queries).idxmax() == "all-mpnet-base-v2", "the worst"
    said = f"falls {small.format('all-MiniLM-L6-v2')}, and {large.format('all-mpnet-base-v2')}, the worst"
    assert said in words("docs/static.md")


def test_the_shrunk_model_is_compared_on_the_same_tasks():
    scores = pd.read_csv(STATIC.parent / "shrink" / "scores.csv")
    tasks = tables().test_scores().index
    own = scores[(scores.cell == "all-minilm-l6-v2-linear-3-measured-24000") & scores.task.isin(tasks)]
    assert len(own) == len(tasks) == 15
    page = " ".join((STATIC / "README.md").read_text().split())
    assert f"with a linear map scores {own.score.mean():.2f} on the same tasks" in page
    means = scores[scores.task.isin(tasks)].groupby("cell").score.mean()
    whole, half = (means[f"gte-small-{name}"] for name in ("whole-12---0", "distill-6-30min-measured-24000"))
    assert f"whole gte-small scores {whole:.2f} on the same tasks, and {half:.2f} with half of its blocks" in page
    assert f"the whole all-mpnet-base-v2 scores {means['all-mpnet-base-v2-whole-12---0']:.2f}" in page


def test_the_choices_were_compared_on_development_tasks_only():
    table = tables()
    scores, compared = table.csv("scores.csv"), table.csv("choices.csv")
    development = set(scores[scores.development].task)
    assert development and development == set(compared.columns) & set(scores.task)


def test_a_static_model_is_better_than_that_of_model2vec_and_fifty_times_as_fast_as_its_teacher():
    table = tables()
    scores, costs = table.test_scores(), table.csv("costs.csv")
    for model in {model for model, method in scores.columns if method == "static"}:
        assert scores[model, "static"].mean() > scores[model, "model2vec"].mean()
        assert costs[(costs.model == model) & (costs.method == "static")].times_as_fast.item() > 50
