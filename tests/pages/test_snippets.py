"""Every command and snippet of the documentation that is not marked otherwise runs as it stands, with tiny models.

MODEL and names of the hub stand for tiny models; files that pages name lie in the working folder.
"""

import contextlib
import glob
import io
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from audio_models import clips, save_audio, wav_bytes
from families import save_byte_model
from made_runs import eval_table, stress_table
from PIL import Image
from snippets import PAGES, ROOT, all_items, counts, items_of
from vision_models import encoded, picture, save_vision

import layerwise
from layerwise.__main__ import main
from layerwise.inputs.text import demo_texts

ITEMS = all_items()
RUN = [page for page in PAGES if any(item.page == page and item.is_run_here for item in ITEMS)]
HUB = {"openai/whisper-tiny.en": "speech", "facebook/hubert-base-ls960": "hubert", "facebook/dinov2-base": "dino",
       "openai/clip-vit-base-patch32": "clip"}  # fmt: skip
# Names that pages use for runs of a user.
SCANS = ["BASE", "TUNED", "RUN", "RUN_A", "RUN_B", "SCAN", "SCAN_A", "SCAN_B", "STEP8", "STEP64", "STEP629", "run_a"]
SCANS += ["run_b", "base", "tuned", "run", *(f"runs/{n}" for n in ("smollm2-135m", "stories15m", "all-minilm-l6-v2"))]
SCANS += ["runs/gte-small", "runs/gptneox/step8", "runs/gptneox/step64", "runs/gptneox/step629"]
EVALS = ["EVAL", "scores", "scores/all-minilm-l6-v2"]
LIMITS = {"scan": "--limit 12", "stress": "--limit 6 --min-tokens 1 --max-length 24", "probe": "--epochs 1"}
TEXTS = [text[:60] for text in demo_texts()[:120]]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with everything that the pages name."""
    folder = tmp_path_factory.mktemp("desk")
    with contextlib.chdir(folder):
        save_byte_model("MODEL", depth=12, length=48)
        save_byte_model("encoder", depth=12, length=24, family="bert")
        write_texts()
        write_tasks()
        first = layerwise.scan(
            "MODEL", TEXTS[:12], tokens="all,no_first", rows="raw,centered_unit", out="one", threads=1
        )
        for name in SCANS:
            shutil.copytree("one", name)
        for name in EVALS:
            record = first.model.to_record()
            table = eval_table(first.model.name, depth=12, tasks=("A", "B", "C"))
            layerwise.LayerTable(table.scores, {**table.run, "model": record}).save(name)
        stress = stress_table()
        layerwise.LayerTable(tuple(replace(s, tokens="no_first") for s in stress), stress.run).save("STRESS")
    return folder


def write_texts():
    Path("texts.txt").write_text("\n".join(TEXTS))
    Path("queries.txt").write_text("\n".join(TEXTS[::2]))
    Path("documents.txt").write_text("\n".join(TEXTS[1::2]))
    for name in ("texts.parquet", "WIKITEXT2_TEST.parquet"):
        pd.DataFrame({"text": TEXTS}).to_parquet(name)
    Path("recipe.json").write_text(json.dumps({"layer": 9, "transform": "remove_top:3"}))


def write_tasks():
    topics = [("red", "blue")[i % 2] for i in range(len(TEXTS))]
    named = pd.DataFrame({"text": TEXTS, "topic": topics, "label": topics, "author": topics[::-1]})
    named[:80].to_csv("train.csv", index=False)
    named[80:].to_csv("test.csv", index=False)
    named.to_csv("titles.csv", index=False)
    named.to_csv("few.csv", index=False, columns=["text", "label"])
    named.to_parquet("all.parquet")
    pairs = pd.DataFrame({"sentence1": TEXTS[:30], "sentence2": TEXTS[30:60], "score": range(30)})
    pairs.to_csv("scored_pairs.csv", index=False)
    pairs.assign(labels=[i % 2 for i in range(30)]).to_csv("pairs.csv", index=False)
    lines = [{"query": TEXTS[i], "positive": [TEXTS[i + 1]], "negative": TEXTS[i + 2 : i + 4]} for i in range(9)]
    Path("candidates.jsonl").write_text("\n".join(map(json.dumps, lines)))


def add_speech():
    for name, kind in (("speech", "whisper"), ("hubert", "hubert")):
        save_audio(Path(name), kind)
    sounds = [wav_bytes(*clip) for clip in clips(16)]
    Path("clips").mkdir()
    for number, sound in enumerate(sounds[:8]):
        Path("clips", f"{number}.wav").write_bytes(sound)
    frame = pd.DataFrame({"audio": [{"bytes": sound, "path": None} for sound in sounds]})
    frame = frame.assign(file=[f"{i}.wav" for i in range(16)], digit=[i % 2 for i in range(16)], speaker="a")
    frame.loc[::3, "speaker"] = "b"
    for name, rows in (("clips", frame), ("train", frame[:10]), ("test", frame[10:])):
        rows.to_parquet(f"{name}.parquet")


def add_photos():
    for name, kind in (("dino", "dinov2"), ("clip", "clip")):
        save_vision(Path(name), kind)
    photos = [encoded(picture(number)) for number in range(24)]
    Path("photos").mkdir()
    for number, photo in enumerate(photos[:8]):
        Path("photos", f"{number}.png").write_bytes(photo)
    Image.open(io.BytesIO(photos[0])).save("photo.jpg")
    frame = pd.DataFrame({"image": [{"bytes": photo, "path": None} for photo in photos]})
    frame = frame.assign(img=frame.image, **{"class": [i % 2 for i in range(24)]})
    for name, rows in (("photos", frame), ("train", frame[:16]), ("test", frame[16:])):
        rows.to_parquet(f"{name}.parquet")


def objects_of_a_training():
    """What a user of the callbacks has: a model, a tokenizer, rows, and what a training passes around."""
    import torchmetrics
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained("MODEL")
    model = AutoModelForCausalLM.from_pretrained("MODEL")
    batch = tokenizer(TEXTS[:4], padding=True, return_tensors="pt")
    rows = [{"input_ids": ids, "labels": ids} for ids in batch["input_ids"].tolist()]
    quick = {"max_steps": 1, "save_strategy": "no", "report_to": [], "disable_tqdm": True}
    return {
        "torchmetrics": torchmetrics,
        "tokenizer": tokenizer,
        "model": model,
        "rows": rows,
        "arguments": TrainingArguments("trainer", dataloader_pin_memory=False, **quick),
        "batch": {**batch, "labels": batch["input_ids"]},
        "hidden": torch.randn(4, 9, 16),
        "attention_mask": torch.ones(4, 9, dtype=torch.long),
    }


def run_command(line):
    """Runs a command of a page. What an earlier line of the page has written is put aside: lines are often choices."""
    words = shlex.split(line, comments=True)
    assert words[0] == "layerwise", f"{line}: mark it as not run"
    verb = words[2] if words[1] == "lab" else words[1]
    words = [HUB.get(word, word) for word in words[1:] if word != "RUN..."]
    if "RUN..." in line:
        words[1:1] = ["RUN_A", "RUN_B"]
    words = ["2" if word == "8" and "dino" in words else word for word in words]  # the tiny one has three layers
    words = [re.sub(r"^STEP(\d+)$", r"runs/gptneox/step\1", word) for word in words]
    words = [word.replace("WIKITEXT2_TEST", "WIKITEXT2_TEST.parquet") for word in words]
    words = [name for word in words for name in (sorted(glob.glob(word)) if word.endswith("*") else [word])]
    for option in ("--out", "-o"):
        if option in words and (made := Path(words[words.index(option) + 1])).exists() and made.name not in words[1:3]:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    if "--only" in words:
        place = words.index("--only")
        words = words[:place] + words[place + 2 :]
    words += LIMITS.get(verb, "").split()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main(words)
    if code and "needs sentence-transformers" in printed.getvalue():
        pytest.skip(f"an older version of sentence-transformers is installed: {line}")
    assert code == 0, f"{line}\n{printed.getvalue()}"


@pytest.mark.parametrize("page", RUN)
@pytest.mark.filterwarnings("ignore")
def test_everything_on_a_page_runs(page, desk, tmp_path, monkeypatch):
    work = shutil.copytree(desk, tmp_path / "work")
    monkeypatch.chdir(work)
    if page == "docs/audio.md":
        add_speech()
    if page == "docs/images.md":
        add_photos()
    if page in ("docs/static.md", "docs/shrink.md"):  # of embedding models
        shutil.rmtree("MODEL")
        shutil.copytree("encoder", "MODEL")
    names = {"layerwise": layerwise, "texts": TEXTS[:12], "table": layerwise.LayerTable.load("run"), "__name__": "page"}
    if page == "docs/training.md":
        names |= objects_of_a_training()
    for item in (item for item in ITEMS if item.page == page and item.is_run_here):
        if item.kind == "commands":
            if page == "docs/training.md" and not Path("layers/step005000").exists():
                Path("layers/step000001").rename("layers/step005000")  # the training above had one step
            run_command(item.text)
        elif item.language == "yaml":
            Path("file.yaml").write_text(item.text)
            assert layerwise.Campaign.load("file.yaml").cells
        elif item.kind == "snippets":
            code = item.text.replace('out="probes"', 'out="more", epochs=1')
            for hub, folder in HUB.items():
                code = code.replace(hub, folder)
            exec(code, names)  # noqa: S102
        else:
            pytest.fail(f"{page} shows an output that nothing compares: {item.text[:80]}")


def test_what_another_test_runs_is_read_by_it():
    for item in ITEMS:
        if item.elsewhere:
            test = (ROOT / item.elsewhere).read_text(encoding="utf-8")
            assert Path(item.page).name in test, f"{item.elsewhere} does not read {item.page}"


def test_tests_that_reasons_name_exist():
    for item in ITEMS:
        for name in re.findall(r"tests/\w+\.py", item.reason):
            assert (ROOT / name).exists(), item.reason


def test_the_counts_are_those_of_the_page():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for kind, (run, total) in counts(ITEMS).items():
        assert f"| {kind} | {total} | {run} | {total - run} |" in page, f"{kind}: {run} of {total}"


def test_marks_are_understood():
    text = "<!-- not run here (b): slow -->\n```bash\na\nb \\\n  c\n```\n```text\nout\n```\n\n"
    text += "<!-- run by tests/x.py -->\n```python\n1\n```\n"
    found = [(item.kind, item.text.strip(), item.reason or item.elsewhere) for item in items_of("p", text)]
    assert found == [
        ("commands", "a", ""), ("commands", "b c", "slow"), ("outputs", "out", ""), ("snippets", "1", "tests/x.py")
    ]  # fmt: skip
