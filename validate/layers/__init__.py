"""Compares every tensor that has a name, layer by layer, and says which is the first wrong one and what that means.

In: `OUT/<model>/onnx/` after export and surgery; a TensorRT whose parser reads the graphs (no GPU).
Out: a `LayerFindings`: one row for every tensor, instrument and subject, the first wrong tensor, the last word.

The reference is ONNX Runtime on the raw export's FP32 twin, which the stage holds against PyTorch.
"""

from validate.layers.findings import FirstWrong, LastWord, LayerFindings, TensorFinding

ENGINE = "TensorRT engine"
"""What every result of an engine is called, and nothing else is."""
NAMED, ALL = "named", "all"
"""What may be compared, besides layers (`3,7`) and tensors by name: those that the contract names, or every one."""

__all__ = ["ALL", "ENGINE", "NAMED", "FirstWrong", "LastWord", "LayerFindings", "TensorFinding"]
