"""`layerwise doctor`: does what layerwise relies on hold for this model?"""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from layerwise.cli.shared import add_json, add_model, model_spec

HELP = "check on a model that layers, padding, batch size, dtype and final norm behave"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_json(parser, "the findings")


def run(args: Namespace) -> int:
    from layerwise.api.doctor import doctor

    findings = doctor(model_spec(args))
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            print(f"{finding.verdict:6}{finding.subject:15}{finding.seen}")
    return 1 if any(finding.verdict == "wrong" for finding in findings) else 0
