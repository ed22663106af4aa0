"""The verbs: a folder each, with its public function (api), options, command, and the code that only it needs."""

from importlib import import_module
from types import ModuleType

# In the order of the first screen's help; a verb of the lab has a folder in lab.
VERBS = (
    "scan", "campaign", "eval", "probe", "pick", "export", "shrink", "report", "compare", "plot",
    "lab.correlate", "tradeoff", "lab.audit", "lab.stress", "embed", "lab.data", "lab.views", "metrics", "doctor",
    "lab.reproduce",
)  # fmt: skip


def commands() -> dict[str, ModuleType]:
    """The command of each verb, by its name."""
    return {verb.rpartition(".")[2]: import_module(f"{__name__}.{verb}.command") for verb in VERBS}


def options_of_verb(name: str) -> type:
    """The options of a verb, which may stand in the lab: the dataclass that its options file calls OPTIONS."""
    folder = next(verb for verb in VERBS if verb.rpartition(".")[2] == name)
    options: type = import_module(f"{__name__}.{folder}.options").OPTIONS
    return options
