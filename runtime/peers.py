"""Other ways to run the same weights, to compare with: Transformers' own generate, and onnxruntime-genai.

onnxruntime-genai is no dependency of the project (its package asks for another build of ONNX Runtime): `pip install
--no-deps onnxruntime-genai` lets it use the one that is here. Its builder for SmolLM3 (0.12 to 0.18) stops or writes a
graph that is wrong, so it gets the weights as a Llama, which is the same model where every layer is rotated.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from artifacts.checkpoint import Checkpoint
from artifacts.config import ModelConfig
from artifacts.errors import refuse
from runtime.model import Model
from runtime.settings import Settings

Times = tuple[float, float]
"""Seconds to the first token, and from there to the last."""


@dataclass
class Subject:
    """Something that continues a prompt greedily.

    Attributes:
        name: for the table.
        run: takes ids and a number of new tokens.
        best: by the length of the prompt, the best seconds to the first token and the best of the further ones.
    """

    name: str
    run: Callable[[Sequence[int], int], Times]
    best: dict[int, Times] = field(default_factory=dict)

    def round(self, prompt: Sequence[int], new: int) -> None:
        """Run once and keep the best times."""
        first, rest = self.run(prompt, new)
        before = self.best.get(len(prompt), (first, rest))
        self.best[len(prompt)] = min(before[0], first), min(before[1], rest)


def ours(name: str, model: Model) -> Subject:
    """The project's own generator over an entered model."""

    def run(prompt: Sequence[int], new: int) -> Times:
        times = [time.perf_counter()]
        for _ in model.generator().stream(list(prompt), Settings(max_tokens=new, ignore_stop_ids=True)):
            times.append(time.perf_counter())
        return times[1] - times[0], times[-1] - times[1]

    return Subject(name, run)


def peer(name: str, model: Model, folder: Path) -> Subject:
    """Load another way to run an entered model's weights.

    Args:
        name: `transformers` or `onnxruntime-genai`.
        model: the model.
        folder: where a graph of the peer's own may be made.

    Raises:
        StageError: it cannot run these weights.
    """
    checkpoint = Checkpoint.from_identity(model.folder.export_manifest().checkpoint).folder
    if checkpoint is None:
        raise refuse("a random model has no checkpoint that others could load", remedy="give one that has")
    return transformers(checkpoint) if name == "transformers" else genai(checkpoint, model.config, folder)


def transformers(checkpoint: Path) -> Subject:
    """Transformers' generate, in FP32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)

    def seconds(ids: Any, new: int) -> float:
        begin = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=False)
        return time.perf_counter() - begin

    def run(prompt: Sequence[int], new: int) -> Times:
        ids = torch.tensor([list(prompt)])
        first = seconds(ids, 1)
        return first, seconds(ids, new) - first

    return Subject("transformers", run)


def genai(checkpoint: Path, config: ModelConfig, folder: Path) -> Subject:
    """onnxruntime-genai in FP32, its graph made in a folder.

    Raises:
        StageError: it is not installed, or the model has NoPE layers, which it cannot build.
    """
    if find_spec("onnxruntime_genai") is None:
        raise refuse("onnxruntime-genai is not installed", remedy="pip install --no-deps onnxruntime-genai==0.18.0")
    if config.nope_layers:
        raise refuse("onnxruntime-genai would rotate NoPE layers, as a Llama", found=f"layers {config.nope_layers}")
    library = import_module("onnxruntime_genai")
    source, made = folder / "llama", folder / "genai"
    _as_llama(checkpoint, source)
    places = ["-i", str(source), "-o", str(made), "-c", str(folder / "cache")]
    command = [
        sys.executable,
        "-m",
        "onnxruntime_genai.models.builder",
        *places,
        "-m",
        "llama",
        "-p",
        "fp32",
        "-e",
        "cpu",
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        said = (built.stderr.strip().splitlines() or ["nothing"])[-1]
        raise refuse("onnxruntime-genai's builder made no graph of it", found=said, remedy="leave it out of --against")
    model = library.Model(str(made))

    def run(prompt: Sequence[int], new: int) -> Times:
        length = len(prompt) + new
        parameters = library.GeneratorParams(model)
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = library.Generator(model, parameters)
        begin = time.perf_counter()
        generator.append_tokens(list(prompt))
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(new - 1):
            generator.generate_next_token()
        return first - begin, time.perf_counter() - first

    return Subject("onnxruntime-genai", run)


def _as_llama(checkpoint: Path, folder: Path) -> None:
    """Lay the checkpoint out as a Llama: the same files, another config."""
    folder.mkdir(parents=True)
    for path in checkpoint.iterdir():
        if path.name != "config.json" and path.is_file():
            try:
                os.link(path, folder / path.name)
            except OSError:
                shutil.copy(path, folder / path.name)
    raw = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    raw |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    raw |= {"rope_theta": raw["rope_parameters"]["rope_theta"], "rope_scaling": None}
    raw["head_dim"] = raw["hidden_size"] // raw["num_attention_heads"]
    for name in [name for name in raw if "no_rope" in name or name in ("rope_parameters", "layer_types")]:
        del raw[name]
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
