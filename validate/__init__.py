"""Compare every way to run a model with PyTorch in FP32 on the same BF16 weights, and say yes or no.

In: `OUT/<model>/` after export and surgery (`onnx/*_fp32.onnx`, the data files, the manifests), the checkpoint that
it was made from, and the plans in `build/` where there are any.
Out: `OUT/<model>/validate/<target>/report.json` and `manifest.json`, a `Report`.
"""

from validate.report import Report
from validate.validation import Options, validate

__all__ = ["Options", "Report", "validate"]
