"""The table that closes a build."""

from __future__ import annotations

from rich.table import Table

from build.memory import gigabytes
from build.plan import Plan


def table(plan: Plan) -> Table:
    """Lay out what was built: target, bytes, layers by kind, memory, seconds."""
    facts, size = plan.manifest.facts, plan.path.stat().st_size
    profiles = [profile["name"] for profile in facts["profiles"]]
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["layers"].items())
    activations = [gigabytes(size) for size in facts["activation_memory"]]
    rows = {
        "target": plan.target,
        "plan": f"{gigabytes(size)} ({size} bytes)",
        "TensorRT layers": f"{facts['layer_count']}: {kinds}",
        "weights memory": f"{gigabytes(facts['weights_memory'] or 0)}; initializers {gigabytes(facts['initializers'])}",
        "activation memory": ", ".join(f"{name} {memory}" for name, memory in zip(profiles, activations, strict=False)),
        "context, chunk": f"{facts['max_context']} tokens, prefill in chunks of {facts['prefill_chunk']}",
        "built in": f"{facts['seconds']:.1f} s, peak {gigabytes(facts['peak_host_memory'])} of host memory",
        "written to": str(plan.directory),
    }
    result = Table("what", "value", title=f"Plan of {plan.folder.name}")
    for name, value in rows.items():
        result.add_row(name, value)
    return result
