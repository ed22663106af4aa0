"""The audio processor: decodes clips, makes views and features, and says which frames cover real audio."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.core.preprocessors import NO_LIMIT, AudioPreprocessor
from layerwise.inputs.decoding import Samples, load_samples
from layerwise.inputs.perturbations.audio import perturb_audio
from layerwise.inputs.perturbations.changes import NO_VIEWS, ViewPlan, with_views
from layerwise.inputs.processor import Masks, Prepared, make_prepared
from layerwise.inputs.source import Example, Payload


@dataclass(frozen=True)
class AudioView:
    """A clip and its views, which are made when the batch is built: decoded, a shard may not fit into memory."""

    example: Example
    limit: int  # samples
    frames: int  # that cover real audio, in every view
    plan: ViewPlan


@dataclass(frozen=True)
class AudioProcessor:
    """A feature extractor as a Processor. `max_length` is in frames."""

    preprocessor: AudioPreprocessor
    template: str = ""

    def __post_init__(self) -> None:
        if self.template:
            raise InputError("a template is for texts, but this model takes audio")

    @property
    def stress_kinds(self) -> Collection[str]:
        return ()

    def prepare(
        self, examples: Sequence[Example], max_length: int, view_plan: ViewPlan = NO_VIEWS
    ) -> list[Prepared[AudioView]]:
        frames, limit = self.preprocessor.frames, self.preprocessor.frames.most_samples(max_length)
        results = []
        for example in examples:
            samples, truncated = self.load(example, limit)
            if not (count := frames.count(len(samples))):
                raise InputError(
                    f"example {example.id} is too short: it has {len(samples)} samples at {self.preprocessor.rate:,} "
                    f"per second, and this model needs at least {frames.least_samples(1)}"
                )
            sizes = [frames.positions(len(samples))] * (1 + view_plan.views)
            key = 0 if frames.pads_exactly else len(samples)
            view = AudioView(example, limit, count, view_plan)
            results.append(make_prepared(example, (view,), sizes, truncated=truncated, batch_key=key))
        return results

    def load(self, example: Example, limit: int) -> tuple[Samples, bool]:
        return load_samples(example.payload, self.preprocessor.rate, limit, f"example {example.id}")

    def collate(self, group: Sequence[Prepared[AudioView]]) -> Mapping[str, Tensor]:
        clips: list[Samples] = []
        for prepared in group:
            (view,) = prepared.views
            samples, _ = self.load(view.example, view.limit)
            clips += with_views(samples, perturb_audio, view.plan, view.example.id)
        features = [self.features(samples) for samples in clips]
        if self.preprocessor.frames.window:
            return {self.preprocessor.input_name: torch.stack(features)}
        padded = torch.nn.utils.rnn.pad_sequence(features, batch_first=True)
        if not self.preprocessor.frames.pads_exactly:
            return {self.preprocessor.input_name: padded}  # all clips have one length
        lengths = torch.tensor([len(samples) for samples in clips])
        mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()
        return {self.preprocessor.input_name: padded, "attention_mask": mask}

    def features(self, samples: Samples) -> Tensor:
        """The model's input for one clip, without a batch axis; one clip at a time, so that no other changes it."""
        extracted = self.preprocessor.extractor(
            samples, sampling_rate=self.preprocessor.rate, return_attention_mask=False, return_tensors="np"
        )
        return torch.from_numpy(np.asarray(extracted[self.preprocessor.input_name][0], dtype=np.float32))

    def masks(self, group: Sequence[Prepared[AudioView]], inputs: Mapping[str, Tensor], positions: int) -> Masks:
        frames, device = self.preprocessor.frames, inputs[self.preprocessor.input_name].device
        counts = torch.tensor([[prepared.views[0].frames] * len(prepared.sizes) for prepared in group], device=device)
        position = torch.arange(positions, device=device)
        special = (position < frames.special).expand(*counts.shape, -1)
        number = (position - frames.special) % (frames.window or positions)  # of the frame, in each row
        real = special | (number < counts[..., None])
        return Masks(real, special, ~real if frames.window else None)

    def size(self, payload: Payload) -> float:
        try:
            limit = self.preprocessor.frames.most_samples(self.preprocessor.frames.window or NO_LIMIT)
            samples, _ = load_samples(payload, self.preprocessor.rate, limit, "an example")
        except InputError:
            return math.inf
        return self.preprocessor.frames.positions(len(samples)) or math.inf
