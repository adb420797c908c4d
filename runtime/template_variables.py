"""The names that a chat template wants from outside: its keywords, and what Transformers gives every template."""

from __future__ import annotations

from typing import Any

from artifacts.errors import refuse

ALWAYS_GIVEN = {"messages", "add_generation_prompt", "raise_exception", "strftime_now"}
"""Names that no caller may give: the conversation, whether an answer begins, and Transformers' own functions."""


def keywords_of(source: str) -> frozenset[str]:
    """Give the names that a template's code reads and does not define itself, but for those that are always given.

    Raises:
        StageError: the source is no template.
    """
    from jinja2 import Environment, TemplateSyntaxError, meta, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser

    class Generation(Extension):
        """Transformers' own tag: around what the assistant says."""

        tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

        def parse(self, parser: Parser) -> Any:
            """Read what is between the tags as if they were not there."""
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    try:
        tree = Environment(extensions=[Generation, loopcontrols]).parse(source)
    except TemplateSyntaxError as error:
        raise refuse(
            "the chat template cannot be read",
            expected="a template of Jinja",
            found=f"line {error.lineno}: {error.message}",
            remedy="see chat_template.jinja of the model",
        ) from None
    return frozenset(meta.find_undeclared_variables(tree)) - ALWAYS_GIVEN
