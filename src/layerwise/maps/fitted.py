"""FittedRecipe: a recipe with the weights of its map, the model they belong to and the data they were fitted on.

`pick` writes it, `eval` and `export` read it, so that the command line and the library make the same model. On disk it
is one safetensors file: the schema as JSON in the header, the weights in float64, and a checksum of everything.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from layerwise.core.display import command_line, redact_value
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import Folder, open_folder
from layerwise.core.formats import require_shape
from layerwise.core.outputs import require_folder
from layerwise.core.recipe import Recipe
from layerwise.core.templates import parse_template
from layerwise.core.tensors import checksum, dump_tensors, has_key, parse_tensors
from layerwise.maps.linear import LinearMap, combine_maps
from layerwise.runs.identity import MODEL_SHAPE, ModelRef

RECIPE_FILE = "recipe.safetensors"
RECIPE_KEY = "layerwise.recipe"  # in the header of the file
SCHEMA_VERSION = 1
DataKind = Literal["texts", "task", "scan"]


@dataclass(frozen=True)
class FittedOn:
    """The data that a map was fitted on.

    Attributes:
        kind: `texts`, `task` (the texts of a labelled task) or `scan` (the second moments that a scan stored).
        name: where they come from.
        fingerprint: a hash of the data.
        count: how many texts.
    """

    kind: DataKind
    name: str
    fingerprint: str
    count: int


HEADER_SHAPE: Mapping[str, Any] = {
    "schema_version": int,
    "recipe": dict,
    "template": {"before": str, "after": str},
    "parts": [{"readout": dict, "map": str, "rows": [int]}],
    "model": MODEL_SHAPE,
    "fitted_on": (dict, type(None)),
}
DATA_SHAPE: Mapping[str, Any] = {"kind": str, "name": str, "fingerprint": str, "count": int}


@dataclass(frozen=True, eq=False)
class FittedRecipe:
    """A recipe with the weights of its linear map, ready to use for one model. `export` and `eval` take it.

    Attributes:
        recipe: layer, tokens, pooling and the word of the map.
        model: the model that it was fitted for.
        maps: one linear map per part of the recipe; empty if its map is `none`.
        fitted_on: the data that the maps were fitted on; None without a map.

    Example:
        >>> picked = layerwise.pick(model, texts, max_length=32)
        >>> ready = picked.fitted or layerwise.FittedRecipe(picked.recipe, picked.model)
        >>> layerwise.FittedRecipe.load(ready.save(folder / "recipe")) == ready
        True
    """

    recipe: Recipe
    model: ModelRef
    maps: tuple[LinearMap, ...] = ()
    fitted_on: FittedOn | None = None

    def __post_init__(self) -> None:
        expected = 0 if self.recipe.transform == "none" else len(self.recipe.parts)
        if len(self.maps) != expected or (self.fitted_on is None) != (not self.maps):
            raise InputError(
                f"transform {self.recipe.transform} needs {expected} maps and a record of the data for fitting; got "
                f"{len(self.maps)} maps and {self.fitted_on}"
            )

    @cached_property
    def combined_map(self) -> LinearMap | None:
        """One map of the parts' concatenated vectors; None without a map."""
        return combine_maps(self.maps, self.recipe.dims) if self.maps else None

    @cached_property
    def identity(self) -> str:
        """A hash of everything that its vectors depend on: the recipe, the weights of its map, and the model."""
        return checksum(self._tensors(), json.dumps([asdict(self.recipe), self.model.fingerprint], sort_keys=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FittedRecipe) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def require_model(self, model: ModelRef) -> None:
        """Checks that a model is the one that this recipe was fitted for.

        Args:
            model: the model to use it with.

        Raises:
            InputError: if its weights, config or tokenizer differ.
        """
        if not self.model.same_as(model):
            raise InputError(
                f"the recipe was fitted for {self.model.name} with other weights, config or tokenizer than "
                f"{model.name}; fit it to this model: pass the plain recipe and texts (--fit FILE), or run pick again"
            )

    def save(self, folder: str | Path) -> Path:
        """Writes recipe.safetensors; replaces an earlier one, and no other file.

        Args:
            folder: where to write; it may be new.

        Returns:
            The path of the file.

        Raises:
            RunError: if a file of that name is there that layerwise did not write.
        """
        require_recipe_folder(folder).write(RECIPE_FILE, self.to_bytes())
        return Path(folder) / RECIPE_FILE

    @classmethod
    def load(cls, location: str | Path) -> Self:
        """Reads what `save` wrote.

        Args:
            location: the file, or the folder that holds recipe.safetensors.

        Returns:
            The fitted recipe, with equal weights.

        Raises:
            InputError: if there is no such file.
            RunError: if it is damaged, or was written by another version.
        """
        folder, name = locate_recipe(location)
        if (data := folder.read(name)) is None:
            advice = command_line(["layerwise", "pick", "...", "--save", str(folder)])
            raise InputError(f"{location} contains no fitted recipe (no {name}); run: {advice}")
        return cls.from_bytes(data, f"{folder}/{name}")

    def to_bytes(self) -> bytes:
        """The bytes of recipe.safetensors."""
        return dump_tensors(RECIPE_KEY, json.dumps(self._record(), sort_keys=True), self._tensors())

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Reads the bytes of recipe.safetensors.

        Args:
            data: the bytes.
            where: what messages call the file.

        Returns:
            The fitted recipe.

        Raises:
            RunError: if they are damaged, or written by another version; it says what is wrong.
        """
        try:
            metadata, tensors = parse_tensors(RECIPE_KEY, data)
            record: Any = json.loads(metadata)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{where} is not a fitted recipe, or is damaged ({error}); recreate it") from None
        require_header(record, where)
        recipe = Recipe.from_record(record["recipe"], f"{where}: recipe")
        maps = tuple(
            LinearMap(tensors[f"{i}.weight"], tensors[f"{i}.bias"])
            for i in range(require_weights(recipe, tensors, where))
        )
        fitted_on = record["fitted_on"]
        model = ModelRef.from_record(record["model"], f"{where}: model")
        fitted = cls(recipe, model, maps, None if fitted_on is None else FittedOn(**fitted_on))
        if (expected := fitted._record()) != record:
            differing = ", ".join(name for name in expected if expected[name] != record[name])
            raise RunError(
                f"{where} is damaged, or was written by a newer layerwise: {differing} and recipe do not match"
            )
        return fitted

    def _record(self) -> dict[str, Any]:
        rows, parts = 0, []
        for i, (readout, map_name) in enumerate(self.recipe.parts):
            width = len(self.maps[i].bias) if self.maps else 0
            parts.append({"readout": asdict(readout), "map": map_name, "rows": [rows, rows + width] if width else []})
            rows += 0 if self.recipe.dims else width  # with fewer dimensions, the results of the parts are added
        fitted_on = self.fitted_on
        return {
            "schema_version": SCHEMA_VERSION,
            "recipe": asdict(self.recipe),
            "template": asdict(parse_template(self.recipe.template)),
            "parts": parts,
            "model": self.model.to_record() | {"name": redact_value(self.model.name)},
            "fitted_on": None if fitted_on is None else asdict(fitted_on) | {"name": redact_value(fitted_on.name)},
        }

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for i, part in enumerate(self.maps):
            tensors[f"{i}.weight"], tensors[f"{i}.bias"] = part.weight.cpu().contiguous(), part.bias.cpu().contiguous()
        return tensors


AnyRecipe = Recipe | FittedRecipe


def plain_recipe(recipe: AnyRecipe) -> Recipe:
    """The recipe without the weights of its map."""
    return recipe.recipe if isinstance(recipe, FittedRecipe) else recipe


def load_recipe(location: str | Path) -> AnyRecipe:
    """Loads a fitted recipe from a .safetensors file or its folder; otherwise a plain one, like Recipe.load."""
    folder, name = locate_recipe(location)
    if str(location).endswith(".safetensors") or (name == RECIPE_FILE and folder.read(name) is not None):
        return FittedRecipe.load(location)
    return Recipe.load(location)


def texts_fingerprint(texts: Sequence[str]) -> str:
    """A hash of texts; the order matters."""
    return hashlib.blake2b(repr(tuple(texts)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def locate_recipe(place: str | Path) -> tuple[Folder, str]:
    """Folder and file name of a fitted recipe: a file of any name on disk or in an object store, or the usual name."""
    text = str(place)
    if "://" in text:
        path, mark, options = text.partition("?")  # in a url, options follow the path
        if path.endswith(".safetensors"):
            inside, _, name = path.rpartition("/")
            return open_folder(inside + mark + options), name
    elif Path(text).is_file() or text.endswith(".safetensors"):
        return open_folder(Path(text).parent), Path(text).name
    return open_folder(place), RECIPE_FILE


def require_recipe_folder(location: str | Path) -> Folder:
    """The folder, if recipe.safetensors can be written there; raises if a file of that name is not layerwise's."""
    folder = require_folder(location, RECIPE_FILE)
    if (data := folder.read(RECIPE_FILE)) is not None and not has_key(RECIPE_KEY, data):
        raise RunError(f"{RECIPE_FILE} in {folder} was not written by layerwise; move it, or choose another folder")
    return folder


def require_header(record: Any, where: str) -> None:
    """Raises RunError unless the header has this version and exactly its fields, with the right types."""
    require_shape(record, {"schema_version": int}, where)
    version = record.get("schema_version")
    if isinstance(version, bool) or version != SCHEMA_VERSION:
        raise RunError(
            f"{where} was written by another version of layerwise (schema_version {version}, this version reads "
            f"{SCHEMA_VERSION}); update layerwise, or fit the recipe again"
        )
    require_shape(record, HEADER_SHAPE, where)
    require_fields(record, HEADER_SHAPE, where)
    for name in ("template", "model"):
        require_fields(record[name], HEADER_SHAPE[name], f"{where}: {name}")
    if record["fitted_on"] is not None:
        require_shape(record["fitted_on"], DATA_SHAPE, f"{where}: fitted_on")
        require_fields(record["fitted_on"], DATA_SHAPE, f"{where}: fitted_on")
        if (kind := record["fitted_on"]["kind"]) not in get_args(DataKind):
            raise RunError(
                f"{where} was written by a newer layerwise: fitted_on has the unknown kind {kind!r}; update layerwise"
            )


def require_fields(record: Mapping[str, Any], shape: Mapping[str, Any], where: str) -> None:
    if unknown := sorted(set(record) - set(shape)):
        raise RunError(
            f"{where} has unknown fields ({', '.join(unknown)}) and was written by a newer layerwise; update layerwise"
        )
    if missing := [name for name in shape if name not in record]:
        raise RunError(f"{where} is damaged (missing {', '.join(missing)}); recreate it")


def require_weights(recipe: Recipe, tensors: Mapping[str, Tensor], where: str) -> int:
    """The number of maps in the file; raises RunError if their weights do not match the recipe's parts."""
    count = 0 if recipe.transform == "none" else len(recipe.parts)
    expected = {f"{i}.{name}" for i in range(count) for name in ("weight", "bias")}
    fits = set(tensors) == expected and all(
        tensors[f"{i}.weight"].ndim == 2
        and tensors[f"{i}.bias"].shape == tensors[f"{i}.weight"].shape[:1]
        and {tensors[f"{i}.weight"].dtype, tensors[f"{i}.bias"].dtype} == {torch.float64}
        for i in range(count)
    )
    if not fits:
        shapes = ", ".join(f"{name} {tuple(t.shape)} {t.dtype}" for name, t in sorted(tensors.items())) or "none"
        raise RunError(
            f"{where} contains weights that do not match its recipe: expected weight (E, D) and bias (E) in float64 "
            f"for each of {count} parts, got {shapes}; recreate it"
        )
    return count
