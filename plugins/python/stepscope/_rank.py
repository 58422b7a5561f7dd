"""The rank of this process in its job, from the launcher's variables RANK and WORLD_SIZE, as torchrun sets them."""

from __future__ import annotations

import dataclasses
import json

from . import _native


@dataclasses.dataclass(frozen=True)
class Rank:
    rank: int
    world_size: int
    problem: str  # why the variables were ignored; "" if they were not


def own() -> Rank:
    """Returns the rank as the recorder reads it: variables that do not name a valid rank count as rank 0 of 1."""
    return Rank(**json.loads(_native.call("rank", {})))
