"""Makes a folder for a Polygraphy session: the smallest sub-graph around a tensor, its real inputs, what is right.

In: `OUT/<model>/onnx/` after surgery, and a tensor, a layer, or the last report's first wrong tensor.
Out: `OUT/<model>/validate/<target>/polygraphy/<piece>@<graph>@<call>/` with twin.onnx (FP32), bf16.onnx, their inputs,
reference outputs and what TensorRT's network made of them on the CPU as Polygraphy's JSON, and a README.md whose
commands work as they stand. `python -m validate.debugging OUT/<model> --layer 7`.
"""

from validate.debugging.folder import Piece, debug
from validate.debugging.request import Request

__all__ = ["Piece", "Request", "debug"]
