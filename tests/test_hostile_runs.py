"""Runs and data from a stranger, damaged ones, and urls with secrets: refused by name, nothing leaks or aborts."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from runs import eval_table, scan_table
from test_remote import Store

import layerwise
from layerwise.campaigns import Campaign
from layerwise.cli.main import main
from layerwise.display import printable, redacted
from layerwise.downstream.data_root import read_root, write_task
from layerwise.downstream.encoder import model_name, one_part
from layerwise.errors import InputError, LayerwiseError
from layerwise.files import open_folder, safe_name

THREADS = """
import os, sys
import pyarrow.parquet
from layerwise.results import LayerTable
before = len(os.listdir("/proc/self/task"))
LayerTable.load(sys.argv[1])
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux lists them")
def test_reading_a_table_starts_no_thread_that_could_outlive_python(tmp_path):
    # A thread of Arrow that frees our bytes while Python ends aborts the process: one `pick RUN` in three did.
    scan_table().save(tmp_path)
    found = subprocess.run([sys.executable, "-c", THREADS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0"


PAIRS = pd.DataFrame({"sentence1": ["w1 w2", "w3 w4", "w5"], "sentence2": ["w1", "w3 w9", "w7"], "score": [1.0, 2, 0]})
BAD_NAMES = ("../../x", "/tmp/x", "a/b", "..", ".hidden", "a\\b", "a\x00b", "a\nb", "", "  ", "x" * 101, "\x1b", 7)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_is_one_safe_part_of_a_path(name):
    with pytest.raises(InputError, match="cannot be used as a file name"):
        safe_name(name, "the name of a task")


def test_names_that_mteb_and_people_use_are_safe():
    for name in ("SICK-R", "STS22.v2", "Banking77Classification", "my topics (2)", "Ünïcode_1", "CQADupstack+x, y"):
        assert safe_name(name, "the name of a task") == name


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("field", ["name", "subset", "revision"])
def test_a_strangers_data_root_cannot_make_eval_write_outside_its_folder(field, tiny_llama, tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", PAIRS)
    path = tmp_path / "root" / "Mine" / "task.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: "../../../escaped"}))
    before = files_below(tmp_path)
    with pytest.raises(LayerwiseError, match="task.json"):
        layerwise.evaluate(tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / "inner" / "out")
    assert files_below(tmp_path) == before


def test_the_data_command_writes_inside_its_root_only(tmp_path, capsys):
    PAIRS.to_csv(tmp_path / "pairs.csv", index=False)
    before = files_below(tmp_path)
    for name in ("../../escape", str(tmp_path / "absolute"), ".."):
        assert main(["data", str(tmp_path / "root"), name, "--type", "STS", "--test", str(tmp_path / "pairs.csv")]) == 2
        assert "cannot be used as a file name" in capsys.readouterr().err
    with pytest.raises(InputError, match="the subset"):
        write_task(tmp_path / "root", "Mine", "STS", PAIRS, subset="../en")
    assert files_below(tmp_path) == before


def test_a_folder_named_in_a_record_is_not_followed(tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", PAIRS)
    path = tmp_path / "root" / "Mine" / "task.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"folder": "/etc"}))
    assert read_root(tmp_path / "root")["Mine"].folder == str(tmp_path / "root" / "Mine")


def test_a_strangers_recipe_or_revision_cannot_name_a_file_elsewhere(tiny_llama, tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", PAIRS)
    with pytest.raises(LayerwiseError):
        recipe = layerwise.Recipe(1, tokens="../../../../escaped")
        layerwise.evaluate(tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / "o", recipes=recipe)
    assert not [name for name in files_below(tmp_path) if "escaped" in name]
    for revision in ("../../x", "refs/pr/1", "/etc", "..", "a\x00b"):
        assert not {"/", "\x00"} & set(one_part(revision)) and not one_part(revision).startswith(".")
    assert model_name("../../x/..") == "local/x"


def test_names_in_a_campaign_stay_one_folder():
    told = {"out": "x", "models": [{"name": "m", "revisions": ["a\x00b"]}, "n" * 300]}
    with pytest.raises(InputError, match="cannot be the name of a folder.*cannot be the name of a folder"):
        Campaign.parse(told, "c.yaml")
    with pytest.raises(InputError, match="letters, digits"):
        Campaign.parse({"out": "x", "models": ["m"], "data": {"../up": {"data": "demo"}}}, "c.yaml")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://AKIAKEY:s3cr3t@runs/a", "s3://***@runs/a"),
        ("s3://AKIAKEY:p/w@runs/a", "s3://***@runs/a"),  # a key with a slash that should have been %2F
        ("https://t0ken@host/a@b", "https://***@host/a@b"),
        ("s3://runs/a?secret_key=s3cr3t&region=x&aToken=t0ken", "s3://runs/a?secret_key=***&region=x&aToken=***"),
        ("cannot open 's3://AKIAKEY:s3cr3t@runs/a' and b://AKIAKEY@c", "cannot open 's3://***@runs/a' and b://***@c"),
        ("s3://runs/campaign/gpt@main/x", "s3://runs/campaign/gpt@main/x"),
        ("me@home.org: no url", "me@home.org: no url"),
    ],
)
def test_secrets_of_a_url_are_not_shown(url, shown):
    assert redacted(url) == shown == redacted(shown)
    assert str(InputError(f"no {url}")) == f"no {shown}" == str(layerwise.LayerwiseError(f"no {url}"))


@pytest.fixture(scope="module")
def store():
    store = Store()
    yield store
    store.close()


def test_a_run_on_an_object_store_leaves_its_secrets_nowhere(store, tiny_llama, tmp_path, capsys, monkeypatch):
    texts = tmp_path / "texts.txt"
    texts.write_text("w1 w2 w3\nw4 w5\nw6 w7 w8 w9\n")
    url = store.url("secret").replace("key:secret@", "AKIAKEY:s3cr3t@")
    call = ["scan", tiny_llama, "--data", str(texts), "--out", url, "--metrics", "curvature"]
    monkeypatch.setattr("sys.argv", ["/usr/bin/layerwise", *call])
    assert main(call) == 0
    assert main([*call, "--seed", "9"]) == 2  # another plan: the message names the folder
    assert main(["report", url, url, "--html", str(tmp_path / "a.html")]) == 0
    assert main(["compare", url, url, "--html", str(tmp_path / "b.html")]) == 0
    assert main(["report", url + "/nothing", "--html", str(tmp_path / "c.html")]) == 2
    assert main(["scan", tiny_llama, "--data", str(texts), "--out", "s3://AKIAKEY:s3/cr3t@runs/a b"]) == 2
    campaign = tmp_path / "c.yaml"
    campaign.write_text(json.dumps({"out": url.replace("/secret", "/many"), "models": [tiny_llama]}))
    assert main(["campaign", str(campaign)]) == 0
    printed = capsys.readouterr()
    written = {"out": printed.out, "err": printed.err}
    written |= {path.name: path.read_text() for path in tmp_path.glob("*.html")}
    for folder in [open_folder(url), *(open_folder(url.replace("/secret", "/many"), p) for p in cells(tiny_llama))]:
        names = [*folder.names(), *(f"prompts/{name}" for name in folder.names("prompts"))]
        written |= {f"{folder}/{name}": (folder.read(name) or b"").decode("latin-1") for name in names}
    assert len(written) >= 10 and "s3://***@runs/secret" in written["a.html"]
    secrets = ("AKIAKEY", "s3cr3t", "cr3t@")
    assert not [(where, secret) for where, text in written.items() for secret in secrets if secret in text]


def cells(model):
    return ["", f"{model.strip('/').replace('/', '--')}@main/demo/default"]


def test_the_error_of_a_store_keeps_the_secret_for_itself(tmp_path):
    with pytest.raises(InputError) as caught:
        open_folder("s3://AKIAKEY:s3cr3t@/x?nonsense=1").read("run.json")
    shown = "".join([str(caught.value), repr(caught.value), repr(open_folder("s3://AKIAKEY:s3cr3t@runs/x"))])
    assert "s3cr3t" not in shown and caught.value.__suppress_context__


EVIL = "evil\x1b]0;title\x07\x1b[2Jmodel\x9b31m"


def test_names_from_a_strangers_run_cannot_steer_the_terminal(tmp_path, capsys):
    scan_table(EVIL).save(tmp_path / "a")
    scan_table("plain").save(tmp_path / "b")
    eval_table(EVIL).save(tmp_path / "c")
    table = layerwise.LayerTable.load(tmp_path / "a")
    assert main(["pick", str(tmp_path / "a")]) == 0
    assert main(["pick", str(tmp_path / "a"), "--json"]) == 0
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert main(["correlate", str(tmp_path / "b"), str(tmp_path / "c")]) == 2
    printed = capsys.readouterr()
    compared, picked = layerwise.compare(table, scan_table("b")), layerwise.pick(table)
    shown = [printed.out, printed.err, repr(table), str(compared), repr(picked)]
    assert not [text for text in shown if set(text) & {"\x1b", "\x07", "\x9b"}]
    assert "evil\\u001b" in printed.out and printable("a\tb\n") == "a\tb\n"


def test_json_that_is_made_printable_says_the_same(tmp_path, capsys):
    scan_table(EVIL).save(tmp_path)
    assert main(["pick", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == EVIL
