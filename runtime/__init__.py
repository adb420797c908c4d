"""Run a graph or a plan: `.onnx` or `.plan` in, tokens out.

In: `OUT/<model>/onnx/*.onnx`. Out: a `Session`, which takes feeds and gives outputs under the contract's names.
"""

from runtime.session import Session, open_session

__all__ = ["Session", "open_session"]
