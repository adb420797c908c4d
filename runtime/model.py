"""A model folder, opened to be run: files checked against their manifests, session, tokenizer and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from artifacts.contract import ATTENTION_MASK, Form
from artifacts.doctor import find_gpus
from artifacts.errors import refuse
from artifacts.layout import DATA_FILE, ROTARY_FILE, ModelFolder
from runtime.cache import Cache, open_cache
from runtime.engine_session import EngineSession
from runtime.generate import CHUNK, Generator
from runtime.memory import BindableSession
from runtime.onnxruntime_binding import BindableOnnxRuntimeSession
from runtime.plan_check import PlanFile
from runtime.session import Provider
from runtime.settings import Defaults
from runtime.tokenizer import Tokenizer, load_tokenizer

DEFAULT_CONTEXT = 4096


@dataclass(frozen=True)
class RunOptions:
    """How to run a model.

    Attributes:
        linear: use the graph of the linear cache, which many texts can share, not the one whose cache is joined anew
            each step; on a CPU both run alike.
        context: most tokens of prompt and text together; `None` takes 4096, or all positions of a model with fewer.
        provider: where ONNX Runtime computes.
        plan: run this plan with TensorRT instead: the name of a folder in `build/`. It has its own form and context.
    """

    linear: bool = True
    context: int | None = None
    provider: Provider = "cpu"
    plan: str | None = None


@dataclass(frozen=True)
class Limits:
    """Most rows and new tokens of a step; `None` has no limit of its own."""

    rows: int | None = None
    chunk: int | None = None


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
        self._asked = options.context
        self.folder = ModelFolder(root)
        self.config = self.folder.config()
        plan = None if options.plan is None else PlanFile(self.folder, options.plan)
        self.linear = options.linear if plan is None else plan.form.linear
        self.session: BindableSession
        if plan is None:
            graph = _graph(self.folder, options)
            self.context = _context(options.context, self.config.max_positions)
            self.limits = Limits()
            self.session = BindableOnnxRuntimeSession(graph, provider=options.provider)
        else:
            _check_plan(plan, options)
            self.context = plan.context
            self.limits = Limits(plan.rows, plan.chunk)
            self.session = EngineSession(plan)
        self.tokenizer: Tokenizer = load_tokenizer(self.folder.onnx)
        self.defaults = Defaults.read(self.folder.onnx, self.tokenizer.eos_token_id)

    def __enter__(self) -> Self:
        self.session.__enter__()
        slots = self.session.inputs[ATTENTION_MASK].axes[1]
        if isinstance(slots, int):
            if self._asked not in (None, slots):
                self.session.__exit__(None, None, None)
                raise refuse(
                    "the linear cache has its capacity in its shapes on this provider",
                    expected=f"--context {slots}, or none",
                    found=str(self._asked),
                    remedy=f"python -m surgery {self.folder.root} --capacity {self._asked}",
                )
            self.context = slots
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.__exit__(kind, error, trace)

    def cache(self, *, rows: int = 1, chunk: int = CHUNK) -> Cache:
        """Give an empty cache.

        Args:
            rows: texts that run at once.
            chunk: most new tokens at once; fewer where the plan takes no more.

        Raises:
            StageError: the form of the cache or the plan takes no such number of rows.
        """
        if rows > 1:
            self.check_shared(rows)
        chunk = min(chunk, self.limits.chunk or chunk, self.context)
        return open_cache(self.session, rows=rows, context=self.context, chunk=chunk)

    def check_shared(self, rows: int) -> None:
        """Insist that texts can share the cache, each in a row of its own; known before anything is loaded.

        Raises:
            StageError: it is the concatenated one, or the plan takes no such number of rows.
        """
        build = f"python -m build {self.folder.root} --graph {Form.MODEL_LINEAR.value} --max-batch-size {rows}"
        if not self.linear:
            raise refuse(
                "texts cannot share the concatenated cache",
                expected="the linear cache, which has a row for each",
                found="a cache that holds one text",
                remedy=f"{build}, and give that plan; or run without --plan",
            )
        most = self.limits.rows
        if most is not None and rows > most:
            raise refuse(
                f"{rows} rows are too many",
                expected=f"at most {most} with this plan",
                found=str(rows),
                remedy=f"ask for fewer texts at once, or {build}",
            )

    def generator(self) -> Generator:
        """Give what continues one text at a time."""
        return Generator(self.cache(), self.tokenizer, self.defaults)


def _graph(folder: ModelFolder, options: RunOptions) -> Path:
    """Give the graph to run, after it and its data were checked."""
    form = Form.MODEL_LINEAR if options.linear else Form.MODEL
    graph = folder.graph(form, twin=options.provider == "cpu")
    _check_exported(folder, {DATA_FILE, ROTARY_FILE})
    folder.surgery_manifest().check_outputs(
        folder.root, folder.digests(), made_by=folder.command("surgery"), only=[folder.relative(graph)]
    )
    return graph


def _check_plan(plan: PlanFile, options: RunOptions) -> None:
    """Insist that the plan can run here and that nothing else was asked of it."""
    if options.context not in (None, plan.context):
        raise refuse(
            "a plan has its own context", expected=f"--context {plan.context}, or none", found=f"{options.context}"
        )
    plan.check(find_gpus())
    _check_exported(plan.folder, set())


def _check_exported(folder: ModelFolder, names: set[str]) -> None:
    """Insist that what will be read beside the graph is what export made."""
    exported = folder.export_manifest()
    read = {*names, "config.json", "generation_config.json", "chat_template.jinja"}
    only = [name for name in exported.outputs if Path(name).name in read or "token" in name]
    exported.check_outputs(folder.root, folder.digests(), made_by=folder.command("export"), only=only)


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
