"""What the server makes of many clients at once: real connections, streams read as they come."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from runtime.model import Model
from runtime.serve_options import ServeOptions
from runtime.server.app import create_app
from runtime.server.background import in_background
from runtime.server.service import Service


def concurrent(model: Model, prompts: Sequence[Sequence[int]], new: int) -> float:
    """Give new tokens a second, all streams together, from the last first token to the first last one.

    So only the time counts in which every stream was decoding.

    Args:
        model: an entered model with the linear cache.
        prompts: ids; one stream each, all at once.
        new: tokens of each stream; no stop id ends it.
    """
    options = ServeOptions(slots=len(prompts), max_queue=len(prompts))
    defaults, model.defaults = model.defaults, replace(model.defaults, stop_ids=frozenset())
    try:
        with (
            Service(model, options) as service,
            in_background(create_app(service)) as url,
            ThreadPoolExecutor(len(prompts)) as pool,
        ):
            streams = list(pool.map(lambda prompt: _stream(url, service.name, prompt, new), prompts))
    finally:
        model.defaults = defaults
    begin = max(times[0] for times in streams)
    end = min(times[-1] for times in streams)
    tokens = sum(sum(begin < moment <= end for moment in times) for times in streams)
    return tokens / (end - begin)


def _stream(url: str, name: str, prompt: Sequence[int], new: int) -> list[float]:
    """Read one stream and give when each token came."""
    body = {"model": name, "prompt": list(prompt), "max_tokens": new, "stream": True, "logprobs": 0}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return [time.perf_counter() for line in response if line.startswith(b"data: {")]
