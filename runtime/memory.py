"""Tensors that are bound by address: the cache stays where the session computes, and no step copies it.

A session that can be bound gives memory, takes a name → memory table once, and runs it as often as the caller likes.
What lies in host memory is read and written there by the caller between two runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from artifacts.contract import TensorSpec
from runtime.session import Array, Session, numpy_type


class Memory(NamedTuple):
    """A C-contiguous tensor at an address; cheap to cut and to reshape, because a step may do so for every layer.

    Attributes:
        dtype: its element type; BF16 is `ml_dtypes.bfloat16`.
        shape: its axes, all of them numbers.
        address: where its first element lies.
        whole: the host's array that it is a part of; none in memory that the host cannot see.
        owner: what must live as long as the memory is used.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    address: int
    whole: Array | None
    owner: object

    @classmethod
    def of(cls, array: Array) -> Memory:
        """Give the memory of a numpy array, which keeps owning it."""
        assert array.flags.c_contiguous
        return cls(array.dtype, array.shape, array.ctypes.data, array, array)

    @property
    def on_host(self) -> bool:
        """Whether it lies in host memory."""
        return self.whole is not None

    @property
    def host(self) -> Array:
        """The tensor as numpy sees it; only what lies in host memory is asked for."""
        assert self.whole is not None
        first = (self.address - self.whole.ctypes.data) // self.dtype.itemsize
        return self.whole.reshape(-1)[first : first + math.prod(self.shape)].reshape(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def rows(self, first: int, count: int) -> Memory:
        """Give some of the rows along the first axis: no copy, an address further on."""
        assert 0 <= first <= first + count <= self.shape[0]
        row = self.nbytes // self.shape[0]
        return Memory(self.dtype, (count, *self.shape[1:]), self.address + first * row, self.whole, self.owner)

    def shaped(self, *shape: int) -> Memory:
        """Give a tensor of another shape at the same address, of as many elements or fewer."""
        assert math.prod(shape) <= math.prod(self.shape)
        return Memory(self.dtype, shape, self.address, self.whole, self.owner)


class Bound(Protocol):
    """A session with all of its tensors in place."""

    def run(self) -> None:
        """Run once; outputs are complete in their memory when it returns.

        Raises:
            StageError: the run failed.
        """
        ...


class BindableSession(Session, Protocol):
    """A session that takes its tensors by address."""

    @property
    def on_host(self) -> bool:
        """Whether `allocate` gives host memory."""
        ...

    def allocate(self, spec: TensorSpec, shape: Sequence[int]) -> Memory:
        """Give zeroed memory where the session computes.

        A cache must be zeroed: what a masked slot holds is multiplied by 0, and 0 times NaN is NaN.

        Raises:
            StageError: there is not enough of it.
        """
        ...

    def bind(self, tensors: Mapping[str, Memory]) -> Bound:
        """Put every input and output in its place; host memory is copied to and fro where the session needs it."""
        ...


def zeros(spec: TensorSpec, shape: Sequence[int]) -> Memory:
    """Give zeroed host memory; pages that are never touched cost nothing."""
    array: np.ndarray[Any, Any] = np.zeros(tuple(shape), numpy_type(spec))
    return Memory.of(array)
