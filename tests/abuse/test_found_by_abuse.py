"""Faults that the campaign of tests/abuse has found, one small test each; README.md lists them."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from snapshots import SCAN, TEXTS
from transformers import AutoTokenizer

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, LayerwiseError, ModelError, RunError
from layerwise.core.outputs import scratch_folder
from layerwise.engines.options import Cluster
from layerwise.verbs.probe.options import ProbeOptions


def with_config(model, folder, **changes):
    shutil.copytree(model, folder)
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(record | changes))
    return str(folder)


@pytest.mark.parametrize("changes", [
    {"num_hidden_layers": [1, 1]}, {"tie_word_embeddings": ""}, {"num_attention_heads": 0}, {"hidden_size": -1},
])  # fmt: skip
def test_a_config_with_absurd_values_is_a_model_that_cannot_be_loaded(changes, tiny_llama, tmp_path, capsys):
    model = with_config(tiny_llama, tmp_path / "odd", **changes)
    for verb in (layerwise.plan, layerwise.scan):
        with pytest.raises(ModelError, match="odd"):
            verb(model, ["w1 w2 w3", "w4 w5"])
    assert main(["scan", model, "--dry-run"]) == 2
    assert "unexpected" not in capsys.readouterr().err


@pytest.mark.parametrize("content", ["null", "[]", "3", '{"prompts": 3}', '{"prompts": {"a": 3}}',
                                     '{"prompts": {}, "default_prompt_name": "a"}'])  # fmt: skip
def test_damaged_prompts_of_an_embedding_model_are_refused_by_the_name_of_their_file(content, tiny_bert, tmp_path):
    layerwise.export(tiny_bert, 2, tmp_path / "small")
    (tmp_path / "small" / "config_sentence_transformers.json").write_text(content)
    with pytest.raises(ModelError, match=r"config_sentence_transformers\.json"):
        layerwise.embed(str(tmp_path / "small"), ["w1 w2"], layers="last")


def test_a_tokenizer_of_an_embedding_model_that_cannot_pad_is_no_raw_error(tiny_bert, tmp_path):
    layerwise.export(tiny_bert, 2, tmp_path / "small")
    (tmp_path / "small" / "tokenizer_config.json").write_text('{"kind": "scan"}')
    with pytest.raises(LayerwiseError, match="encode failed"):
        layerwise.embed(str(tmp_path / "small"), ["w1 w2", "w3"], layers="last")


def test_a_config_of_an_unknown_kind_of_model_is_refused_by_the_name_of_its_file(tiny_bert, tmp_path):
    model = with_config(tiny_bert, tmp_path / "odd", model_type="SentenceTransformer")
    with pytest.raises(ModelError, match=r"config\.json of '.*odd'.*`SentenceTransformer`"):
        layerwise.embed(model, ["w1 w2"], layers="1")


def test_a_word_that_is_no_model_is_refused_before_it_is_announced(tiny_bert, tmp_path, capsys):
    layerwise.scan(tiny_bert, ["w1 w2", "w3 w4"], metrics="curvature", out=tmp_path / "run")
    for words in (
        ["lab", "tradeoff", str(tmp_path / "run"), "--score=curvature"],
        ["embed", "--data", "demo", "--out", str(tmp_path / "v.parquet")],
    ):
        model = ["--model=a,,b"] if words[0] == "lab" else ["a,,b"]
        assert main([*words, *model]) == 2
        assert "cannot load 'a,,b'" in capsys.readouterr().err


def test_more_workers_than_any_machine_has_are_refused(tiny_bert, tmp_path, capsys):
    words = ["eval", tiny_bert, "--tasks", "STSBenchmark", "--out", str(tmp_path / "out"), "--workers", str(2**63 - 1)]
    assert main(words) == 2
    assert "workers must be at most 10,000" in capsys.readouterr().err


def test_more_repetitions_than_a_median_needs_are_refused():
    with pytest.raises(InputError, match="repeats must be at most 10,000"):
        layerwise.lab.tradeoff("run", repeats=999999999)


def test_views_of_half_a_character_are_no_raw_error():
    assert len(layerwise.lab.views("w1 \ud83d w2", count=2)) == 2


def test_an_empty_argument_is_shown_as_such(capsys):
    for word in ("", " ", "\t", "a\nb"):
        with suppress(SystemExit):
            main(["doctor", "m", word])
        assert f"takes no further argument {word!r}" in capsys.readouterr().err


def test_what_sentence_transformers_cannot_load_is_refused_in_its_words(tiny_bert, tmp_path):
    layerwise.export(tiny_bert, 2, tmp_path / "small")
    (tmp_path / "small" / "1_Pooling" / "config.json").write_text('{"pooling_mode": "sideways"}')
    with pytest.raises(ModelError, match="small"):
        layerwise.embed(str(tmp_path / "small"), ["w1 w2"], layers="last")


def test_a_name_that_is_too_long_for_a_file_is_refused_in_one_line(capsys):
    for words in (
        ["lab", "tradeoff", "é" * 300],
        ["report", "é" * 300, "--html", "x.html"],
        ["pick", "é" * 300, "--rule", "last"],
    ):
        assert main(words) == 2
        printed = capsys.readouterr().err
        assert "unexpected" not in printed and "ééé" in printed


def test_a_table_of_scores_without_a_column_is_named(tmp_path, capsys):
    (tmp_path / "known.csv").write_text("a,b\n1,2\n")
    assert main(["lab", "audit", str(tmp_path / "known.csv")]) == 2
    assert "known.csv lacks family" in capsys.readouterr().err
    (tmp_path / "known.csv").write_text("family,model,task,layer,score\nf,m,t,0,1.5\nf,m,t,1,\n")
    assert main(["lab", "audit", str(tmp_path / "known.csv")]) == 2
    assert "known.csv: m on t: the last layer (1) has no score" in " ".join(capsys.readouterr().err.split())


def test_a_table_of_scores_of_too_deep_a_model_is_refused_before_it_fills_the_memory():
    rows = [("f", "m", "t", layer, 1.0) for layer in (0, 2**40)]
    scores = pd.DataFrame(rows, columns=["family", "model", "task", "layer", "score"])
    with pytest.raises(InputError, match="the table of scores has layer 1,099,511,627,776"):
        layerwise.lab.audit(scores)


# Records and tables belong together


def saved(folder):
    from made_runs import scan_table

    scan_table().save(folder)
    return folder / "run.json"


def test_a_changed_digit_in_a_record_is_noticed(tmp_path):
    path = saved(tmp_path)
    before = path.read_text()
    assert layerwise.LayerTable.load(tmp_path)
    digit = max(before.rfind(str(n), 0, len(before) // 2) for n in range(10))
    path.write_text(before[:digit] + str((int(before[digit]) + 1) % 10) + before[digit + 1 :])
    with pytest.raises(RunError, match="run.json was changed after it was written .*delete its field 'checksum'"):
        layerwise.LayerTable.load(tmp_path)
    record = json.loads(path.read_text())
    del record["checksum"]
    path.write_text(json.dumps(record))
    assert layerwise.LayerTable.load(tmp_path), "a change on purpose is possible"


def test_a_table_of_another_run_is_not_read_with_this_record(tmp_path):
    from made_runs import eval_table, scan_table

    scan_table().save(tmp_path / "a")
    eval_table().save(tmp_path / "b")
    shutil.copy(tmp_path / "b" / "table.parquet", tmp_path / "a" / "table.parquet")
    with pytest.raises(RunError, match="table.parquet is not the table that run.json beside it belongs to"):
        layerwise.LayerTable.load(tmp_path / "a")


def test_another_record_in_place_of_run_json_is_refused(tmp_path):
    from layerwise.core.files import write_checked_json

    saved(tmp_path)
    for record, message in (
        ({"predicted": [1, 2], "accuracy": 0.5}, "run.json was not written by layerwise"),
        ({"schema_version": 1, "model": {}}, "table.parquet is not the table that run.json beside it belongs to"),
    ):
        write_checked_json(tmp_path / "run.json", record)
        with pytest.raises(RunError, match=message):
            layerwise.LayerTable.load(tmp_path)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_table_that_is_replaced_can_be_read_wherever_the_process_is_killed(writes, tmp_path, monkeypatch):
    from made_runs import scan_table

    from layerwise.core.files import DiskFolder

    scan_table(depth=3).save(tmp_path)
    usual, count = DiskFolder.write, []

    def dying(self, name, data):
        if len(count) == writes:
            raise KeyboardInterrupt
        count.append(name)
        usual(self, name, data)

    monkeypatch.setattr(DiskFolder, "write", dying)
    with suppress(KeyboardInterrupt):
        scan_table(depth=5).save(tmp_path)
    assert len(layerwise.LayerTable.load(tmp_path).where(metric="curvature")) in (5 * 2, 7 * 2)  # the last layer twice


@pytest.mark.parametrize("verb", ["eval", "probe"])
def test_a_run_that_was_killed_before_its_record_was_written_goes_on(verb, tiny_llama, tmp_path):
    from snapshots import TEXTS, run_verb, write_root

    table = tmp_path / "classes.csv"
    pd.DataFrame({"text": TEXTS, "class": [len(text) % 2 for text in TEXTS]}).to_csv(table, index=False)

    def run():
        if verb == "eval":
            return run_verb("eval", tiny_llama, write_root(tmp_path / "root"), tmp_path / "out")
        return layerwise.probe(tiny_llama, table, label="class", probes="knn", layers="1", out=tmp_path / "out")

    first = run()
    (tmp_path / "out" / "run.json").unlink()
    assert [row.value for row in run()] == [row.value for row in first]
    assert layerwise.LayerTable.load(tmp_path / "out")


def test_a_changed_score_is_computed_again(tiny_llama, tmp_path):
    from snapshots import run_verb, write_root

    root, out = write_root(tmp_path / "root"), tmp_path / "out"
    first = run_verb("eval", tiny_llama, root, out)
    (path,) = out.glob("*/scores/*/001-raw*.json")
    path.write_text(re.sub(r'"score": [-\d.]+', '"score": 12.5', path.read_text()))
    assert [row.value for row in run_verb("eval", tiny_llama, root, out)] == [row.value for row in first]


def test_temporary_folders_of_killed_processes_are_deleted_and_no_others(tmp_path):
    code = "from layerwise.core.outputs import scratch_folder\nfrom pathlib import Path\nimport os\n"
    code += f"with scratch_folder('cut', Path({str(tmp_path)!r})) as f: (f / 'x').touch(); os._exit(9)"
    subprocess.run([sys.executable, "-c", code])
    (left,) = tmp_path.iterdir()
    (tmp_path / ".cut.mine").mkdir()
    with scratch_folder("cut", tmp_path) as one, scratch_folder("cut", tmp_path) as two:
        assert one.is_dir() and two.is_dir() and not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".cut.mine"]


def test_shards_that_a_kill_at_the_very_end_left_are_deleted_by_the_next_scan(tiny_llama, tmp_path):
    out = tmp_path / "out"
    first = layerwise.scan(tiny_llama, TEXTS, out=out, **SCAN)
    (state,) = out.glob("state-*.safetensors")
    for name in ("table.parquet", "run.json"):
        (out / name).unlink()
    (out / "shards").mkdir()
    shutil.copyfile(state, out / "shards/00000-00003.safetensors")
    assert layerwise.scan(tiny_llama, TEXTS, out=out, **SCAN).scores == first.scores
    assert state.exists() and not (out / "shards").exists()


@pytest.mark.parametrize("changes", [
    {"chosen": 0}, {"chosen": {"C": "high"}}, {"validated": [99]}, {"predicted": [0.5] * 6}, {"note": None},
    {"validated": [1, 0]}, {"predicted": [0] * 5}, {"weights": [0.5]},
])  # fmt: skip
def test_a_fit_of_probe_with_other_types_or_lengths_is_not_read_though_its_checksum_was_deleted(changes, tmp_path):
    from types import SimpleNamespace

    from layerwise.verbs.probe.run import read_fit

    task, path = SimpleNamespace(classes=["a", "b"], test=[0] * 6), tmp_path / "fit.json"
    record = {"name": path.name, "predicted": [0, 1, 0, 1, 0, 1], "chosen": {"C": 1.0}, "weights": [], "note": "",
              "validated": [1], "calibration": {}, "head_file": ""}  # fmt: skip
    path.write_text(json.dumps(record))
    assert read_fit(path, task, validated=1) is not None
    path.write_text(json.dumps(record | changes))
    assert read_fit(path, task, validated=1) is None


@pytest.mark.parametrize("damage", [lambda r: r.pop("b"), lambda r: r.update(a=[1.5]), lambda r: r.update(b={"x": ""})])
def test_a_record_that_later_calls_rely_on_has_all_its_fields_and_their_types(damage):
    from layerwise.core.formats import json_bytes, parse_stored

    record, shape = {"a": [1], "b": {"x": 1.0}}, {"a": [int], "b": {str: float}}
    assert parse_stored(json_bytes(record), "it", shape) == record
    damage(record)
    with pytest.raises(RunError, match="it.* is damaged"):
        parse_stored(json_bytes(record), "it", shape)


def test_half_a_character_of_an_option_can_be_recorded():
    from layerwise.core.formats import json_bytes, parse_record, with_checksum

    record = {"options": {"split": "a\ud83d"}}
    data = json_bytes(with_checksum(record))
    data.decode("utf-8")
    assert parse_record(data, "it") == record


def test_a_figure_of_a_norm_that_the_run_lacks_is_refused(tmp_path, capsys):
    saved(tmp_path)
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "f.svg"), "--norm=50%"]) == 2
    assert "norm '50%'" in capsys.readouterr().err


def test_a_figure_of_a_norm_that_was_read_at_the_last_layer_only_is_refused(tiny_llama, word_texts, tmp_path, capsys):
    layerwise.scan(tiny_llama, word_texts, metrics="curvature", out=tmp_path / "run")
    drawn = ["report", str(tmp_path / "run"), "-o", str(tmp_path / "f.svg")]
    assert main([*drawn, "--norm=normed"]) == 2
    assert "norm 'normed' at layer 3 only" in capsys.readouterr().err
    assert main([*drawn, "--norm=raw"]) == 0


@pytest.mark.parametrize("in_its_place", ["nothing", "a folder"])
def test_a_comparison_names_a_state_that_is_missing(in_its_place, tiny_llama, tmp_path, capsys):
    texts = ["w1 w2 w3", "w4 w5", "w6 w7 w8", "w9 w1"]
    for name in ("one", "two"):
        layerwise.scan(tiny_llama, texts, metrics="intrinsic_dimension,curvature", out=tmp_path / name)
    (state,) = (tmp_path / "one").glob("state-*")
    state.unlink()
    if in_its_place == "a folder":
        state.mkdir()
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    assert "no CKA: state-*.safetensors is missing in" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"state-\*\.safetensors is missing in .*one"):
        layerwise.plot([tmp_path / "one", tmp_path / "two"], figure="cka")
    (tmp_path / "two" / "layerwise-run.json").unlink()
    with pytest.raises(InputError, match=r"layerwise-run\.json is missing in .*two"):
        layerwise.plot([tmp_path / "two", tmp_path / "two"], figure="cka")


def test_the_mark_of_a_folder_is_no_record_of_a_run(tiny_bert, tmp_path):
    layerwise.scan(tiny_bert, ["w1 w2", "w3 w4"], metrics="curvature", out=tmp_path / "run")
    shutil.copyfile(tmp_path / "run" / "layerwise-run.json", tmp_path / "run" / "run.json")
    with pytest.raises(RunError, match=r"table\.parquet is not the table that run\.json beside it belongs to"):
        layerwise.pick(tmp_path / "run", rule="last")


def test_correlate_names_the_folders_that_do_not_fit(tmp_path):
    saved(tmp_path)
    with pytest.raises(InputError, match=f"{tmp_path} and {tmp_path}: expected a scan"):
        layerwise.lab.correlate(tmp_path, tmp_path)


def test_an_empty_name_of_a_table_is_called_empty(tmp_path, capsys):
    assert main(["lab", "data", str(tmp_path / "root"), "Mine", "--type", "STS", "--test="]) == 2
    assert "the name of the table is empty" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["report", "-o"], ["report", "--html"], ["export", "--layer=1", "--out"]])
def test_a_url_is_no_file_on_disk_and_its_key_is_not_shown(words, tiny_llama, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "run")
    given = tiny_llama if words[0] == "export" else "run"
    assert main([words[0], given, *words[1:-1], f"{words[-1]}=s3://KEY:s3cr3t@runs/x.svg".replace("-o=", "-o")]) == 2
    assert "s3://***@runs/x.svg is a URL" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_half_written_hash_of_a_killed_process_is_deleted(tmp_path, monkeypatch):
    from layerwise.core.files import HOST_ID
    from layerwise.core.hashes import CACHE_VARIABLE, file_hash

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "cache" / "hashes").mkdir(parents=True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid in (gone.pid, 1):
        (tmp_path / "cache" / "hashes" / f".x.{HOST_ID}-{pid}-00000000.layerwise").touch()
    weights = tmp_path / "weights"
    weights.write_bytes(b"x")
    monkeypatch.setattr("layerwise.core.hashes.SECONDS_UNTIL_SETTLED", -9.0)
    file_hash(weights)
    names = {path.name for path in (tmp_path / "cache" / "hashes").iterdir()}
    assert len(names) == 2 and f".x.{HOST_ID}-1-00000000.layerwise" in names


def test_a_control_character_in_the_name_of_an_output_is_shown_as_an_escape(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "run")
    assert main(["report", "run", "--html=a\x1b[2Jb"]) == 0 and main(["report", "run", "-oa\x1bb.svg"]) == 0
    shown = capsys.readouterr().err
    assert "\x1b" not in shown and "wrote a\\u001b[2Jb" in shown and "wrote a\\u001bb.svg" in shown


def test_every_line_of_a_command_goes_through_say():
    package = Path(layerwise.__file__).parent
    files = [*package.glob("cli/*.py"), *package.glob("verbs/**/command.py")]
    raw = [path for path in files if re.search(r"print\([^\n]*args[^\n]*sys\.stderr", path.read_text())]
    assert raw == [] and len(files) > 15


def test_a_device_that_torch_does_not_know_is_refused_by_its_name(tiny_llama, capsys):
    for verb in (["scan", "--dry-run"], ["scan"], ["doctor"]):
        assert main([verb[0], tiny_llama, *verb[1:], "--device=mean,Mean"]) == 2
        assert "torch knows no device 'mean,Mean'" in capsys.readouterr().err


def test_two_dashes_are_no_value_of_an_option(capsys):
    for option in ("--where", "--title"):
        with suppress(SystemExit):
            main(["report", "run", "--html", "r.html", f"{option}=--"])
        assert f"argument {option}: expected a value, not '--'" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", '{"a": 1}'])
def test_an_object_of_somebody_else_is_no_record_of_a_run(content, tmp_path):
    saved(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(content)
    with pytest.raises(RunError, match="run.json was not written by layerwise"):
        layerwise.report(tmp_path / "run", html=tmp_path / "r.html")


def test_a_tokenizer_with_more_tokens_than_the_model_is_named(tiny_llama, tmp_path):
    shutil.copytree(tiny_llama, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.add_tokens(["extra"])
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelError, match="the tokenizer of .* makes token 97, but the model has embeddings of 97"):
        layerwise.scan(str(tmp_path / "model"), ["w1 w2 extra"])


@pytest.mark.parametrize("words", [["export", "MODEL", "--out", "small", "--recipe=\ud83d"], ["campaign", "\ud83d"]])
def test_half_a_character_is_no_name_of_a_file_or_folder(words, tiny_llama, capsys):
    assert main([tiny_llama if word == "MODEL" else word for word in words]) == 2
    assert "cannot use '\\ud83d' as a file or folder: it has half a character" in capsys.readouterr().err


def test_more_threads_than_any_machine_has_are_refused():
    with pytest.raises(InputError, match="threads must be at most 10,000, not 2147483648"):
        ProbeOptions("model", "data.csv", label="class", threads=2**31)
    with pytest.raises(InputError, match="workers must be at most 10,000, not 2147483648"):
        Cluster(workers=2**31)


def test_more_views_than_anyone_can_read_are_refused():
    with pytest.raises(InputError, match="count must be at most 10,000"):
        layerwise.lab.views("a text", count=10**40)


def test_lengths_of_a_stress_are_called_levels(tiny_llama, tmp_path):
    with pytest.raises(InputError, match="levels of random_length are lengths in tokens: .* at least 2, not 1"):
        layerwise.lab.stress(tiny_llama, ["w1 w2 w3"], kind="random_length", levels=[0, 1])


def test_compare_says_which_values_of_single_texts_are_gone(tiny_llama, tmp_path, capsys):
    for name in ("one", "two"):
        layerwise.scan(tiny_llama, [f"w1 w{i} w3" for i in range(9)], out=tmp_path / name, metrics="curvature")
    (values,) = (tmp_path / "one" / "prompts").iterdir()
    values.unlink()
    for _ in range(2):
        assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
        assert "prompts/*.parquet is missing in" in " ".join(capsys.readouterr().out.split())
        values.mkdir(exist_ok=True)


def probed(model, folder):
    texts, labels = [f"w{i} w{i % 7} w{i % 3}" for i in range(40)], [i % 2 for i in range(40)]
    pd.DataFrame({"text": texts, "label": labels}).to_csv(folder / "classes.csv", index=False)
    return layerwise.probe(model, folder / "classes.csv", label="label", out=folder / "run", probes="linear,knn")


def test_a_trained_probe_in_place_of_another_is_not_taken_for_it(tiny_llama, tmp_path):
    table = probed(tiny_llama, tmp_path)
    fits = sorted((tmp_path / "run" / "fits").iterdir())
    contents = [path.read_bytes() for path in fits]
    for path, content in zip(fits, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    assert probed(tiny_llama, tmp_path).to_pandas().equals(table.to_pandas())


def test_another_table_in_place_of_values_of_single_examples_is_refused(tiny_llama, tmp_path):
    probed(tiny_llama, tmp_path)
    shutil.copyfile(tmp_path / "run" / "table.parquet", tmp_path / "run" / "prompts" / "00000.parquet")
    with pytest.raises(RunError, match="prompts/00000.parquet belongs to another run"):
        probed(tiny_llama, tmp_path)


@pytest.mark.parametrize("content", ["7", "[]", '"text"'])
def test_a_config_of_a_pooling_that_is_no_object_is_refused_by_its_name(content, tiny_llama, tmp_path):
    layerwise.export(tiny_llama, 1, tmp_path / "small")
    (tmp_path / "small" / "1_Pooling" / "config.json").write_text(content)
    with pytest.raises(ModelError, match="1_Pooling/config.json of .* holds no JSON object"):
        layerwise.embed(str(tmp_path / "small"), ["w1 w2"], layers="last")


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_a_field_of_a_tokenizer_with_control_characters_is_not_printed(file, tiny_llama, tmp_path, capfd):
    shutil.copytree(tiny_llama, tmp_path / "model")
    path = tmp_path / "model" / file
    record = json.loads(path.read_text())
    token = {"content": "<x>", "single\x1b[2Jword": True, "id": 0}
    section, value = ("added_tokens", [token]) if file == "tokenizer.json" else ("added_tokens_decoder", {"0": token})
    path.write_text(json.dumps(record | {section: value}))
    assert main(["doctor", str(tmp_path / "model")]) == 2
    shown = capfd.readouterr()
    assert "\x1b" not in shown.out + shown.err and "single\\u001b[2Jword" in shown.err.replace("\\\\", "\\")


def test_an_adapter_that_cannot_exist_is_named_also_where_a_run_is(tiny_llama, tmp_path, capsys):
    words = ["scan", tiny_llama, "--data", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "run")]
    (tmp_path / "texts.txt").write_text("w1 w2 w3\nw4 w5 w6\n")
    assert main(words) == 0
    assert main([*words, "--adapter=0,1"]) == 2
    assert "cannot load the adapter '0,1'" in capsys.readouterr().err
