"""Runs and data from a stranger, damaged ones, and urls with secrets: refused by name, nothing leaks or aborts."""

import ast
import html
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_runs import eval_table, scan_table
from object_store import Store

import layerwise
from layerwise.__main__ import main
from layerwise.cli.shared import wrapped
from layerwise.core.display import command_line, printable, redact, redact_record, redact_value
from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.core.files import open_folder, safe_name
from layerwise.models.opening import open_network
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.eval.data_root import read_root, write_task
from layerwise.verbs.eval.encoder import model_name, safe_path_part
from layerwise.verbs.report.overview import best_and_last

THREADS = """
import os, sys
import pyarrow.parquet
from layerwise.runs.table import LayerTable
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


def changed(path, values):
    """A record as a stranger would change it: the checksum, which anybody can leave out, is gone."""
    return {name: value for name, value in json.loads(path.read_text()).items() if name != "checksum"} | values


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("field", ["name", "subset", "revision"])
def test_a_strangers_data_root_cannot_make_eval_write_outside_its_folder(field, tiny_llama, tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", PAIRS)
    path = tmp_path / "root" / "Mine" / "task.json"
    path.write_text(json.dumps(changed(path, {field: "../../../escaped"})))
    before = files_below(tmp_path)
    with pytest.raises(LayerwiseError, match="task.json"):
        layerwise.eval(tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / "inner" / "out")
    assert files_below(tmp_path) == before


def test_the_data_command_writes_inside_its_root_only(tmp_path, capsys):
    PAIRS.to_csv(tmp_path / "pairs.csv", index=False)
    before = files_below(tmp_path)
    for name in ("../../escape", str(tmp_path / "absolute"), ".."):
        assert (
            main(["lab", "data", str(tmp_path / "root"), name, "--type", "STS", "--test", str(tmp_path / "pairs.csv")])
            == 2
        )
        assert "cannot be used as a file name" in capsys.readouterr().err
    with pytest.raises(InputError, match="the subset"):
        write_task(tmp_path / "root", "Mine", "STS", PAIRS, subset="../en")
    assert files_below(tmp_path) == before


def test_a_folder_named_in_a_record_is_not_followed(tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", PAIRS)
    path = tmp_path / "root" / "Mine" / "task.json"
    path.write_text(json.dumps(changed(path, {"folder": "/etc"})))
    assert read_root(tmp_path / "root")["Mine"].folder == str(tmp_path / "root" / "Mine")


def test_a_strangers_recipe_or_revision_cannot_name_a_file_elsewhere(tiny_llama, tmp_path):
    write_task(tmp_path / "root", "Mine", "STS", PAIRS)
    with pytest.raises(LayerwiseError):
        recipe = layerwise.Recipe(1, tokens="../../../../escaped")
        layerwise.eval(tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / "o", recipes=recipe)
    assert not [name for name in files_below(tmp_path) if "escaped" in name]
    for revision in ("../../x", "refs/pr/1", "/etc", "..", "a\x00b"):
        assert not {"/", "\x00"} & set(safe_path_part(revision)) and not safe_path_part(revision).startswith(".")
    assert model_name("../../x/..") == "local/x"


def test_names_in_a_campaign_stay_one_folder():
    record = {"out": "x", "models": [{"name": "m", "revisions": ["a\x00b"]}, "n" * 300]}
    with pytest.raises(InputError, match="cannot be used as a folder name.*cannot be used as a folder name"):
        Campaign.parse(record, "c.yaml")
    with pytest.raises(InputError, match="letters, digits"):
        Campaign.parse({"out": "x", "models": ["m"], "data": {"../up": {"data": "demo"}}}, "c.yaml")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://AKIAKEY:s3cr3t@runs/a", "s3://***@runs/a"),
        ("s3://AKIAKEY:p/w@runs/a", "s3://***@runs/a"),  # a key with a slash that should have been %2F
        ("https://t0ken@host/a@b", "https://***@host/a@b"),
        ("s3://runs/a?region=x&secret_key=s3cr3t&b=c", "s3://runs/a?region=x&secret_key=***"),  # & may be in the secret
        ("see (s3://runs/a?sas=s3cr3t), then b", "see (s3://runs/a?sas=***), then b"),
        ("zip://a/b.zip::s3://AKIAKEY:s3cr3t@runs/b.zip", "zip://a/b.zip::s3://***@runs/b.zip"),
        ("http://host:8000/x has no model gpt@main", "http://host:8000/x has no model gpt@main"),
        ("cannot open 's3://AKIAKEY:s3cr3t@runs/a' and b://AKIAKEY@c", "cannot open 's3://***@runs/a' and b://***@c"),
        ("'s3:/AKIAKEY:s3cr3t@runs/a' as a path", "'s3:/***@runs/a' as a path"),
        ("C:/users/me@home", "C:/users/me@home"),
        ("s3://runs/campaign/gpt@main/x", "s3://runs/campaign/gpt@main/x"),
        ("me@home.org: no url", "me@home.org: no url"),
    ],
)
def test_secrets_of_a_url_are_not_shown(url, shown):
    assert redact(url) == shown == redact(shown)
    assert str(InputError(f"no {url}")) == f"no {shown}" == str(layerwise.LayerwiseError(f"no {url}"))


PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="\x7f"), max_size=6)
MARK = "S3CR3T"


@st.composite
def urls_with_a_secret(draw):
    """A URL whose secret has any characters between three marks, in each place of a URL."""
    secret = f"{MARK}{draw(PRINTABLE)}{MARK}{draw(PRINTABLE)}{MARK}"
    names = ("token", "access_token", "session", "sas", "passphrase", "X-Amz-Signature", "api_key", "password", "pwd")
    name = draw(st.sampled_from([*names, "SAS", "sessionId", "AccountKey", "X-Amz-Credential", "auth"]))
    forms = [f"https://me:{secret}@host/a", f"s3://:{secret}@host/a?b=c", f"s3:/me@home.org:{secret}@host/a@b"]
    forms += [f"https://host/a?{name}={secret}", f"https://host/a?b=c&{name}={secret}&d=e", f"s3://h/a#{name}={secret}"]
    forms += [
        f"https://host/a;{name}={secret}",
        f"https://host/a;b=c;{name}={secret};d=e?f=g",
        f"s3://h?{name}={secret}#d",
    ]
    return draw(st.sampled_from(forms))


@given(urls_with_a_secret())
def test_a_secret_of_any_characters_is_not_shown(url):
    assert MARK not in redact_value(url) and MARK not in redact_value(f"--out={url}")
    assert MARK not in json.dumps(redact_record({"a": [url], url: 1}))
    assert MARK not in redact(f"cannot open {url!r}: no such file") and MARK not in redact(f"no {json.dumps(url)}, b@c")
    assert json.loads(redact(json.dumps({"a": url, "b": "c@d"})))["b"] == "c@d", "JSON that is printed stays JSON"
    if " " not in url:
        assert MARK not in redact(url) and MARK not in redact(f"no {url}, mail b@c") and MARK not in redact(f"'{url}'")
    assert redact_value(redact_value(url)) == redact_value(url)


HOSTILE = [
    "x\ntouch MARKER\n",
    "x\r\ntouch MARKER",
    "x\u2028touch MARKER",
    "x\x85touch MARKER",
    "'; touch MARKER; '",
    "'\n; touch MARKER; '\n",
    '"; touch MARKER; "',
    "$(touch MARKER)",
    "`touch MARKER`\n`touch MARKER`",
    "x; touch MARKER #",
    "# x\n touch MARKER",
    "\\\n'\\'; touch MARKER",
    "x\u202e && touch MARKER",
    "--out=/tmp/x",
    "-",
    "x: layerwise scan y; touch MARKER #",
    "~/*.txt{a,b}!x",
]


def words_read_by_a_shell(line, folder, shell="bash"):
    """The words with which a shell calls `layerwise`, from a folder where nothing else may appear."""
    folder.mkdir(exist_ok=True)
    program = folder / "layerwise"
    program.write_text(f"#!{sys.executable}\nimport sys, os\nos.write(1, repr(sys.argv[1:]).encode() + b'\\n')\n")
    program.chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    ran = subprocess.run([shell], input=line.encode(), capture_output=True, cwd=folder, env=env, check=False)
    assert not (folder / "MARKER").exists() and [path.name for path in folder.iterdir()] == ["layerwise"]
    return [ast.literal_eval(words) for words in ran.stdout.decode().splitlines()], ran.stderr


@pytest.mark.parametrize("name", [*HOSTILE, "bytes that are not UTF-8: \udcff"])
def test_a_shell_reads_a_copied_command_as_the_words_it_was_made_of(name, tmp_path):
    line = command_line(["layerwise", "scan", name, "--x", name], ["called", "with", name])
    assert line.isprintable() and len(line.splitlines()) == 1
    called, problems = words_read_by_a_shell(line, tmp_path / "bash")
    assert not problems and called == [["scan", name, "--x", name]]
    called, _ = words_read_by_a_shell(line, tmp_path / "sh", "sh")  # where $'...' may be unknown: nothing else runs
    assert len(called) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_the_commands_of_a_strangers_run_are_calls_of_layerwise_and_nothing_else(name, tmp_path):
    table = scan_table(name)
    opened = {"data": name, "id_column": name, "column": name, "limit": 5}
    run = {**table.run, "options": {"verb": "scan", "model": {"name": name, "revision": name}, "data": opened}}
    layerwise.LayerTable(table.scores, run).save(tmp_path / "run")
    options = {"verb": "pick", "run": name, "fit": opened, "rule": name, "labels": name}
    pick = {"model": {"name": name}, "recipe": {"layer": 3}, "last": {"layer": 5}, "rule": name, "why": [name]}
    (tmp_path / "run" / "pick.json").write_text(json.dumps({**pick, "schema_version": 1, "options": options}))
    (tmp_path / "run" / "tradeoff.json").write_text(json.dumps({"schema_version": 1, "options": {"score": name}}))
    page = layerwise.report(tmp_path / "run", html=tmp_path / "p.html").read_text()
    listed = html.unescape(re.search(r'<pre id="commands" tabindex="0">(.*?)</pre>', page, re.DOTALL).group(1))
    called, _ = words_read_by_a_shell(listed, tmp_path / "shell")
    assert [words[0] for words in called] == ["scan", "pick", "lab", "report"]
    assert not [words for words in called if words[1].startswith("-")], "a name is no option"
    assert len(listed.splitlines()) == 4


def test_half_a_character_in_a_record_does_not_stop_a_command():
    assert command_line(["layerwise", "\ud800"]) == "layerwise $'\\xed\\xa0\\x80'"


def test_a_message_shows_a_command_on_its_own_line_only_if_it_is_one():
    assert wrapped("no x: layerwise scan 'a b'", 40).splitlines() == ["no x:", "  layerwise scan 'a b'"]
    name = "x: layerwise scan y; touch MARKER #"
    shown = wrapped(f"no {name!r}; run: {command_line(['layerwise', 'scan', name])}", 400)
    assert len(shown.splitlines()) == 1


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
    assert main(["pick", str(tmp_path / "a"), "--rule", "last"]) == 0
    assert main(["pick", str(tmp_path / "a"), "--rule", "last", "--json"]) == 0
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert main(["lab", "correlate", str(tmp_path / "b"), str(tmp_path / "c")]) == 2
    printed = capsys.readouterr()
    compared, picked = layerwise.compare([table, scan_table("b")]), layerwise.pick(table, rule="last")
    shown = [printed.out, printed.err, repr(table), str(compared), repr(picked)]
    assert not [text for text in shown if set(text) & {"\x1b", "\x07", "\x9b"}]
    assert "evil\\u001b" in printed.out and printable("a\tb\n") == "a\tb\n"


def test_json_that_is_made_printable_says_the_same(tmp_path, capsys):
    scan_table(EVIL).save(tmp_path)
    assert main(["pick", str(tmp_path), "--rule", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["name"] == EVIL


def save_as(folder, table, **columns):
    """A run folder whose table has these columns changed, added or (None) left out."""
    table.save(folder)
    path = Path(folder) / "table.parquet"
    frame = pd.read_parquet(path)
    for name, value in columns.items():
        frame = frame.drop(columns=name) if value is None else frame.assign(**{name: value})
    frame.to_parquet(path, index=False)
    return folder


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"colour": "red"}, "has a column colour unknown to this version"),
        ({"layer": None}, "has no column layer"),
        ({"layer": "three"}, "column layer does not hold int64"),
        ({"layer": "3"}, "column layer does not hold int64"),
        ({"layer": float("nan")}, "table.parquet: "),
        ({"layer": 2.5}, "column layer does not hold int64"),
        ({"layer": 2**62}, "layer 4611686018427387904 .* which no model has"),
        ({"layer": -1}, "layer -1"),
        ({"depth": float("nan")}, "depth nan"),
        ({"depth": 1e-300 - 5}, "at depth"),
        ({"metric": 7}, "column metric does not hold string"),
        ({"value": "high"}, "column value does not hold double"),
    ],
)
def test_a_table_of_another_shape_is_refused_by_name_and_quickly(columns, message, tmp_path):
    save_as(tmp_path, scan_table(), **columns)
    with pytest.raises(RunError, match=message) as caught:
        layerwise.LayerTable.load(tmp_path)
    assert "table.parquet" in str(caught.value)


DAMAGES = {
    "empty": b"",
    "truncated": None,  # the first half
    "garbage": b"\x00\xff\x80 not this",
    "a list": b"[1, 2]",
    "a number": b"7",
    "foreign": b'{"hello": ["world"]}',
    "deep": b'{"a":' * 100_000,
    "wrong types": (
        b'{"kind": 7, "model": "m", "data": [], "plan": 3, "runs": "x", "recipe": [], "last": {}, "why": 3,'
        b' "layers": {"a": 1}, "settings": 1, "origin": [], "name": 3, "type": [], "readouts": "r", "units": [],'
        b' "rule": [], "layer": "x"}'
    ),
    "wrong types inside": (
        b'{"kind": "scan", "model": {"name": 3}, "data": {"name": []}, "plan": {"stress": 1}, "runs": [3],'
        b' "recipe": {"layer": "x"}, "last": {"layer": {}}, "why": [{}], "rule": "r", "layers": [{"layer": "x"}],'
        b' "settings": {}, "origin": {}, "name": "../x", "type": "STS", "readouts": [{"layer": []}], "units": {"a": 1}}'
    ),
    "a folder": "a folder",
}


def damage(path, how):
    data = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    else:
        path.write_bytes(data[: len(data) // 2] if DAMAGES[how] is None else DAMAGES[how])


@pytest.fixture(scope="module")
def whole(tiny_llama, tmp_path_factory):
    """A folder with a scan, an eval of the same model, a data root and a campaign, all whole."""
    folder = tmp_path_factory.mktemp("whole")
    texts = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 7)) for i in range(11)]
    options = {"metrics": "prompt_entropy,dataset_entropy,intrinsic_dimension", "threads": 1}
    layerwise.scan(tiny_llama, texts, out=folder / "scan", **options)
    write_task(folder / "root", "Mine", "STS", PAIRS)
    layerwise.eval(tiny_llama, "all", data_root=folder / "root", out=folder / "eval")
    layerwise.pick(folder / "scan", rule="depth:50%").save(folder / "scan")  # one that export takes
    layerwise.lab.tradeoff(folder / "eval", model=tiny_llama, repeats=1)
    record = {"out": str(folder / "many"), "models": [tiny_llama], "settings": {"s": {"metrics": "curvature"}}}
    (folder / "many.yaml").write_text(json.dumps(record))
    assert main(["campaign", str(folder / "many.yaml")]) == 0
    (folder / "recipe").mkdir()
    (folder / "recipe" / "layerwise.json").write_text(json.dumps({"recipe": {"layer": 1}}))
    return folder


def calls(folder, model):
    """Every verb that reads what lies in the folder, by name."""
    scan, scores, page = str(folder / "scan"), str(folder / "eval"), str(folder / "page.html")
    root, texts = str(folder / "root"), [f"w{i} w{i + 1}" for i in range(9)]
    return {
        "pick": ["pick", scan, "--rule", "last"],
        "report": ["report", scan, scores, "--html", page],
        "compare": ["compare", scan, scan, "--html", page],
        "plot": ["report", scan, "-o", str(folder / "a.svg")],
        "plot tradeoff": ["report", scores, "--figure", "tradeoff", "-o", str(folder / "b.svg")],
        "plot cka": ["report", scan, scan, "--figure", "cka", "-o", str(folder / "c.svg")],
        "correlate": ["lab", "correlate", scan, scores],
        "tradeoff": ["lab", "tradeoff", scores, "--model", model],
        "scan": lambda: layerwise.scan(model, texts, out=scan),
        "difference": lambda: layerwise.difference(scan, "prompt_entropy", 1, 2),
        "export fit": ["export", model, "--layer=1", "--transform=whiten", "--fit", scan, "--out", str(folder / "e1")],
        "export auto": ["export", model, "--layer", f"{scan}:auto", "--out", str(folder / "e2")],
        "export recipe": ["export", model, "--recipe", str(folder / "recipe"), "--out", str(folder / "e3")],
        "eval": ["eval", model, "--tasks", "all", "--data-root", root, "--out", scores, "--workers", "0"],
        "campaign": ["campaign", str(folder / "many.yaml")],
    }


READERS = {  # which verbs rely on which file
    "scan/run.json": ("pick", "report", "compare", "plot", "correlate", "export fit"),
    "scan/table.parquet": ("pick", "report", "compare", "plot", "plot cka", "correlate", "export fit"),
    "scan/plan.json": ("scan",),
    "scan/pick.json": ("report", "export auto"),
    "eval/run.json": ("report", "tradeoff", "eval"),
    "eval/table.parquet": ("report", "correlate", "tradeoff", "eval"),
    "eval/tradeoff.json": ("report", "plot tradeoff"),
    "eval/*/vectors/*/kind.json": ("eval",),
    "scan/prompts/00000.parquet": ("compare", "difference"),
    "scan/state-00001.safetensors": ("compare", "plot cka"),
    "many/*/*/*/cell.json": ("campaign",),
    "root/Mine/task.json": ("eval",),
    "root/Mine/default/test.parquet": ("eval",),
    "root/Mine/README.md": ("eval",),
    "recipe/layerwise.json": ("export recipe",),
}
# A record that lacks everything is no damage where all that a verb takes from it may be missing.
HARMLESS = {"foreign", "wrong types", "wrong types inside"}


@pytest.mark.parametrize("file", READERS)
@pytest.mark.parametrize("how", DAMAGES)
def test_damage_is_told_by_the_files_name_and_never_as_a_traceback(file, how, whole, tiny_llama, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    yaml = folder / "many.yaml"
    yaml.write_text(json.dumps(json.loads(yaml.read_text()) | {"out": str(folder / "many")}))
    (path,) = folder.glob(file)
    damage(path, how)
    verbs = calls(folder, tiny_llama)
    for name in READERS[file]:
        call, code, message = verbs[name], 0, ""
        capsys.readouterr()
        try:
            code = main(call) if isinstance(call, list) else 0
            message = capsys.readouterr().err
            if not isinstance(call, list):
                call()
        except LayerwiseError as error:
            code, message = 2, str(error)
        assert "unexpected" not in message, (name, message)
        if code == 2:
            assert path.name in message or path.parent.name in message, (name, message)
        else:
            missing = how == "a folder" and name in ("compare", "plot cka")  # see tests/abuse/test_found_by_abuse.py
            assert code == 0 and (missing or (how in HARMLESS and path.suffix == ".json")), (name, how, message)


def test_a_score_that_is_undefined_does_not_stop_a_report(tiny_llama, tmp_path):
    table = eval_table(tiny_llama, depth=3, tasks=("STS12",))
    scores = tuple(replace(s, value=float("nan")) if s.layer == 2 else s for s in table)
    model = {"name": tiny_llama, "fingerprint": open_network(tiny_llama).fingerprint()}
    layerwise.LayerTable(scores, {**table.run, "model": model}).save(tmp_path)
    frame = layerwise.lab.tradeoff(tmp_path, repeats=1)
    assert not frame[frame.layer == 2].pareto.any() and frame.pareto.any()
    assert "NaN" not in (tmp_path / "tradeoff.json").read_text()
    layerwise.report(tmp_path, html=tmp_path / "a.html")
    (tmp_path / "tradeoff.json").write_text(
        '{"schema_version": 1, "layers": [{"layer": 1, "score": NaN, "latency": Infinity}]}'
    )
    layerwise.report(tmp_path, html=tmp_path / "a.html")


def test_an_eval_with_two_maps_and_two_poolings_can_be_reported_beside_a_scan(tmp_path):
    table, more = eval_table(), []
    for changes in ({"transform": "whiten", "fit": "task"}, {"pooling": "max"}, {"normalize": True}, {"max_length": 7}):
        more += [replace(s, **changes) for s in table]
    both = layerwise.LayerTable((*table, *more), table.run)
    page = layerwise.report([scan_table(), both], html=tmp_path / "a.html").read_text()
    assert "all + whiten" in page and '<section id="correlation"' in page
    assert best_and_last(both)[0][0] == best_and_last(table)[0][0]


def test_every_verb_reads_a_run_on_an_object_store_as_it_reads_a_folder(store, whole, tiny_llama, tmp_path, capsys):
    for name in ("scan", "eval"):
        there = open_folder(store.url(f"verbs/{name}"))
        for path in (whole / name).rglob("*"):
            inside = path.relative_to(whole / name)
            if path.is_file() and inside.parts[0] in ("prompts", inside.name):
                there.write(inside.as_posix(), path.read_bytes())
    scan, scores = store.url("verbs/scan"), store.url("verbs/eval")
    here = str(whole / "scan")
    assert repr(layerwise.pick(scan, rule="last")) == repr(layerwise.pick(here, rule="last"))
    mine, theirs = (layerwise.compare([a, b]).pairs[0] for a, b in ((here, here), (scan, scan)))
    assert theirs.changes.paired.any() and theirs.changes.equals(mine.changes) and theirs.notes == ()
    assert theirs.cka is not None and torch.equal(theirs.cka.values, mine.cka.values)
    assert layerwise.difference(scan, "prompt_entropy", 1, 2) == layerwise.difference(here, "prompt_entropy", 1, 2)
    open_folder(scores).delete(["tradeoff.json"])
    verbs = calls(tmp_path, tiny_llama)
    places = {str(tmp_path / "scan"): scan, str(tmp_path / "eval"): scores, f"{tmp_path / 'scan'}:auto": f"{scan}:auto"}
    names = ("pick", "tradeoff", "report", "compare", "plot", "plot tradeoff", "plot cka", "export fit", "export auto")
    for name in names:
        call = [places.get(word, word) for word in verbs[name]]
        assert main(call) == 0, (name, capsys.readouterr().err)
    assert main(["pick", scan, "--rule", "last", "--save", scan]) == 0 and open_folder(scores).read("tradeoff.json")
    text = (tmp_path / "page.html").read_text()
    assert '<section id="cka"' in text and "key:secret" not in text
