"""The command line: data on standard output, words on standard error, exit codes that a script can use."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from families import DEPTH

import layerwise
from layerwise.__main__ import main
from layerwise.cli.shared import wrapped


def test_scan_prints_a_table_and_saves_a_run(tiny_llama, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["scan", tiny_llama, "--limit", "20", "--out", str(out), "--metrics", "curvature,dataset_entropy"]) == 0
    printed = capsys.readouterr()
    assert "curvature" in printed.out and "by layer" in printed.out
    assert f"saved in {out}" in printed.err
    assert len(layerwise.LayerTable.load(out)) == 2 * (DEPTH + 2)


def test_json_is_the_only_thing_on_standard_output(tiny_llama, capsys):
    assert main(["scan", tiny_llama, "--limit", "5", "--json", "--layers", "1"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {row["layer"] for row in record["scores"]} == {1}


def test_what_other_libraries_print_does_not_get_into_the_output(tiny_llama, tmp_path):
    """tokenizers, which is written in Rust, prints unknown fields of added tokens to standard output."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_llama, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {"0": {"content": "<pad>", "special": True, "odd_field": True}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "layerwise", "doctor", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert json.loads(done.stdout)[0]["verdict"] == "ok"
    assert "odd_field" in done.stderr, "nothing is hidden"
    closed = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m layerwise scan --metrics list 2>&-"], capture_output=True, text=True
    )
    assert closed.returncode == 0 and "curvature" in closed.stdout


def test_dry_run_says_what_it_would_take_before_anything_is_loaded_and_then_how_long(tiny_llama, capsys, monkeypatch):
    assert main(["scan", tiny_llama, "--dry-run", "--limit", "20"]) == 0
    printed = capsys.readouterr()
    for word in ("forward passes   20", "tokens", "FLOP", "state", "peak memory"):
        assert word in printed.out
    assert printed.out.splitlines()[-1].startswith("time             about ") and "timing a few batches" in printed.err
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr("layerwise.verbs.scan.api.open_network", None)
    assert main(["scan", tiny_llama, "--dry-run", "--limit", "20"]) == 2, "it is not loaded if it does not fit"
    assert "this scan needs about" in capsys.readouterr().err


def test_embed_writes_vectors(tiny_llama, tmp_path, capsys):
    (tmp_path / "t.txt").write_text("w1 w2\nw3 w4 w5\n")
    out = tmp_path / "v.parquet"
    args = ["embed", tiny_llama, "--data", str(tmp_path / "t.txt"), "--layers", "1,last", "--out", str(out)]
    assert main(args) == 0
    vectors = pd.read_parquet(out)
    again = layerwise.embed(tiny_llama, ["w1 w2", "w3 w4 w5"], layers="1,last")
    assert np.stack(vectors.layer_1) == pytest.approx(np.stack(again.layer_1))
    assert capsys.readouterr().out == ""


def test_scan_lists_the_metrics(capsys):
    assert main(["scan", "--metrics", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [m.name for m in layerwise.CATALOG]
    assert max(map(len, lines)) <= 80
    assert main(["scan", "--metrics", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "prompt_entropy"


def test_doctor_says_what_holds(tiny_llama, capsys):
    assert main(["doctor", tiny_llama]) == 0
    assert "padding" in capsys.readouterr().out
    assert main(["doctor", tiny_llama, "--json"]) == 0
    assert {f["verdict"] for f in json.loads(capsys.readouterr().out)} == {"ok"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["scan", "no/such-model-here"], "cannot load 'no/such-model-here'"),
        (["scan", "MODEL", "--data", "missing.csv"], "there is no file 'missing.csv'"),
        (["scan", "MODEL", "--metrics", "entropie"], "no metric 'entropie'; there are all, fast, prompt_entropy"),
        (["scan", "MODEL", "--layers", "9"], "layer 9 does not exist"),
        (["scan", "MODEL", "--pooling", "median"], "'median' is not one of mean, last, first, max"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(args, said, tiny_llama, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main([tiny_llama if a == "MODEL" else a for a in args]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.startswith("layerwise: ")
    assert "Traceback" not in printed.err and printed.out == ""


def test_an_unexpected_error_says_how_to_see_more(monkeypatch, capsys):
    monkeypatch.setattr("layerwise.verbs.scan.metric_list.CATALOG", 3)
    assert main(["scan", "--metrics", "list"]) == 2
    assert "--debug" in capsys.readouterr().err
    for words in (["--debug", "scan", "--metrics", "list"], ["scan", "--metrics", "list", "--debug"]):
        with pytest.raises(TypeError):
            main(words)


def test_help_and_version_are_quick_and_load_no_torch():
    code = "import sys, layerwise.__main__ as m\ntry: m.main(['--help'])\nfinally: print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip().endswith("False")


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m layerwise scan --metrics list | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_an_error_is_wrapped_at_words_and_its_command_can_be_copied():
    message = "layerwise: 'adapter' is a PEFT adapter, not a whole model. Load it with its base model: layerwise scan B"
    lines = wrapped(message, 40).split("\n")
    assert lines[-1] == "  layerwise scan B" and all(len(line) <= 40 for line in lines[:-1])
    assert " ".join(lines).split() == message.split(), "no word is lost or cut"
    assert wrapped("one\ntwo", 40) == "one\ntwo"
    code = "for auto in (AutoModel, AutoTokenizer): auto.from_pretrained(FOLDER)"
    assert wrapped(f"Run:\n{code}", 40) == f"Run:\n{code}"
