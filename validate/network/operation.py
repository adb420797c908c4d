"""An operation is one layer compiled to a function of tensors: attributes are read once, when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Operation = Callable[..., Any]
"""Takes the layer's input tensors (None where an optional one is absent) and gives its one output tensor."""
