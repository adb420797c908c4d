"""Checkpoint in, ONNX out: the raw export, its FP32 twin, and the one data file that all graphs share.

In: MODEL, the name of a checkpoint of this repository, a hub id, a folder in the layout of `save_pretrained`, or
`random:<preset>`.
Out: `OUT/<model>/onnx/` with export.onnx, export_fp32.onnx, model.onnx_data, rotary.onnx_data, the checkpoint's
config.json, generation_config.json, tokenizer files and chat template, and export.manifest.json.
"""

from export.pipeline import export_onnx

__all__ = ["export_onnx"]
