"""Every public name: for editors, type checkers, and the module itself, which loads it on first use."""

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
