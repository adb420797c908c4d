"""Between numpy arrays and torch tensors without a copy, BF16 (`ml_dtypes.bfloat16`) included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


def to_tensor(array: NDArray[Any]) -> torch.Tensor:
    """Give a tensor that shares the array's memory; what is written to it is written to the array."""
    import numpy as np
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Give a C-contiguous array, which shares the tensor's memory where that is contiguous."""
    import ml_dtypes
    import torch

    tensor = tensor.contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: NDArray[Any] = tensor.numpy()
    return array
