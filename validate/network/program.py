"""A network compiled to a list of functions: read once, constants placed once, each tensor freed after its last use.

What depends on constants only is computed when the program is made (a twin's weights are cast to FP32 then, quantized
ones dequantized). A run may ask for any tensors by name and may feed any tensor by name: only the layers between are
evaluated, so a block can be computed from its own inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.backend import Backend
from artifacts.errors import Problem, StageError
from validate.network.constants import Initializers
from validate.network.layers import Layer, Network, TensorFacts, torch_type
from validate.network.order import ordered
from validate.network.parse import parse
from validate.network.plan import Plan, make_plan
from validate.network.reading import read
from validate.network.steps import compile_steps

if TYPE_CHECKING:
    import torch

Observer = Callable[[str, Any], None]
"""Is told every tensor that was asked for, when it is made: its name and its value (a torch tensor)."""


class Program:
    """A network that can be run: torch tensors in, torch tensors out, nothing kept but constants."""

    def __init__(self, network: Network, initializers: Initializers) -> None:
        """Compile a network.

        Raises:
            StageError: a layer that the evaluation does not know, by name, kind and attribute.
        """
        self.network = network
        self.inputs: Mapping[str, TensorFacts] = {tensor.name: tensor for tensor in network.inputs}
        self.outputs: Mapping[str, TensorFacts] = {tensor.name: tensor for tensor in network.outputs}
        self._steps, self._constants = compile_steps(ordered(network), initializers, self.outputs)
        self._makers: dict[str, Layer] = {step.output: step.layer for step in self._steps if step.output}
        self._plans: dict[tuple[frozenset[str], frozenset[str]], Plan] = {}

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors that a run computes, in the order in which it does."""
        return tuple(self._makers)

    def layer_of(self, tensor: str) -> Layer:
        """Give the layer that makes a computed tensor."""
        return self._makers[tensor]

    def run(
        self, feeds: Mapping[str, torch.Tensor], wanted: Collection[str] | None = None, *, threads: int | None = None
    ) -> dict[str, torch.Tensor]:
        """Run once and give the tensors that are wanted, the network's outputs by default.

        A cache that a layer updates in place is the fed tensor itself, as in an engine.

        Raises:
            StageError: see `stream`.
        """
        names = tuple(self.outputs) if wanted is None else tuple(wanted)
        found: dict[str, torch.Tensor] = {}
        self.stream(feeds, names, found.__setitem__, threads=threads)
        return {name: found[name] for name in names}

    def stream(
        self,
        feeds: Mapping[str, torch.Tensor],
        wanted: Collection[str],
        observe: Observer,
        *,
        threads: int | None = None,
    ) -> None:
        """Run once and tell an observer each wanted tensor when it is made; none is kept.

        Args:
            feeds: values by name, for inputs of the network or for any tensor inside it.
            wanted: names of tensors; `tensors` for all.
            observe: what is told.
            threads: torch's threads for this run; as many as it has, if not given.

        Raises:
            StageError: unknown names, feeds that are missing or of another type or shape (all of them), or a layer
                that cannot be evaluated on these values.
        """
        import torch

        plan = self._plan(frozenset(wanted), frozenset(feeds))
        self._check(plan, feeds)
        slots = plan.initial.copy()
        for name, slot in plan.feeds.items():
            slots[slot] = feeds[name]
        for name, slot in plan.given:
            observe(name, slots[slot])
        with torch.inference_mode(), _threads(threads):
            for step, inputs, output, asked, emptied in plan.moves:
                slots[output] = value = step.evaluate([slots[slot] for slot in inputs])
                if asked is not None:
                    observe(asked, value)
                for slot in emptied:
                    slots[slot] = None

    def needs(self, wanted: Collection[str], fed: Collection[str]) -> frozenset[str]:
        """Name the network's inputs that have to be fed besides what is fed, to compute what is wanted."""
        reached = self._plan(frozenset(wanted), frozenset(fed)).reached
        return frozenset(name for name in self.inputs if name in reached and name not in fed)

    def _plan(self, wanted: frozenset[str], fed: frozenset[str]) -> Plan:
        """Give the plan for these names; made once for each pair of sets."""
        if (wanted, fed) not in self._plans:
            known = self.inputs.keys() | self._makers.keys() | self._constants.keys()
            problems = [
                Problem(f"{name!r} is no tensor of the network", f"one of its {len(known)} tensors", repr(name))
                for name in sorted((wanted | fed) - known)
            ]
            problems += [
                Problem(f"{name!r} cannot be fed", "an input, or a tensor that a run computes", "a constant")
                for name in sorted(fed & self._constants.keys())
            ]
            if problems:
                raise StageError(problems)
            self._plans[wanted, fed] = make_plan(
                self._steps, self._constants, wanted=wanted, fed=fed, whole=wanted >= self.outputs.keys()
            )
        return self._plans[wanted, fed]

    def _check(self, plan: Plan, feeds: Mapping[str, torch.Tensor]) -> None:
        """Insist that what has to be fed is, in the types and shapes that the network declares."""
        problems = [
            Problem(f"{name} is not fed", f"{self.inputs[name].dtype} {self.inputs[name].axes}", "nothing")
            for name in self.inputs
            if name in plan.reached and name not in feeds
        ]
        sizes: dict[str, tuple[int, str]] = {}
        for name, tensor in feeds.items():
            facts = self.inputs.get(name) or self._makers[name].outputs[0]
            problem = _misfit(facts, tensor, sizes)
            if problem:
                problems.append(problem)
        if problems:
            raise StageError(problems)


def load_program(source: Path, backend: Backend | None = None) -> Program:
    """Parse an ONNX file by TensorRT, read the network and compile it.

    Args:
        source: the graph, its data files beside it.
        backend: which TensorRT; the first that is installed if not given.

    Raises:
        StageError: TensorRT refuses the graph, or the evaluation does not know a layer.
    """
    return Program(read(parse(source, backend)), Initializers(source))


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _misfit(facts: TensorFacts, tensor: torch.Tensor, sizes: dict[str, tuple[int, str]]) -> Problem | None:
    """Say how a feed differs from what is declared; axes of one name have one size, as TensorRT demands."""
    shape = tuple(tensor.shape)
    wrong = tensor.dtype is not torch_type(facts.dtype) or len(shape) != len(facts.axes)
    for axis, size in zip(facts.axes, shape, strict=False):
        if isinstance(axis, int):
            wrong = wrong or axis != size
        elif axis:
            known, owner = sizes.setdefault(axis, (size, facts.name))
            if known != size:
                return Problem(f"{facts.name} has another {axis}", f"{known}, as {owner} has", f"{size}")
    if wrong:
        return Problem(f"{facts.name} cannot be fed", f"{facts.dtype} {facts.axes}", f"{tensor.dtype} {shape}")
    return None
