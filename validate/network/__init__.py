"""Evaluates the network that TensorRT's own parser made of an ONNX file, layer by layer, on the CPU.

In: a graph of `OUT/<model>/onnx/` (any form, any twin) with its data files, and TensorRT or TensorRT-RTX; no GPU.
Out: tensors, as a `Session` (numpy arrays), a `Program` (torch tensors, any tensor by name) or a Polygraphy runner
(`validate.network.runner`). Every result of it is called "TensorRT network, evaluated on the CPU": it shows what
TensorRT understood, not what an engine computes.
"""

from validate.network.layers import LABEL
from validate.network.program import Program, load_program
from validate.network.session import NetworkSession

__all__ = ["LABEL", "NetworkSession", "Program", "load_program"]
