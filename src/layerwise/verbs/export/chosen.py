"""ChosenRecipe: what export needs of the answer of `pick`: the recipe, its map, and the model it was chosen for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from layerwise.core.display import command_line
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import Folder, open_folder
from layerwise.core.recipe import Recipe
from layerwise.maps.fitted import RECIPE_FILE, AnyRecipe, FittedRecipe
from layerwise.models.network import Network
from layerwise.models.opening import is_recorded_model
from layerwise.runs.identity import ModelRef
from layerwise.runs.records import PICK


@dataclass(frozen=True)
class ChosenRecipe:
    """A recipe that was chosen for a model.

    Attributes:
        model: the model it was chosen for; without a fingerprint where that is not known.
        recipe: what to use: layer, tokens, pooling and linear map.
        last: the model's last layer, which everything was compared with.
        rule: the name of the rule that chose.
        why: sentences about the choice and its evidence.
        fitted: the recipe with the weights of its map; None where it has no map.
    """

    model: ModelRef
    recipe: Recipe
    last: Recipe
    rule: str
    why: tuple[str, ...] = ()
    fitted: FittedRecipe | None = field(default=None, compare=False)

    def recipe_for(self, network: Network) -> AnyRecipe:
        """The recipe for that model, with its map if it has one.

        A map belongs to the recipe it was fitted for; if the recipe was changed since, its map must be fitted again.

        Args:
            network: the model to use it with.

        Returns:
            The fitted recipe, or the plain one where there is no map, or none that belongs to it.

        Raises:
            InputError: if this answer was found on another model.
        """
        if not is_recorded_model(network, self.model):
            raise InputError(
                f"the pick was made for {self.model.name} with other weights, config or tokenizer than "
                f"{network.name}; run pick again, or choose a layer"
            )
        return self.fitted if self.fitted is not None and self.fitted.recipe == self.recipe else self.recipe

    @property
    def keep_last(self) -> bool:
        """True if the recommendation is to use the model as it is."""
        return self.recipe.readout == self.last.readout and self.recipe.transform == "none"

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Reads what `Pick.save` wrote.

        Args:
            folder: the folder that holds pick.json.

        Returns:
            The saved answer, with the weights of its map if they are in the folder.

        Raises:
            InputError: if the folder holds no pick.json.
            RunError: if a file is damaged, or was written by a newer layerwise.
        """
        location = open_folder(folder)
        data, where = location.read(PICK.file), f"{location}/{PICK.file}"
        advice = f"run: {command_line(['layerwise', 'pick', 'MODEL', '--save', str(folder)])}"
        if data is None:
            raise InputError(f"{str(folder)!r} contains no saved pick; {advice}")
        record = PICK.parse(data, where)
        required = ("model", "recipe", "last", "rule", "why", "layers_alike", "gain", "prefer", "judged_on", "layers")
        if missing := [name for name in required if name not in record]:
            raise RunError(f"{where} is not a saved pick (missing {', '.join(missing)}); {advice}")
        fields = cls._fields_of_record(record, where)
        if not 0 <= fields["recipe"].layer <= fields["last"].layer:
            raise RunError(f"{where} is damaged (layer {fields['recipe'].layer} of {fields['last'].layer}); {advice}")
        return cls(**fields, fitted=load_fitted(location, record.get("fitted")))

    @classmethod
    def _fields_of_record(cls, record: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The fields, all but the map, from the record of a pick."""
        return {
            "model": ModelRef.from_record(record["model"], f"{where}: model"),
            "recipe": Recipe.from_record(record["recipe"], f"{where}: recipe"),
            "last": Recipe.from_record(record["last"], f"{where}: last"),
            "rule": record["rule"],
            "why": tuple(record["why"]),
        }


def load_fitted(folder: Folder, identity: str | None) -> FittedRecipe | None:
    """The map weights of a saved pick; None if it has none, or if the file is missing."""
    if identity is None or (data := folder.read(RECIPE_FILE)) is None:
        return None
    fitted = FittedRecipe.from_bytes(data, f"{folder}/{RECIPE_FILE}")
    if fitted.identity != identity:
        raise RunError(f"{folder}/{RECIPE_FILE} does not belong to the {PICK.file} in the same folder; run pick again")
    return fitted
