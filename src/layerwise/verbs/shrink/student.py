"""The student: some blocks of the teacher, its pooling, a linear map to the teacher's vectors, and its prompts."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.core.display import command_line
from layerwise.core.errors import InputError, ModelError
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.quiet import quiet_libraries
from layerwise.core.templates import template_of_prompt
from layerwise.inputs.source import Example
from layerwise.maps.linear import LinearMap
from layerwise.models.head import Head
from layerwise.models.load import build_network
from layerwise.models.modules import linear_module, transformer_module
from layerwise.models.network import Network
from layerwise.models.opening import open_network
from layerwise.models.quantized import require_ordinary_weights
from layerwise.models.readouts import last_recipe
from layerwise.models.shipped import POOLING_NAMES, Shipped, ShippedModule, similarity_of
from layerwise.models.spec import ModelLike
from layerwise.models.truncate import keep_blocks
from layerwise.passes.vectors import pooled_vectors, require_finite_vectors
from layerwise.verbs.export.backends.backend import Backend
from layerwise.verbs.export.backends.catalog import find_backend
from layerwise.verbs.shrink.texts import PromptedText

Vectors = Callable[[Sequence[PromptedText]], Tensor]  # the teacher's vectors (N, E), from the store
POOLED_BEFORE = ("WordWeights", "Pooling")  # the modules that turn hidden states into one vector
# Reasons for a model's own encode that a student would have to copy, and cannot.
NOT_COPIED = ("it wraps", "its transformer task", "it sets")
UNIT_TOLERANCE, HALF_UNIT_TOLERANCE = 1e-3, 2e-2  # of the length 1; the second for vectors in half precision


@dataclass(frozen=True)
class Teacher:
    """The whole model, and what its student keeps of it."""

    network: Network
    pooling: tuple[nn.Module, ...]  # modules of sentence-transformers, the last of them a Pooling
    prompts: tuple[str, ...]  # the different prompts that texts are read with, the default one first
    max_length: int
    vectors: Vectors
    unit: bool  # whether its vectors have length 1

    @property
    def shipped(self) -> Shipped | None:
        return self.network.shipped

    @property
    def depth(self) -> int:
        """How many blocks there are to choose from."""
        return blocks_read(self.network)


def blocks_read(network: Network) -> int:
    """How many blocks the vectors of a model need: an exported recipe may read a hidden state before its last block."""
    if network.shipped is None or (state := network.shipped.hidden_state) is None:
        return network.depth
    try:
        return range(network.depth + 1)[state]
    except (IndexError, TypeError):
        raise ModelError(f"{network.name} pools hidden state {state!r}, but has 0 to {network.depth}") from None


def teacher_prompts(network: Network) -> tuple[str, ...]:
    """The different prompts of a model, the default one first; only that one if pooling leaves the prompt out."""
    shipped = network.shipped
    if shipped is None:
        return ("",)
    others = (
        [prompt for prompt in shipped.prompts.values() if isinstance(prompt, str)] if shipped.include_prompt else []
    )
    return tuple(dict.fromkeys([shipped.prompt, *others]))


def search_prompts(network: Network) -> tuple[str, str] | None:
    """The prompts of queries and of documents, if the model has them; None otherwise."""
    shipped = network.shipped
    if shipped is None or not shipped.include_prompt:
        return None
    of_queries = shipped.prompts.get("query") or ""
    of_documents = shipped.prompts.get("document") or shipped.prompts.get("passage") or ""
    return (of_queries, of_documents) if of_queries or of_documents else None


def open_whole(model: ModelLike) -> Network:
    """The model to make smaller; raises where it has no vectors that a student could give."""
    network = open_network(model)
    require_ordinary_weights(network.module.config, network.name, "shrink")
    require_tokenizer(network.preprocessor, "shrink")
    require_own_vectors(network)
    similarity_of(network.shipped)  # raises where vectors are compared in a way that no search here knows
    return network


def portable_backend(network: Network) -> Backend:
    """What exports it; raises where plain sentence-transformers could not give its vectors."""
    backend = find_backend("sentence_transformers")
    backend.check_supported(network, last_recipe(network), "portable")
    return backend


def require_own_vectors(network: Network) -> None:
    """Raises for a language model: its vectors are not worth imitating."""
    if not network.has_own_vectors:
        command = command_line(["layerwise", "pick", network.name, "--export", "FOLDER"])
        raise InputError(
            f"{network.name} is a language model without a pooling of its own, so there are no vectors to imitate. "
            f"Make it an embedding model first ({command}), and use that folder; a static model "
            "can also be made of its token embeddings: shrink --method static --layer 0 --transform whiten --data FILE"
        )


def default_prompt(network: Network) -> str:
    """The prompt that a model reads before a text of no particular kind."""
    return network.shipped.prompt if network.shipped else ""


def pooling_modules(network: Network) -> tuple[nn.Module, ...]:
    """The modules of the model that pool its hidden states; raises where a student could not have them."""
    if network.structure.shares_blocks:
        raise InputError(f"the blocks of {network.name} share their weights, so leaving some out saves no memory")
    head = network.head
    if head is None:
        from sentence_transformers.sentence_transformer.modules import Pooling

        names = {ours: theirs for theirs, ours in POOLING_NAMES.items()}
        return (Pooling(network.width, names[network.plain_pooling]),)
    if (reason := head.shipped.own_encode_reason).startswith(NOT_COPIED):
        raise ModelError(f"{network.name} cannot be shrunk: {reason}")
    modules = head.modules or tuple(head.sentence_transformer().children())[1:]
    kinds = [type(module).__name__ for module in modules]
    if "Pooling" not in kinds:
        raise ModelError(f"{network.name} cannot be shrunk: it has no Pooling module")
    first = modules[: kinds.index("Pooling") + 1]
    if others := sorted({*kinds[: len(first)]} - {*POOLED_BEFORE}):
        raise ModelError(f"{network.name} cannot be shrunk: it has a {others[0]} module before its Pooling")
    return first


def pooled_student(teacher: Teacher, kept: Sequence[int]) -> Network:
    """The teacher with only these blocks, counted from 0, and its pooling, without a map."""
    network, modules = teacher.network, copy.deepcopy(teacher.pooling)
    kinds = tuple(ShippedModule(type(m).__name__, f"{type(m).__module__}.{type(m).__name__}", "") for m in modules)
    modes: Any = modules[-1].pooling_mode
    shipped = Shipped("", kinds, (modes,) if isinstance(modes, str) else tuple(modes), True, "", teacher.max_length)
    if teacher.shipped is not None:
        own = teacher.shipped
        shipped = replace(
            shipped, include_prompt=own.include_prompt, prompt=own.prompt, prompts=own.prompts,
            default_prompt=own.default_prompt,
        )  # fmt: skip
    head = Head(shipped, modules, difference="the student's map")
    return build_network(keep_blocks(network.module, kept), network.tokenizer, network.name, head=head)


def own_vectors(network: Network, texts: Sequence[PromptedText], max_length: int) -> Tensor:
    """The vectors (N, E) that a model gives as shipped, each text with its prompt."""
    readout = last_recipe(network).readout
    by_prompt: dict[str, list[int]] = {}
    for i, item in enumerate(texts):
        by_prompt.setdefault(item.prompt, []).append(i)
    rows: Tensor | None = None
    for prompt, places in by_prompt.items():
        examples = [Example(str(i), texts[i].text) for i in places]
        found = pooled_vectors(
            network, examples, [readout], max_length=max_length, template=template_of_prompt(prompt)
        )  # fmt: skip
        require_finite_vectors(found, examples, network.dtype)
        if rows is None:
            rows = torch.empty(len(texts), found[readout].shape[1])
        rows[places] = found[readout].float()
    assert rows is not None, "there are texts"
    return rows


def is_unit(rows: Tensor, dtype: torch.dtype) -> bool:
    """True if every vector of a model with this dtype has length 1."""
    tolerance = UNIT_TOLERANCE if dtype in (torch.float32, torch.float64) else HALF_UNIT_TOLERANCE
    return bool((rows.double().norm(dim=1) - 1).abs().max() < tolerance)


def assemble(teacher: Teacher, student: Network, linear: LinearMap) -> Any:
    """The student with its map as a SentenceTransformer, in memory, on the teacher's device."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    with quiet_libraries():
        modules = [
            transformer_module(student.module, student.tokenizer, teacher.max_length),
            *copy.deepcopy(teacher.pooling),
            linear_module(linear.weight, linear.bias, student.dtype),
            *([Normalize()] if teacher.unit else []),
        ]
        settings: dict[str, Any] = {}
        if own := teacher.shipped:
            settings = {"prompts": dict(own.prompts), "default_prompt_name": own.default_prompt}
            settings["similarity_fn_name"] = own.similarity or None
        model = SentenceTransformer(modules=modules, device=str(teacher.network.device), **settings)
    return model.eval().requires_grad_(True)
