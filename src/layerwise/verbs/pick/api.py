"""pick: recommend a layer or recipe."""

from layerwise.core.options import takes_one_or_several
from layerwise.verbs.pick.models import RankedModels, is_several, rank_models
from layerwise.verbs.pick.one_model import pick_one
from layerwise.verbs.pick.options import OneModelOptions, PickOptions
from layerwise.verbs.pick.result import Pick


@takes_one_or_several(OneModelOptions, Pick, PickOptions, RankedModels)
def pick(options: PickOptions) -> Pick | RankedModels:
    """Chooses a layer or recipe, and reports the evidence; it may recommend keeping the last layer.

    The model runs once over a small bundled set of test sentences. Three probes score every layer on that set, as it
    is and with linear maps fitted on other bundled texts. With `pairs`, texts of yours that belong together judge
    instead, in any language. For a causal language model that ships no pooling, the last
    token of a text in a template is tried as well. With `rule`, the rule decides from the table of a scan and no model
    runs. Several models in a list are ranked on the same evidence, each with the recipe that is chosen for it.

    Returns:
        A Pick: the recipe, its gain over the last layer with a 95 % interval, and the table of all layers. `export`
        takes it as it is; `save` writes it to a folder. For several models, a RankedModels: a row per model, with its
        Pick.

    Raises:
        InputError: if the labels, the pairs, the rule or an option cannot be used, the run is of another model, or the
            model's tokenizer cannot read the bundled sentences.

    Example:
        >>> found = layerwise.pick(model, max_length=32)
        >>> 0 <= found.recipe.layer <= found.last.layer
        True
        >>> faster = layerwise.pick(model, max_length=32, prefer="fast")
        >>> faster.recipe.layer <= found.recipe.layer
        True
        >>> pairs = [(text, text.replace("w1", "w2")) for text in texts]
        >>> ranked = layerwise.pick([model, encoder], pairs=pairs, max_length=32)
        >>> ranked.rows[0].difference.mean
        0.0
    """
    return rank_models(options) if is_several(options.run) else pick_one(options)
