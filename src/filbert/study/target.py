"""What the model that is looked for must reach: a share of a quality, a time to answer in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filbert.errors import ConfigError
from filbert.study.contestant_options import near

if TYPE_CHECKING:
    from filbert.study.recipe import Contestant

_UNITS = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Target:
    """What the model that is looked for must reach.

    Attributes:
        quality: share of another contestant's figure; None for any.
        of: the name of that contestant.
        latency_seconds: the most that a single text may take; None for any time.
    """

    quality: float | None
    of: str | None
    latency_seconds: float | None


def target_of(said: Mapping[str, Any], contestants: Sequence[Contestant]) -> Target | None:
    """The target of a study; None where it looks for none.

    Args:
        said: options of the study.
        contestants: of it.

    Raises:
        ConfigError: a number out of range, or it is not clear whose quality is meant.
    """
    quality, of = said.get("target_quality"), said.get("target_of")
    latency = said.get("target_latency")
    if of is not None:
        names = {key: one for one in contestants for key in (one.folder, one.name)}
        if of not in names:
            folders = [one.folder for one in contestants]
            raise ConfigError(
                f"target_of {of!r} is not one of the contestants {folders}.{near(of, folders)}"
            )
        of = names[of].name
    is_number = isinstance(quality, int | float) and not isinstance(quality, bool)
    if quality is not None and not (is_number and 0 < quality < math.inf):
        raise ConfigError(
            f"target_quality is {quality!r}; give a share of the teacher's figure, such as 0.97."
        )
    if quality is None and latency is None:
        if of is not None:
            raise ConfigError("target_of says whose quality is meant; give target_quality too.")
        return None
    of = of or common_root(contestants)
    if quality is not None and of is None:
        raise ConfigError(
            "target_quality is a share of another contestant's figure, and the study has no single "
            "teacher; name the contestant with target_of."
        )
    return Target(quality, of, None if latency is None else seconds_of(latency))


def common_root(contestants: Sequence[Contestant]) -> str | None:
    """The name of the one contestant that all those are made from which are made from any."""
    roots = {one.root.name for one in contestants if one.source is not None}
    return roots.pop() if len(roots) == 1 else None


def references(contestants: Sequence[Contestant], target: Target | None) -> dict[str, str]:
    """By contestant, the name of the one whose figure its own is shown as a share of.

    Everybody beside the one that is asked for, or that all students go back to; where there are
    several such, every student beside its own.
    """
    of = (target and target.of) or common_root(contestants)
    if of is not None:
        return {one.name: of for one in contestants if one.name != of}
    return {one.name: one.root.name for one in contestants if one.source is not None}


def seconds_of(text: str) -> float:
    """Seconds of a time such as 5ms or 0.5s.

    Raises:
        ConfigError: it is no such time.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip().lower(), flags=re.ASCII)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(f"target_latency is {text!r}; give a time above zero, such as 5ms.")
    return seconds
