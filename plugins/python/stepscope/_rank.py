"""The rank of this process in its job, by the launcher's variables: RANK and WORLD_SIZE, as torchrun sets them."""

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
    """As the recorder reads them, too: what names no rank of a job counts as rank 0 of 1."""
    return Rank(**json.loads(_native.call("rank", {})))
