"""What a request insists on ends where a token ends: the model goes on as it would after words of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from artifacts.checkpoint import SHIPPED
from runtime.server.requests import ChatRequest
from runtime.server.tool_choice import forced_call
from runtime.tools import Tools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TIMER = {"name": "set_timer", "parameters": {"type": "object", "properties": {"minutes": {"type": "integer"}}}}
OTHER = {"name": "get_weather"}
NAMED = {"type": "function", "function": {"name": "set_timer"}}
CALL = '<tool_call>\n{"name": "set_timer", "arguments": {"minutes": 33}}</tool_call>'


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    found: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(SHIPPED / "smollm3-tiny", local_files_only=True)
    return found


@pytest.mark.parametrize(
    ("choice", "tools", "says"),
    [
        ("required", [TIMER, OTHER], '<tool_call>\n{"name":'),
        ("required", [TIMER], '<tool_call>\n{"name": "set_timer", "arguments":'),
        (NAMED, [TIMER, OTHER], '<tool_call>\n{"name": "set_timer", "arguments":'),
    ],
)
def test_what_is_insisted_on_is_whole_tokens_of_the_call(
    tokenizer: PreTrainedTokenizerFast, choice: Any, tools: list[Any], says: str
) -> None:
    forced = forced_call(
        ChatRequest.model_validate({"model": "m", "messages": [], "tool_choice": choice}), Tools(xml_tools=tools)
    )
    assert forced == says
    begun, whole = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (forced, CALL))
    assert whole[: len(begun)] == begun
    # With the space that follows it would not be: the space is the beginning of the next token.
    spaced = tokenizer(f"{forced} ", add_special_tokens=False)["input_ids"]
    assert whole[: len(spaced)] != spaced
