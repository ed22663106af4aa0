"""One of two processes: trains with the callback, then syncs a torchmetric. test_training.py starts them."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from families import make_tokenizer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import layerwise
from layerwise.verbs.scan import shards as scan_run

folder, model = Path(sys.argv[1]), sys.argv[2]
texts = json.loads((folder / "texts.json").read_text())
torch.set_num_threads(1)

computed, plain = [], scan_run.scan_shard
scan_run.scan_shard = lambda *args: computed.append(1) or plain(*args)

rows = [
    {"input_ids": ids, "labels": ids} for ids in make_tokenizer()(texts, truncation=True, max_length=3)["input_ids"]
]
arguments = TrainingArguments(
    str(folder / "trainer"), max_steps=4, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, use_cpu=True,
    save_strategy="no",
)  # fmt: skip
trainer = Trainer(AutoModelForCausalLM.from_pretrained(model), arguments, train_dataset=rows)
alert = layerwise.training.Alert("curvature", below=1e9, stop=True)
watch = layerwise.training.LayerwiseCallback(
    trainer, texts, every=2, out=folder / "layers", metrics="fast", shard_size=8, tokenizer=model, alerts=[alert]
)
watch.watch.alert_states.clear()  # first without, so that the training goes on
first, _ = watch.watch.scan(0)
shards = len(computed)
del first["layers/seconds"]

watch = layerwise.training.LayerwiseCallback(trainer, texts, every=2, tokenizer=model, alerts=[alert])
trainer.add_callback(watch)
trainer.train()

rank = dist.get_rank()
vectors = torch.randn(30, 8, generator=torch.Generator().manual_seed(1))
metric = layerwise.training.as_torchmetric("effective_rank")
for part in vectors[rank::2].split(5 + rank):
    metric.update(part[:, None])
lonely = layerwise.training.as_torchmetric("effective_rank")  # the second process sees no data at all
if rank == 0:
    lonely.update(vectors[:7, None])
alone = layerwise.training.as_torchmetric("effective_rank")
alone.sync_on_compute = False
alone.update(vectors[:7, None])

result = {"first": first, "shards": shards, "stopped_at": trainer.state.global_step, "rows": vectors.tolist()}
result |= {"effective_rank": metric.compute().item(), "one_sided": lonely.compute().item()}
(folder / f"rank{rank}.json").write_text(json.dumps(result | {"one_sided_alone": alone.compute().item()}))
dist.destroy_process_group()
