"""The lab: functions for people who study layers, the same as `layerwise lab` on the command line.

Names are loaded on first use, so that importing this module loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "ProtocolResult": "layerwise.verbs.lab.audit.protocol_result",
    "Reproduction": "layerwise.verbs.lab.reproduce.api",
    "audit": "layerwise.verbs.lab.audit.api",
    "audit_protocol": "layerwise.verbs.lab.audit.api",
    "correlate": "layerwise.verbs.lab.correlate.api",
    "data": "layerwise.verbs.lab.data.api",
    "reproduce": "layerwise.verbs.lab.reproduce.api",
    "stress": "layerwise.verbs.lab.stress.api",
    "tradeoff": "layerwise.verbs.lab.tradeoff.api",
    "views": "layerwise.verbs.lab.views.api",
}

__all__ = sorted(_MODULES)

if TYPE_CHECKING:  # the same names again, for editors and type checkers
    from layerwise.verbs.lab.audit.api import audit as audit
    from layerwise.verbs.lab.audit.api import audit_protocol as audit_protocol
    from layerwise.verbs.lab.audit.protocol_result import ProtocolResult as ProtocolResult
    from layerwise.verbs.lab.correlate.api import correlate as correlate
    from layerwise.verbs.lab.data.api import data as data
    from layerwise.verbs.lab.reproduce.api import Reproduction as Reproduction
    from layerwise.verbs.lab.reproduce.api import reproduce as reproduce
    from layerwise.verbs.lab.stress.api import stress as stress
    from layerwise.verbs.lab.tradeoff.api import tradeoff as tradeoff
    from layerwise.verbs.lab.views.api import views as views


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'layerwise.lab' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
