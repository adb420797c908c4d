"""Builds TensorRT plans from fused graphs.

In: `OUT/<model>/onnx/model.onnx` or `model_linear.onnx` with their data files, `config.json`, and the manifests of
export and surgery. Out: `OUT/<model>/build/<target>/` with

    model.plan     the serialized engine
    network.json   every layer as TensorRT parsed it
    build.log      all that TensorRT said
    trtexec.txt    the stock tool's command line for the same engine
    manifest.json  options, inputs, profiles, tensors, memory figures
"""

from build.options import BuildOptions
from build.plan import Plan, build_plan

__all__ = ["BuildOptions", "Plan", "build_plan"]
