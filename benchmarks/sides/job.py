"""What a side has to do, as it is told in a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Job:
    """One side's work, in a process of its own.

    Attributes:
        side: a name from `sides.SIDES`.
        model: folder of the model in Hugging Face's layout.
        data: file with the token ids of the workload.
        place: folder for converted models, which sides may share.
        threads: processor threads for everything that counts.
        device: "cpu" or a GPU's name.
    """

    side: str
    model: str
    data: str
    place: str
    threads: int
    device: str = "cpu"

    def line(self) -> bytes:
        """For the standard input of a child."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: str | bytes) -> Job:
        """The inverse of `line`."""
        return cls(**json.loads(line))
