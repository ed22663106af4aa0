"""Templates: text before and after the input of a model, as one string with `{text}` in it. Needs no torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerwise.core.checks import suggestion
from layerwise.core.errors import InputError

INPUT = "{text}"  # where the input goes
TEMPLATES: Mapping[str, str] = {
    "prompteol": 'This sentence : "{text}" means in one word:"',
    "pretended_cot": 'After thinking step by step , this sentence : "{text}" means in one word:"',
    "knowledge": (
        "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms "
        "provide additional but less central details. With this in mind , this sentence : "
        '"{text}" means in one word:"'
    ),
    "about": 'The text "{text}" is about one thing:"',
    "keywords": "{text}\n\nKeywords:",
}


@dataclass(frozen=True)
class Template:
    """The text before and after every input.

    Args:
        before: text put before every input.
        after: text put after every input.
    """

    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """The template as one string; "" if it adds nothing."""
        return f"{self.before}{INPUT}{self.after}" if self.before or self.after else ""


def parse_template(template: str) -> Template:
    """The two parts of a template.

    Args:
        template: a text that has `{text}` exactly once, the name of a known template, or "" for none.

    Returns:
        What stands before and after the input.

    Raises:
        InputError: the name is unknown, or `{text}` is missing or occurs more than once.

    Example:
        >>> from layerwise.core.templates import parse_template
        >>> parse_template("query: {text}")
        Template(before='query: ', after='')
    """
    if not isinstance(template, str):
        raise InputError(f"a template is a text such as 'query: {INPUT}', not {template!r}")
    text = TEMPLATES.get(template, template) or INPUT
    if (count := text.count(INPUT)) == 1:
        return Template(*text.split(INPUT))
    names = ", ".join(TEMPLATES)
    if count > 1:
        raise InputError(f"template {template!r} has {INPUT} {count} times; the input can stand in one place only")
    if re.fullmatch(r"[\w-]+", template):
        hint = suggestion(template, TEMPLATES)
        raise InputError(f"template {template!r} is not one of {names}, and does not contain {INPUT}{hint}")
    raise InputError(
        f"template {template!r} does not say where the input goes; put {INPUT} there, such as {template + INPUT!r}, "
        f"or choose from {names}"
    )


def canonical_template(template: str) -> str:
    """The template as recipes store it: the text of a known name; "" for one that adds nothing."""
    return parse_template(template).text


def split_templates(templates: str | Sequence[str] | None) -> tuple[str, ...]:
    """One template or several, as recipes store them, without duplicates; none for None."""
    given = [] if templates is None else [templates] if isinstance(templates, str) else list(templates)
    return tuple(dict.fromkeys(canonical_template(template) for template in given))


def template_of_prompt(prompt: str) -> str:
    """The template that puts a prompt before every input."""
    return canonical_template(f"{prompt}{INPUT}")
