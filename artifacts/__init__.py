"""The contract between the stages: names, facts, manifests and digests that all of them keep.

In and out: the stages meet through files in `artifacts/out/<model>/`. This package knows what lies there
(`layout`), what a graph's tensors are called (`contract`, `names`), what a model's config says (`config`), what made a
file and from what (`manifest`, `digest`), and how a file is written so that it is whole or absent (`writing`).
It imports no other stage.
"""

__version__ = "0.1.0"
