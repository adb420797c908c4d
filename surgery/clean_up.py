"""What no output needs is gone, nodes stand in the order in which they compute, and each is named after its output.

::

    before   … Shape, Gather, Where, Cos, Sin … of sub-graphs that were replaced      after   what the outputs need
"""

from __future__ import annotations

from dataclasses import dataclass

from surgery.subject import Subject


@dataclass(frozen=True)
class CleanUp:
    """The step that removes what earlier steps left over."""

    makes: str = "clean-up"

    def run(self, subject: Subject) -> int:
        """Remove unused nodes and tensors, sort the rest and name it.

        Returns:
            The number of nodes removed.
        """
        before = len(subject.graph.nodes)
        subject.graph.cleanup().toposort()
        taken = subject.graph.tensors().keys()
        for node in subject.graph.nodes:
            output = node.outputs[0].name
            name = output if "/" in output else f"{output}/{node.op}"
            # Another node makes a tensor of that name, and is called after it.
            node.name = f"{name}_1" if name in taken and name != output else name
        return before - len(subject.graph.nodes)


CLEAN_UP = CleanUp()
