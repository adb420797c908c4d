"""Layers in an order in which every tensor is made before it is used; TensorRT's own numbering is not one."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from artifacts.errors import refuse
from validate.network.layers import Layer, Network


def ordered(network: Network) -> Sequence[Layer]:
    """Give the layers in topological order over their tensors, and in TensorRT's order wherever that is one.

    Raises:
        StageError: a tensor is made twice, used and never made, or made from itself.
    """
    sources = _sources(network)
    users: dict[int, list[int]] = {}
    for index, makers in enumerate(sources):
        for maker in makers:
            users.setdefault(maker, []).append(index)
    waiting = [len(makers) for makers in sources]
    ready = [index for index, count in enumerate(waiting) if not count]
    found = []
    while ready:
        index = heapq.heappop(ready)
        found.append(network.layers[index])
        for user in users.get(index, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(found) < len(network.layers):
        names = [network.layers[index].name for index, count in enumerate(waiting) if count][:8]
        raise refuse(
            f"the network of {network.source} has a loop", expected="no tensor made from itself", found=f"{names}"
        )
    return found


def _sources(network: Network) -> list[set[int]]:
    """Give, for every layer, the layers that make its inputs."""
    maker: dict[str, int] = {}
    for index, layer in enumerate(network.layers):
        for tensor in layer.outputs:
            if maker.setdefault(tensor.name, index) != index:
                raise layer.refuse(f"the tensor {tensor.name!r} is made twice", "tensors with names of their own")
    given = {tensor.name for tensor in network.inputs}
    sources = []
    for layer in network.layers:
        names = [tensor.name for tensor in layer.inputs if tensor is not None]
        missing = [name for name in names if name not in maker and name not in given]
        if missing:
            raise layer.refuse(f"{missing} are made by no layer", "inputs that a layer or a feed gives")
        sources.append({maker[name] for name in names if name in maker})
    return sources
