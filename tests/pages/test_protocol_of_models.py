"""Held-out models are not scored before the study that is to score them says so."""

import re

import pandas as pd
from places import ROOT

FOLDER = ROOT / "studies" / "protocol"
MODELS = pd.read_csv(FOLDER / "models.csv")
# Columns of a table that hold scores of tasks.
SCORES = {"score", "scores", "test_score", "main_score"}


def test_the_page_shows_the_table():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- models: [^\n]*-->\n.*?\|---.*?\n(.*?)<!-- end of models -->", page, re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    assert rows == MODELS.drop(columns="scored").to_numpy().tolist()


def test_each_model_is_for_development_or_held_out_for_one_study():
    assert set(MODELS.role) == {"development", "held out"} and MODELS.model.is_unique
    assert (MODELS.scored_by[MODELS.role == "development"] == "any study").all()
    assert set(MODELS.scored_by[MODELS.role == "held out"]) == {"shrink", "choosing among models", "evidence"}


def scored_models():
    """Each table of scores with the models that are named in it."""
    for path in sorted((ROOT / "studies").rglob("*.csv")):
        table = pd.read_csv(path)
        if SCORES & set(table.columns) and (column := next((c for c in ("model", "whole") if c in table), None)):
            yield path.relative_to(ROOT), set(table[column].astype(str).str.lower())


def test_no_table_of_scores_has_a_model_that_is_still_held_out():
    held_out = set(MODELS.model[MODELS.scored == "no"])
    tables = dict(scored_models())
    assert len(tables) > 3, "tables of scores were found"
    for path, models in tables.items():
        assert not models & held_out, f"{path} has scores of {models & held_out}: see {FOLDER.name}"
