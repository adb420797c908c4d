"""The options of surgery, checked where they are made."""

from __future__ import annotations

from dataclasses import dataclass

from artifacts.config import ModelConfig
from artifacts.errors import Problem, StageError

DEFAULT_CAPACITY = 4096


@dataclass(frozen=True)
class SurgeryOptions:
    """What a user may choose.

    Attributes:
        capacity: slots of the linear cache, C; the default of 4096 gives way to a model with fewer positions.
    """

    capacity: int

    @classmethod
    def for_model(cls, config: ModelConfig, capacity: int | None) -> SurgeryOptions:
        """Check a capacity against a model, or choose one.

        Raises:
            StageError: the capacity is not positive or is more than the positions that the model has.
        """
        if capacity is None:
            return cls(min(DEFAULT_CAPACITY, config.max_positions))
        if not 0 < capacity <= config.max_positions:
            raise StageError(
                Problem(
                    "the capacity of the linear cache does not suit this model",
                    f"1 to {config.max_positions} slots, the positions that the model has",
                    str(capacity),
                    "give another --capacity",
                )
            )
        return cls(capacity)
