"""A model folder, opened to be run: files checked against their manifests, session, tokenizer and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from artifacts.contract import ATTENTION_MASK, Form
from artifacts.errors import refuse
from artifacts.layout import DATA_FILE, ROTARY_FILE, ModelFolder
from runtime.cache import Cache, open_cache
from runtime.generate import CHUNK, Generator
from runtime.memory import BindableSession
from runtime.onnxruntime_binding import BindableOnnxRuntimeSession
from runtime.session import Provider
from runtime.settings import Defaults
from runtime.tokenizer import Tokenizer, load_tokenizer

DEFAULT_CONTEXT = 4096


@dataclass(frozen=True)
class RunOptions:
    """How to run a model.

    Attributes:
        linear: use the linear cache (what the server needs) instead of the one that grows.
        context: most tokens of prompt and text together; `None` takes 4096, or all positions of a model with fewer.
        provider: where ONNX Runtime computes.
    """

    linear: bool = False
    context: int | None = None
    provider: Provider = "cpu"


class Model:
    """A model that can be run inside a `with` block.

    Args:
        root: the model's folder, `OUT/<model>`.
        options: how to run it.

    Raises:
        StageError: a file is missing or is not the one that its manifest names, there is no tokenizer, or the context
            does not suit the model. Nothing is loaded before all of this is known.
    """

    def __init__(self, root: Path, options: RunOptions | None = None) -> None:
        options = options or RunOptions()
        self.folder = ModelFolder(root)
        form = Form.MODEL_LINEAR if options.linear else Form.MODEL
        graph = self.folder.graph(form, twin=options.provider == "cpu")
        self.config = self.folder.config()
        _check_files(self.folder, graph)
        self.context = _context(options.context, self.config.max_positions)
        self.tokenizer: Tokenizer = load_tokenizer(self.folder.onnx)
        self.defaults = Defaults.read(self.folder.onnx, self.tokenizer.eos_token_id)
        self.session: BindableSession = BindableOnnxRuntimeSession(graph, provider=options.provider)

    def __enter__(self) -> Self:
        self.session.__enter__()
        slots = self.session.inputs[ATTENTION_MASK].axes[1]
        if isinstance(slots, int):
            self.context = slots
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.__exit__(kind, error, trace)

    def cache(self, *, rows: int = 1, chunk: int = CHUNK) -> Cache:
        """Give an empty cache."""
        return open_cache(self.session, rows=rows, context=self.context, chunk=chunk)

    def generator(self) -> Generator:
        """Give what continues one text at a time."""
        return Generator(self.cache(), self.tokenizer, self.defaults)


def _check_files(folder: ModelFolder, graph: Path) -> None:
    """Insist that what will be read is what export and surgery made."""
    digests = folder.digests()
    exported, fused = folder.export_manifest(), folder.surgery_manifest()
    read = {DATA_FILE, ROTARY_FILE, "config.json", "generation_config.json", "chat_template.jinja"}
    names = [name for name in exported.outputs if Path(name).name in read or "token" in name]
    exported.check_outputs(folder.root, digests, made_by=folder.export_command, only=names)
    fused.check_outputs(folder.root, digests, made_by=folder.surgery_command, only=[folder.relative(graph)])


def _context(asked: int | None, positions: int) -> int:
    if asked is None:
        return min(DEFAULT_CONTEXT, positions)
    if not 2 <= asked <= positions:
        raise refuse(
            "the context does not suit this model",
            expected=f"2 to {positions} tokens, the positions that the model has",
            found=str(asked),
            remedy="give another --context",
        )
    return asked
