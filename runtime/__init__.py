"""Run a graph or a plan: `.onnx` or `.plan` in, tokens and text out.

In: `OUT/<model>/onnx/*.onnx` or `OUT/<model>/build/<target>/model.plan`, and beside the graphs the tokenizer, the chat
template, config.json and generation_config.json. Out: a `Session`, which takes feeds and gives outputs under the
contract's names; on the command line (`python -m runtime generate | chat | serve | bench`) text, an OpenAI-compatible
server, and a measurement. Writes nothing.
"""

from runtime.session import Session, open_session

__all__ = ["Session", "open_session"]
