"""The verbs: a folder each, with its public function (api), options, command, and the code that only it needs."""

from importlib import import_module
from types import ModuleType

# In the order of help; those for people who study layers are in lab.
VERBS = (
    "scan", "report", "compare", "doctor", "pick", "export", "eval", "probe", "embed", "shrink", "campaign",
    "lab.correlate", "lab.tradeoff", "lab.audit", "lab.stress", "lab.data", "lab.views", "lab.reproduce",
)  # fmt: skip


def commands() -> dict[str, ModuleType]:
    """The command of each verb, by the words that call it, such as "scan" or "lab stress"."""
    return {verb.replace(".", " "): import_module(f"{__name__}.{verb}.command") for verb in VERBS}


def words_of_verb(name: str) -> list[str]:
    """What is typed to call a verb: ["lab", "stress"] for "stress"."""
    return next(verb.split(".") for verb in VERBS if verb.rpartition(".")[2] == name)


def options_of_verb(name: str) -> type:
    """The options of a verb, which may stand in the lab: the dataclass that its options file calls OPTIONS."""
    options: type = import_module(f"{__name__}.{'.'.join(words_of_verb(name))}.options").OPTIONS
    return options
