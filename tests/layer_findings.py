"""Findings of a comparison layer by layer, as small as they can be."""

from __future__ import annotations

from validate.kinship import FORMS, Kinship
from validate.layers import LastWord, LayerFindings, TensorFinding

ROW = TensorFinding(
    name="model.layers.3.mlp.down_proj",
    layer=3,
    kind="mlp.down_proj",
    order=7,
    instrument="structure",
    subject="TensorRT network, evaluated on the CPU: model_fp32",
    scenario="prefill of 301",
    elements=100,
    error=1e-6,
    magnitude=3.0,
    slope=1.0,
    bias=0.0,
    spread=1e-6,
    rows=0.0,
    measure="error",
    limit=1e-4,
)
RIGHT = LayerFindings(
    asked="named",
    reference="ONNX Runtime on the raw export's FP32 twin",
    backend="tensorrt_rtx 1",
    scenarios=("prefill of 301",),
    tensors=(ROW,),
    first=None,
    last_word=(LastWord(ROW.subject, 10, 1e-6, 1, 1, 0, (1.0, 2.0), (1.0, 2.0)),),
)
KIN = tuple(Kinship(form.value, 100, 64, ()) for form in FORMS)
