"""Servable recipes: those that a plain embedding server computes from a folder, without code of its own.

Servers run every block in the config, then the final norm, one pooling, and at most one linear map. What else a recipe
has (a raw layer before a final norm, token weights, a second vector) they leave out without an error.
"""

from layerwise.core.checks import NormChoice, split_transform
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.core.templates import INPUT, parse_template
from layerwise.models.network import Network

SERVED_POOLINGS = ("mean", "last", "first")
SERVED_MODULES = ("Pooling", "Dense", "Normalize")
SERVED_SHIPPED_POOLINGS = ("mean", "lasttoken", "cls")


def servable_norm(network: Network) -> NormChoice:
    """The norm with which servers read a layer: after the final norm, if the model has one."""
    return "normed" if network.has_norm else "raw"


def servable_problems(network: Network, recipe: Recipe) -> list[str]:
    """What a plain server cannot compute, each with what to use instead; empty for a servable recipe."""
    problems = shipped_problems(network) if recipe.shipped else readout_problems(network, recipe)
    if beside := split_transform(recipe.transform).beside:
        problems.append(f"transform {recipe.transform} has a second vector; leave out {beside}")
    elif recipe.shipped and recipe.transform != "none" and has_dense(network):
        problems.append("the model ships a Dense, and a map would be the second one; use --transform none")
    template = parse_template(recipe.template)
    if template.before and not template.after:
        problems.append(
            f"the prompt {template.before!r} is not part of tokenizer.json; use --template '{INPUT}', and put the "
            "prompt before every text where the model is used"
        )
    return problems


def readout_problems(network: Network, recipe: Recipe) -> list[str]:
    """The problems of a layer that is read by number."""
    problems = []
    if recipe.layer == 0:
        problems.append("layer 0 has no block; use layer 1 or higher")
    elif recipe.norm != servable_norm(network):
        problems.append("servers apply the final norm, so a raw layer cannot be served; use --norm normed")
    if recipe.tokens != "all":
        problems.append(f"servers pool all tokens, not {recipe.tokens}; use --tokens all")
    if recipe.pooling not in SERVED_POOLINGS:
        problems.append(f"pooling {recipe.pooling} is not one of {', '.join(SERVED_POOLINGS)}")
    return problems


def shipped_problems(network: Network) -> list[str]:
    """The problems of the model as shipped."""
    shipped = network.shipped
    assert shipped is not None, "only a model that ships modules has this readout"
    kinds = [module.kind for module in shipped.modules]
    problems = [f"the model ships a {kind} module" for kind in kinds if kind not in SERVED_MODULES]
    if kinds.count("Dense") > 1:
        problems.append(f"the model ships {kinds.count('Dense')} Dense modules, and servers read one")
    if shipped.own_encode_reason:
        problems.append(f"the model must encode texts itself: {shipped.own_encode_reason}")
    if len(shipped.pooling) != 1 or shipped.pooling[0] not in SERVED_SHIPPED_POOLINGS:
        problems.append(f"the model pools by {' and '.join(shipped.pooling) or 'no Pooling module'}")
    return problems


def has_dense(network: Network) -> bool:
    return network.shipped is not None and any(module.kind == "Dense" for module in network.shipped.modules)


def is_servable(network: Network, recipe: Recipe) -> bool:
    """True if plain servers give the recipe's vectors."""
    return not servable_problems(network, recipe)


def require_servable(network: Network, recipe: Recipe) -> None:
    """Raises InputError with every reason why plain servers would give other vectors."""
    if problems := servable_problems(network, recipe):
        raise InputError(f"this recipe is not servable: {'; '.join(problems)}")
