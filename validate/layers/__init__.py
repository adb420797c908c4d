"""Compares every tensor that has a name, layer by layer, and says which is the first wrong one and what that means.

In: `OUT/<model>/onnx/` after export and surgery; a TensorRT whose parser reads the graphs (no GPU).
Out: a `LayerFindings`: one row for every tensor, instrument and subject, the first wrong tensor, the last word.

The reference is ONNX Runtime on the raw export's FP32 twin, which the stage holds against PyTorch.
"""

from validate.layers.findings import FirstWrong, LastWord, LayerFindings, TensorFinding

__all__ = ["FirstWrong", "LastWord", "LayerFindings", "TensorFinding"]
