"""PyTorch runs the checkpoint itself, through Transformers' own model: the reference that everything is compared with.

The model is built without memory and takes its weights one by one from the checkpoint's BF16 values, so it needs no
more than the weights in the wanted type. Its mask, its rotation and its norms are Transformers' own; attention is
eager, which is the arithmetic that the export writes down.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self

from artifacts.checkpoint import Checkpoint
from artifacts.contract import (
    ATTENTION_MASK,
    INPUT_IDS,
    KINDS,
    LOGITS,
    POSITION_IDS,
    Form,
    TensorSpec,
    past_name,
    present_name,
    signature,
)
from artifacts.errors import refuse
from artifacts.names import EMBEDDING_WEIGHT, HEAD_WEIGHT
from runtime.session import Array, Feeds

TorchType = Literal["float32", "bfloat16"]


class PyTorchSession:
    """Transformers' `SmolLM3ForCausalLM` on the CPU, with the contract's names; feeds and outputs are FP32.

    In BF16 the model computes in BF16 and the cache is fed and given in FP32, which holds BF16 values exactly.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: TorchType) -> None:
        specs = signature(checkpoint.config, Form.MODEL_ALL, twin=True)
        self.inputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in specs.inputs}
        self.outputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in specs.outputs}
        self._checkpoint = checkpoint
        self._dtype: TorchType = dtype
        self._model: Any = None

    def __enter__(self) -> Self:
        self._model = load(self._checkpoint, self._dtype)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model = None

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run once; logits are those of every new token."""
        import torch
        from transformers import DynamicCache

        dtype = getattr(torch, self._dtype)
        layers = range(self._checkpoint.config.num_hidden_layers)
        past = [tuple(torch.from_numpy(feeds[past_name(i, kind)]).to(dtype) for kind in KINDS) for i in layers]
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.from_numpy(feeds[INPUT_IDS]),
                attention_mask=torch.from_numpy(feeds[ATTENTION_MASK]),
                position_ids=torch.from_numpy(feeds[POSITION_IDS]),
                cache=DynamicCache(past),
                use_cache=True,
            )
        results: dict[str, Array] = {LOGITS: output.logits.float().numpy()}
        for index, layer in enumerate(output.cache.layers):
            results[present_name(index, "key")] = layer.keys.float().numpy()
            results[present_name(index, "value")] = layer.values.float().numpy()
        return results


def load(checkpoint: Checkpoint, dtype: TorchType) -> Any:
    """Build the model and fill it; weights that are not BF16 are rounded to BF16 first, as export rounds them.

    Returns:
        A `SmolLM3ForCausalLM` in evaluation mode.

    Raises:
        StageError: the checkpoint lacks weights of the model, or has others.
    """
    import torch
    from transformers import SmolLM3Config, SmolLM3ForCausalLM
    from transformers.models.smollm3.modeling_smollm3 import SmolLM3RotaryEmbedding

    config = SmolLM3Config.from_dict(dict(checkpoint.raw_config))
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = SmolLM3ForCausalLM(config)
    wanted = {name for name, _ in model.named_parameters()}
    weights = checkpoint.weights()
    found = set(weights.names()) - ({HEAD_WEIGHT} if config.tie_word_embeddings else set())
    if wanted != found:
        raise refuse(
            "the checkpoint's weights are not the model's",
            expected=f"{len(wanted)} tensors" + (f", also {sorted(wanted - found)[:5]}" if wanted - found else ""),
            found=f"{len(found)} tensors" + (f", also {sorted(found - wanted)[:5]}" if found - wanted else ""),
            remedy="export the checkpoint again; it has changed since",
        )
    for name in sorted(found):
        owner, _, leaf = name.rpartition(".")
        values = weights.tensor(name).to(torch.bfloat16).to(getattr(torch, dtype))
        setattr(model.get_submodule(owner), leaf, torch.nn.Parameter(values, requires_grad=False))
    if config.tie_word_embeddings:
        model.lm_head.weight = model.get_parameter(EMBEDDING_WEIGHT)
    # Its frequencies are no weights: on the meta device they are empty, so the module is made anew.
    model.model.rotary_emb = SmolLM3RotaryEmbedding(config)
    return model.eval()
