"""Trains a student to give the teacher's vectors, with the trainer of sentence-transformers.

The student starts from its linear map. Held-out texts decide when training ends and which weights are kept; those of
the start are kept if no later ones are better. Texts of a batch have similar lengths: a batch is as
long as its longest text, and the rest of it is wasted work. A deadline holds whatever else the machine does. Imported
late: it needs sentence-transformers, accelerate, datasets.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback

from layerwise.core.errors import RunError
from layerwise.core.files import write_atomically, write_checked_json
from layerwise.core.formats import parse_stored
from layerwise.core.hashes import file_sha256
from layerwise.core.progress import announce
from layerwise.core.quiet import quiet_libraries
from layerwise.core.tensors import dump_tensors, parse_tensors
from layerwise.runs.records import NUMBER_TYPES
from layerwise.verbs.shrink.texts import PromptedText

WARMUP_SHARE = 0.1
FEWEST_EVALUATIONS, MOST_EVALUATIONS = 3, 12  # during the training, each with a checkpoint
EVALUATED_SHARE = 0.1  # of the time of the steps, at most, unless those are very few


class Deadline(TrainerCallback):
    """Ends a training after so many seconds, evaluations and checkpoints included, however fast its steps are.

    The learning rate follows the time that has passed instead of the steps. The trainer's history, which is part of
    every checkpoint, holds that time, so that a resumed training has what is left of it.
    """

    def __init__(self, seconds: float, began: float, spent: float, evaluation: float) -> None:
        """`spent` seconds were used before a stop; an evaluation took `evaluation` seconds."""
        self.seconds, self.began = seconds, began - spent
        self.evaluation = evaluation  # the last one, with its checkpoint
        self.evaluated = spent  # when the last one was
        self.paused: float | None = None  # since when steps wait for an evaluation

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def rate(self) -> float:
        """The share of the highest learning rate: it rises during the first tenth, then falls to 0."""
        done = self.elapsed / (self.seconds - self.evaluation) if self.seconds > self.evaluation else 1.0
        return max(0.0, min(done / WARMUP_SHARE, (1 - done) / (1 - WARMUP_SHARE)))

    def interval(self) -> float:
        """The seconds between two evaluations, which take about a tenth of the time as long as there are three."""
        wanted = max(self.evaluation / EVALUATED_SHARE, self.seconds / MOST_EVALUATIONS)
        return min(wanted, self.seconds / FEWEST_EVALUATIONS)

    def resume(self) -> None:
        """Notes how long the evaluation took, if there was one."""
        if self.paused is not None:
            self.evaluation, self.evaluated, self.paused = self.elapsed - self.paused, self.elapsed, None

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        at_end = self.elapsed + self.evaluation >= self.seconds
        if at_end or self.elapsed + self.evaluation - self.evaluated >= self.interval():
            control.should_evaluate = control.should_save = True
            self.paused = self.elapsed
        control.should_training_stop = control.should_training_stop or at_end

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        state.log_history[-1]["elapsed"] = self.elapsed

    def steps_in_all(self, done: int) -> int:
        """How many steps there will be, if they go on as they have."""
        return done + round(done * max(0.0, self.seconds - self.elapsed) / max(1e-9, self.elapsed))


def clock_time(seconds: float) -> str:
    """The time of day in so many seconds."""
    return (datetime.now() + timedelta(seconds=max(0.0, seconds))).strftime("%H:%M:%S")


BATCHES_IN_A_POOL = 50  # texts are sorted within pools of so many batches, so that batches differ between epochs


def similar_length_batches(lengths: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """Every text once, in batches of similar length, in an order that depends only on the seed."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    batches = []
    for start in range(0, len(order), BATCHES_IN_A_POOL * batch_size):
        pool = sorted(order[start : start + BATCHES_IN_A_POOL * batch_size], key=lambda place: lengths[place])
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


class SimilarLengthSampler(DefaultBatchSampler):
    """For the trainer: the batches of an epoch depend on seed and epoch alone, so that a resumed training has them too.

    The number of characters stands for that of tokens: nothing has to be tokenized beforehand.
    """

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool, seed: int = 0, **others: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, seed=seed, **others)
        self.lengths = [len(text) for text in dataset["text"]]

    def __iter__(self) -> Iterator[list[int]]:
        yield from similar_length_batches(self.lengths, self.batch_size, self.seed + self.epoch)

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)


SIMILARITY_WEIGHT = 10.0  # of the similarity matrices' squared error, against 1 - cosine
NO_END = 10**9  # steps, where minutes decide
BACKWARD_COST = 3  # a step of training costs as much as so many passes over its texts
SHORT_TOKENS = 128
PATIENCE = 3  # evaluations in a row, each no better than the one before it, after which training ends
CHECKPOINT = re.compile(r"checkpoint-\d+")
WEIGHTS_FILE, STATE_FILE = "model.safetensors", "trainer_state.json"
CHECKSUMS_FILE = "checksums.json"  # of a checkpoint: the hash of every other file
RESULT_FILE, FINAL_FILE = "result.json", "final.safetensors"  # of a training that has ended
FINAL_KEY = "layerwise_trained"  # of the final weights' checksum


@dataclass(frozen=True)
class TrainingSettings:
    """How to train. With a number of steps, this, the texts and the student decide the weights."""

    steps: int | None  # or None, and as many as fit into
    minutes: float | None
    batch_size: int
    learning_rate: float
    seed: int
    lora: int | None = None
    prompt: str = ""  # read before every text, if pooling leaves the prompt out; otherwise it is part of the texts


@dataclass(frozen=True)
class Trained:
    """The result of a training; the model itself was changed in place."""

    steps: int  # that were run
    kept_step: int  # whose weights were kept; 0 for the start
    agreement_before: float  # mean cosine with the teacher's vectors on held-out texts
    agreement: float
    seconds: float
    history: tuple[tuple[int, float], ...]  # step and agreement


TRAINED_SHAPE = {
    "steps": int, "kept_step": int, "agreement_before": NUMBER_TYPES, "agreement": NUMBER_TYPES,
    "seconds": NUMBER_TYPES, "history": [[NUMBER_TYPES]],
}  # fmt: skip


class ImitationLoss(nn.Module):
    """1 - cosine with the teacher's vector, and the squared error of the cosines between the texts of a batch.

    A teacher whose vectors do not have length 1 also gives their relative squared error. The student is kept in
    evaluation mode: dropout would be noise in what it is to imitate exactly.
    """

    def __init__(self, model: Any, unit: bool) -> None:
        super().__init__()
        self.model, self.unit = model, unit

    def forward(self, features: Iterable[dict[str, Tensor]], targets: Tensor) -> Tensor:
        """features: the tokens of one column of texts; targets (B, E)."""
        self.model.eval()
        (texts,) = features
        with faster_products(targets.device, texts["input_ids"].shape[1]):
            found = self.model(texts)["sentence_embedding"].float()
        return imitation_loss(found, targets.to(found), unit=self.unit)


def imitation_loss(found: Tensor, targets: Tensor, *, unit: bool) -> Tensor:
    """found and targets (B, E); 0 if and only if they are equal (up to length, for a unit teacher)."""
    ours, theirs = (nn.functional.normalize(rows, dim=1) for rows in (found, targets))
    loss = (1 - (ours * theirs).sum(dim=1)).mean()
    loss = loss + SIMILARITY_WEIGHT * (ours @ ours.mT - theirs @ theirs.mT).square().mean()
    if not unit:
        loss = loss + (found - targets).square().sum() / targets.square().sum()
    return loss


class AgreementEvaluator(SentenceEvaluator):
    """Mean cosine between the student's and the teacher's vectors of held-out texts."""

    def __init__(self, texts: Sequence[str], targets: Tensor, prompt: str, batch_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.texts, self.targets, self.prompt, self.batch_size = list(texts), targets, prompt, batch_size

    def __call__(self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1) -> Any:
        model.eval()
        found = model.encode(
            self.texts, prompt=self.prompt, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False
        )
        cosine = nn.functional.cosine_similarity(found.cpu().double(), self.targets.double(), dim=1).mean()
        # Weights that give no numbers agree less than any others.
        return {"agreement": float(cosine) if torch.isfinite(cosine) else -1.0}


class ImitationTrainer(SentenceTransformerTrainer):
    """The trainer of sentence-transformers, with checkpoints that hold the weights alone, in safetensors."""

    rate: Callable[[], float] | None = None  # the share of the highest learning rate, where steps do not decide it

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        rate, used = self.rate, optimizer or self.optimizer
        if rate is None or used is None:
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = LambdaLR(used, lambda step: rate())
        return self.lr_scheduler

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card: the exporter writes one."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(str(output_dir or self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_file(weights_of(self.model), folder / WEIGHTS_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.model.load_state_dict(load_file(Path(resume_from_checkpoint) / WEIGHTS_FILE))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        write_checksums(Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}")

    def _load_best_model(self) -> None:
        if (best := self.state.best_model_checkpoint) is not None:
            if problem := checkpoint_problem(Path(best)):
                raise RunError(f"{best} cannot be read: {problem}; run the same command again to go on without it")
            self._load_from_checkpoint(best)


class Reporter(TrainerCallback):
    """Announces the agreement after each evaluation, and when the training ends."""

    def __init__(self, before: float, began: float, deadline: Deadline | None) -> None:
        self.before, self.began, self.deadline = before, began, deadline

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> None:
        seconds, steps, end = time.perf_counter() - self.began, f"{state.max_steps:,}", ""
        if self.deadline is not None:
            seconds, steps = self.deadline.elapsed, f"about {self.deadline.steps_in_all(state.global_step):,}"
            end = f", ends at {clock_time(self.deadline.seconds - seconds)}"
        announce(
            f"  step {state.global_step:,} of {steps} ({seconds:.0f} s{end}): agreement "
            f"{metrics['eval_agreement']:.4f} on held-out texts (linear map {self.before:.4f})"
        )


class EarlyStop(TrainerCallback):
    """Ends the training when held-out texts have not improved for a while.

    An evaluation counts against the one before it, not against the best: the first steps may spoil the linear map, and
    training must go on while it recovers. It is decided by the trainer's history, which a resumed run has too.
    """

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        values = [entry["eval_agreement"] for entry in state.log_history if "eval_agreement" in entry]
        control.should_training_stop = control.should_training_stop or has_stalled(values)


def has_stalled(values: Sequence[float]) -> bool:
    """True if none of the last evaluations was better than the one before it."""
    recent = values[-PATIENCE - 1 :]
    return len(recent) > PATIENCE and all(recent[i + 1] <= recent[i] for i in range(PATIENCE))


def train_student(
    model: Any,
    texts: Sequence[PromptedText],
    targets: Tensor,
    held_out: Sequence[PromptedText],
    held_targets: Tensor,
    settings: TrainingSettings,
    *,
    unit: bool,
    folder: Path,
) -> Trained:
    """Trains the SentenceTransformer in place, and continues from the last checkpoint in `folder` if there is one.

    A training that has ended there is not continued: its weights are loaded.
    """
    if (folder / RESULT_FILE).is_file():
        record = parse_stored((folder / RESULT_FILE).read_bytes(), str(folder / RESULT_FILE), TRAINED_SHAPE)
        model.load_state_dict(final_weights(folder))
        return Trained(**record | {"history": tuple((step, value) for step, value in record["history"])})
    started = time.perf_counter()
    checkpoint = latest_checkpoint(folder)
    evaluator = AgreementEvaluator(inputs_of(held_out, settings), held_targets, settings.prompt, settings.batch_size)
    before = evaluator(model)["agreement"]
    deadline = None
    if settings.minutes is not None:
        spent, evaluation = seconds_spent(checkpoint), time.perf_counter() - started
        deadline = Deadline(60 * settings.minutes, started, spent, evaluation)
        left = deadline.seconds - deadline.elapsed
        announce(f"training for {max(0.0, left) / 60:.3g} minutes, until {clock_time(left)}")
    start = {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}
    with quiet_libraries():
        if settings.lora:
            torch.manual_seed(settings.seed)  # the adapters start at random
            add_adapters(model, settings.lora)
        trainer = make_trainer(model, inputs_of(texts, settings), targets, settings, evaluator, unit, folder)
        trainer.remove_callback(PrinterCallback)
        if deadline is not None:
            trainer.rate = deadline.rate
            trainer.add_callback(deadline)
        trainer.add_callback(Reporter(before, started, deadline))
        trainer.add_callback(EarlyStop())
        trainer.train(resume_from_checkpoint=checkpoint)
        if settings.lora:
            merge_adapters(model)
    history = tuple((int(entry["step"]), entry["eval_agreement"]) for entry in trainer.state.log_history
                    if "eval_agreement" in entry)  # fmt: skip
    kept, agreement = max(history, key=lambda entry: entry[1], default=(0, before))
    if agreement <= before:
        model.load_state_dict(start)
        kept, agreement = 0, before
    model.eval()
    seconds = time.perf_counter() - started if deadline is None else deadline.elapsed
    trained = Trained(trainer.state.global_step, kept, before, agreement, seconds, history)
    write_atomically(folder / FINAL_FILE, dump_tensors(FINAL_KEY, "", weights_of(model)))
    write_checked_json(folder / RESULT_FILE, asdict(trained))
    for path in folder.glob("checkpoint-*"):  # they are large, and no longer needed
        if CHECKPOINT.fullmatch(path.name):
            shutil.rmtree(path)
    return trained


def seconds_spent(checkpoint: str | None) -> float:
    """How long a training with a deadline had gone on at this checkpoint."""
    if checkpoint is None:
        return 0.0
    history = json.loads((Path(checkpoint) / STATE_FILE).read_bytes())["log_history"]
    return max((float(entry["elapsed"]) for entry in history if "elapsed" in entry), default=0.0)


def final_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a training that has ended; raises RunError if they are not what was written."""
    try:
        return parse_tensors(FINAL_KEY, (folder / FINAL_FILE).read_bytes())[1]
    except (OSError, ValueError) as error:
        advice = f"delete {folder} and run the same command again to train anew"
        raise RunError(f"the trained weights in {folder / FINAL_FILE} cannot be read: {error}; {advice}") from error


def weights_of(model: Any) -> dict[str, Tensor]:
    return {name: weight.detach().cpu().clone().contiguous() for name, weight in model.state_dict().items()}


def inputs_of(texts: Sequence[PromptedText], settings: TrainingSettings) -> list[str]:
    """What the model tokenizes: prompt and text, or the text alone where the trainer adds the prompt."""
    return [item.text if settings.prompt else item.prompt + item.text for item in texts]


def make_trainer(
    model: Any,
    texts: Sequence[str],
    targets: Tensor,
    settings: TrainingSettings,
    evaluator: AgreementEvaluator,
    unit: bool,
    folder: Path,
) -> ImitationTrainer:
    from datasets import Dataset

    data = Dataset.from_dict({"text": texts, "label": targets.numpy()})
    steps = settings.steps or NO_END
    interval = max(1, steps // evaluation_count(steps, settings.batch_size, len(evaluator.texts)))
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=settings.batch_size,
        batch_sampler=SimilarLengthSampler,
        optim="adamw_torch_fused",
        learning_rate=settings.learning_rate,
        warmup_steps=int(WARMUP_SHARE * steps),
        lr_scheduler_type="linear",
        eval_strategy="steps",
        eval_steps=interval,
        save_strategy="steps",
        save_steps=interval,
        save_total_limit=2,  # the best and the last
        load_best_model_at_end=True,
        metric_for_best_model="eval_agreement",
        greater_is_better=True,
        prompts=settings.prompt or None,
        seed=settings.seed,
        data_seed=settings.seed,
        use_cpu=model.device.type == "cpu",
        dataloader_pin_memory=model.device.type != "cpu",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    return ImitationTrainer(
        model=model, args=arguments, train_dataset=data, loss=ImitationLoss(model, unit), evaluator=evaluator
    )


def trains_in_bfloat16(device: torch.device) -> bool:
    """True on a CPU with units that multiply matrices in bfloat16 (AMX); elsewhere that would be slower."""
    if device.type != "cpu":
        return False
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of torch do not tell
    return bool(capabilities.get("amx_bf16"))


@contextmanager
def faster_products(device: torch.device, tokens: int) -> Iterator[None]:
    """Multiplies matrices in bfloat16 where the processor has units for it; weights and updates stay in float32.

    A step then takes about half of the time (studies/shrink). The trainer's own `bf16` is not used: it would leave the
    model in bfloat16 for evaluations and for the export.
    """
    if not trains_in_bfloat16(device):
        yield
        return
    # The backward pass of torch's fused attention takes nine times as long in bfloat16, so short texts, whose attention
    # weights need little memory, do without it.
    short = sdpa_kernel(SDPBackend.MATH) if tokens <= SHORT_TOKENS else nullcontext()
    with torch.autocast("cpu", torch.bfloat16), short:
        yield


def evaluation_count(steps: int, batch_size: int, held_out: int) -> int:
    """How often a training of so many steps is evaluated; by the steps alone, so that a repeated call does the same."""
    affordable = int(EVALUATED_SHARE * steps * BACKWARD_COST * batch_size / held_out)
    return min(MOST_EVALUATIONS, max(FEWEST_EVALUATIONS, affordable))


def write_checksums(checkpoint: Path) -> None:
    """Records the hash of every file of a checkpoint. It comes last: without it, a checkpoint is half-written."""
    hashes = {path.name: file_sha256(path) for path in sorted(checkpoint.iterdir()) if path.name != CHECKSUMS_FILE}
    write_checked_json(checkpoint / CHECKSUMS_FILE, {"files": hashes})


def checkpoint_problem(checkpoint: Path) -> str:
    """What is wrong with a checkpoint; "" if every file is as it was written."""
    try:
        path = checkpoint / CHECKSUMS_FILE
        hashes = parse_stored(path.read_bytes(), str(path), {"files": {str: str}})["files"]
        changed = [name for name in hashes if file_sha256(checkpoint / name) != hashes[name]]
    except (OSError, KeyError, TypeError, RunError) as error:
        return f"a file is missing or damaged ({error})"
    return f"{', '.join(changed)} changed after it was written" if changed else ""


def latest_checkpoint(folder: Path) -> str | None:
    """The last checkpoint that can be gone on from: it is whole, and so is the one with the best weights so far.

    The others are deleted. This is announced, unless a checkpoint is half-written.
    """
    paths = {int(path.name[len("checkpoint-"):]): path for path in folder.glob("checkpoint-*")
             if CHECKPOINT.fullmatch(path.name)}  # fmt: skip
    problems = {path.name: checkpoint_problem(path) for path in paths.values()}
    for _, path in sorted(paths.items(), reverse=True):
        best = ""
        if not problems[path.name]:
            best = Path(json.loads((path / STATE_FILE).read_bytes())["best_model_checkpoint"] or path).name
        if not problems[path.name] and not problems.get(best, "it is missing"):
            return str(path)
        if (path / CHECKSUMS_FILE).exists():
            announce(f"{path} is not used: {problems[path.name] or f'{best}, which has the best weights, is damaged'}")
        shutil.rmtree(path)
    return None


def add_adapters(model: Any, rank: int) -> None:
    """Puts low-rank adapters on all linear maps of the blocks; of the rest, only the map after pooling is trained."""
    from peft import LoraConfig, inject_adapter_in_model

    first, *others = model.children()
    inject_adapter_in_model(
        LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear"), first.auto_model
    )
    for name, weight in first.named_parameters():
        weight.requires_grad = "lora_" in name
    for module in others:
        module.requires_grad_(True)


def merge_adapters(model: Any) -> None:
    """Adds the adapters to the weights, and removes them."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    network = next(iter(model.children())).auto_model
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            owner, _, last = name.rpartition(".")
            setattr(network.get_submodule(owner), last, layer.get_base_layer())
