"""From a raw ONNX export to the fused graphs that runtimes and TensorRT take.

In: `OUT/<model>/onnx/export.onnx` with `model.onnx_data`, `rotary.onnx_data`, `config.json`, `export.manifest.json`.
Out: `model.onnx`, `model_linear.onnx`, `model_all.onnx`, the FP32 twin of each (`*_fp32.onnx`) and
`surgery.manifest.json`, all beside the same data file. No weight is read or written.
"""

from surgery.operation import FusedModel, fuse

__all__ = ["FusedModel", "fuse"]
