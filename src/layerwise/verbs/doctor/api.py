"""doctor: checks that layerwise's assumptions hold for a model."""

from layerwise.models.doctor import Finding, run_checks
from layerwise.models.opening import open_network
from layerwise.models.spec import ModelLike


def doctor(model: ModelLike) -> list[Finding]:
    """Checks that layerwise's assumptions hold for a model.

    It looks at the number of layers, finite numbers, the final norm, padding, batch size, the tokenizer, and, for an
    embedding model, whether its own output is reproduced.

    Args:
        model: a hub id, a folder, a ModelSpec (which also sets dtype, device and revision), a transformers model, a
            SentenceTransformer, or a pair (module, tokenizer).

    Returns:
        A list of Finding: `verdict` (ok, note or wrong), `subject`, and `seen`, what was observed.

    Raises:
        ModelError: the model cannot be loaded, or its layers cannot be found.

    Example:
        >>> {finding.verdict for finding in layerwise.doctor(model)}
        {'ok'}
    """
    return list(run_checks(open_network(model)))
