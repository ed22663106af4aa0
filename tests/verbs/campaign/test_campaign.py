"""Campaigns: a file is checked as a whole, cells are done once, a model that fails stops no other."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from families import make_model, make_tokenizer
from places import ROOT

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.models import opening
from layerwise.verbs.campaign.plan import Campaign

PAGE = ROOT / "docs" / "scale.md"


@pytest.fixture
def file(tiny_llama, tiny_bert, tmp_path, word_texts):
    """A campaign of three models, two data sets and two settings."""
    texts = str(tmp_path / "texts.txt")
    Path(texts).write_text("\n".join(word_texts))
    record = {
        "out": str(tmp_path / "out"),
        "models": [*(shutil.copytree(tiny_llama, str(tmp_path / name)) for name in ("a", "b")), tiny_bert],
        "data": {"all": {"data": texts}, "few": {"data": texts, "limit": 9}},
        "settings": {"fast": {"metrics": "prompt_entropy,dataset_entropy"}, "first": {"tokens": "no_first"}},
    }
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(record))
    return path


def change(path, **changes):
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def test_every_cell_is_that_scan_and_the_table_joins_them(file, tiny_bert, word_texts, tmp_path):
    table = layerwise.campaign(file)
    frame = table.to_pandas()
    assert len(frame.groupby(["model", "revision", "data"])) == 6 and len(table.run["runs"]) == 12
    alone = layerwise.scan(tiny_bert, layerwise.texts(tmp_path / "texts.txt", limit=9), tokens="no_first")
    found = frame[(frame.model == tiny_bert) & (frame.tokens == "no_first") & frame.data.str.contains("first 9")]
    pd.testing.assert_frame_equal(found.reset_index(drop=True), alone.to_pandas(), check_exact=True)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / "table.parquet"), frame)


def test_what_is_done_is_not_done_again_and_a_failure_stops_no_other(file, tmp_path, capsys, monkeypatch):
    broken = tmp_path / "broken"
    make_model("llama").config.save_pretrained(broken)
    make_tokenizer().save_pretrained(broken)
    models = yaml.safe_load(file.read_text())["models"]
    change(file, models=[str(broken), *models])
    assert main(["campaign", str(file)]) == 2
    printed = capsys.readouterr().err
    assert "4 of 16 scans failed" in printed and "has no weights" in printed and printed.count("done ") == 12
    make_model("llama").save_pretrained(broken)
    loaded = []
    real = opening.load_network
    monkeypatch.setattr("layerwise.models.opening.load_network", lambda spec: (loaded.append(spec.name), real(spec))[1])
    assert main(["campaign", str(file), "--json"]) == 0
    assert loaded == [str(broken)]
    assert len({row["model"] for row in json.loads(capsys.readouterr().out)["scores"]}) == 4
    assert main(["campaign", str(file), "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 16


def test_a_cell_that_changed_under_its_name_is_refused(file):
    layerwise.campaign(file)
    change(file, settings={"fast": {"metrics": "curvature"}})
    with pytest.raises(RunError, match="rename the data or the settings"):
        layerwise.campaign(file)


def test_scans_that_differ_in_anything_have_folders_of_their_own(file, tiny_bert):
    change(file, models=[tiny_bert, {"name": tiny_bert, "dtype": "float64"}])
    assert len({cell.name for cell in Campaign.load(file).cells}) == 8
    change(file, models=[tiny_bert, tiny_bert, {"name": "x", "revisions": "step1000"}])
    with pytest.raises(InputError, match="listed 2 times.*|revisions must be a list"):
        Campaign.load(file)


def test_an_error_that_nobody_foresaw_stops_no_other_scan(file, monkeypatch, capsys):
    real = layerwise.verbs.campaign.api.execute

    def execute(model, plan, source, **options):
        if "first 9" in source.name:
            raise OSError("the disk is full")
        return real(model, plan, source, **options)

    monkeypatch.setattr("layerwise.verbs.campaign.api.execute", execute)
    assert main(["campaign", str(file)]) == 2
    assert "6 of 12 scans failed" in (printed := capsys.readouterr().err) and "OSError: the disk is full" in printed


def test_everything_that_is_wrong_with_a_file_is_told_at_once(file, tmp_path):
    change(
        file, models=[{"nam": "x"}, {"name": "y", "dtyp": "float16"}], data={"a b": {"limt": 3}}, engine="spark",
        settings={"one": {"metric": "fast"}}, colour="red",
    )  # fmt: skip
    with pytest.raises(InputError) as refused:
        Campaign.load(file)
    for part in (
        "has no 'colour'",
        "a model must be a name",
        "did you mean dtype?",
        "only letters, digits",
        "did you mean limit?",
        "add the file or data set",
        "'spark' is not one of",
        "did you mean metrics?",
    ):
        assert part in str(refused.value)
    with pytest.raises(InputError, match="no campaign file was given"):
        Campaign.load("")
    with pytest.raises(InputError, match="cannot read"):
        Campaign.load(tmp_path / "nothing.yaml")
    file.write_text("models: [")
    with pytest.raises(InputError, match="is not YAML"):
        Campaign.load(file)
    file.write_text("[]")
    with pytest.raises(InputError, match="out, models, data and settings"):
        Campaign.load(file)


def test_the_query_of_the_docs_gives_what_the_page_says(file, monkeypatch, tmp_path):
    layerwise.campaign(file)
    monkeypatch.chdir(tmp_path)
    Path("pythia").symlink_to("out")
    sql = re.search(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1)
    found = pytest.importorskip("duckdb").sql(sql).df()
    table = pd.read_parquet("pythia/table.parquet")
    curves = table[(table.metric == "prompt_entropy") & (table.norm == "raw")]
    best = curves.loc[curves.groupby(["model", "revision", "data", "tokens"]).value.idxmin()]
    columns = ["model", "revision", "data", "tokens", "layer", "value"]
    found, best = (frame[columns].sort_values(columns).reset_index(drop=True) for frame in (found, best))
    assert len(found) > 3
    pd.testing.assert_frame_equal(found, best, check_dtype=False)


def test_every_revision_is_a_model_of_its_own(file):
    change(file, models=[{"name": "org/model", "revisions": ["step1", "step2"]}])
    cells = Campaign.load(file).cells
    assert {cell.model.revision for cell in cells} == {"step1", "step2"} and len({cell.name for cell in cells}) == 8


def test_a_page_of_a_campaign_names_its_file(file, tmp_path):
    change(file, models=yaml.safe_load(file.read_text())["models"][:2], settings={"one": {"metrics": "curvature"}})
    layerwise.campaign(file)
    page = layerwise.report(tmp_path / "out", html=tmp_path / "p.html").read_text()
    commands = re.search(r'<pre id="commands" tabindex="0">(.*?)</pre>', page, re.DOTALL).group(1).splitlines()
    assert commands == [f"layerwise campaign {file}", f"layerwise report {tmp_path}/out --html {tmp_path}/p.html"]
