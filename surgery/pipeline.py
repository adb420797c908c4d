"""The order of surgery: a raw export becomes the fused graph, and that becomes each of its forms.

Every pass knows how many matches the model has; the clean-up alone takes what it finds.
"""

from __future__ import annotations

from typing import Any

from artifacts.contract import Form
from surgery.attention import ATTENTION
from surgery.clean_up import CLEAN_UP, CleanUp
from surgery.fusion import Pass
from surgery.grouped_queries import GROUPED_QUERIES
from surgery.logits import FP32_LOGITS, LAST_LOGITS
from surgery.mask import MASK_OF_SLOTS
from surgery.naming import NAMES
from surgery.nope_strip import NOPE_STRIP
from surgery.reshape import RESHAPE
from surgery.rms_normalization import RMS_NORMALIZATION
from surgery.rotary_embedding import ROTARY_EMBEDDING
from surgery.subject import Subject
from surgery.tensor_scatter import TENSOR_SCATTER
from surgery.weight_axes import WEIGHT_AXES

Steps = tuple[Pass[Any, Any] | CleanUp, ...]

FUSE: Steps = (
    NOPE_STRIP,  # 2L places: q and k of every layer
    RMS_NORMALIZATION,  # 2L + 1
    ROTARY_EMBEDDING,  # 2R
    ATTENTION,  # L
    RESHAPE,  # 4L
    CLEAN_UP,
    NAMES,  # 1: the whole model, from embedding to logits
)
"""What all forms have in common."""

FORMS: dict[Form, Steps] = {
    Form.MODEL: (MASK_OF_SLOTS, FP32_LOGITS, LAST_LOGITS, CLEAN_UP),
    Form.MODEL_LINEAR: (TENSOR_SCATTER, MASK_OF_SLOTS, FP32_LOGITS, LAST_LOGITS, CLEAN_UP),
    Form.MODEL_ALL: (MASK_OF_SLOTS, FP32_LOGITS, CLEAN_UP),
}
"""What makes each form of the fused graph: 1 mask, 1 pair of logits; 2L TensorScatter in the linear one."""

FOR_TENSORRT: Steps = (
    GROUPED_QUERIES,  # L, where query heads share key heads
    WEIGHT_AXES,  # 9L + 1, one more where the head is not tied
    CLEAN_UP,
)
"""What the BF16 graph of every form gets after its FP32 twin was made of it."""


def operate(subject: Subject, steps: Steps) -> dict[str, int]:
    """Run steps in order; give the number of matches of each.

    Raises:
        StageError: a pass met another number of matches than the model has.
    """
    return {step.makes: step.run(subject) for step in steps}
