"""`layerwise doctor`: checks that layerwise's assumptions hold for a model."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from textwrap import wrap

from layerwise.cli.shared import add_json, add_model, model_spec
from layerwise.core.columns import WIDTH

DOOR, LINE = "look", "check that layerwise reads a model correctly"
HELP = "check that layerwise's assumptions hold for a model: layers, padding, final norm"
EXAMPLE = "layerwise doctor gpt2"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_json(parser, "the findings")


def run(args: Namespace) -> int:
    from layerwise.verbs.doctor.api import doctor

    findings = doctor(model_spec(args))
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            first = f"{finding.verdict:6}{finding.subject:17}"
            print("\n".join(wrap(finding.seen, WIDTH, initial_indent=first, subsequent_indent=" " * 23)))
    return 1 if any(finding.verdict == "wrong" for finding in findings) else 0
