"""What figures say about a machine, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

# Below this gain over float32 the conversions around the products eat it.
_WORTH = 1.5
_FASTER = ("bf16", "int8")


def about_formats(rates: Mapping[str, float]) -> list[str]:
    """Which number formats this machine is good at.

    Args:
        rates: GFLOP/s of bare matrix products by number format.
    """
    base = rates.get("float32")
    if not base:
        return []
    gains = {name: rates[name] / base for name in _FASTER if name in rates}
    good = [name for name, gain in gains.items() if gain >= _WORTH]
    speeds = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    first = f"Bare matrix products reach {speeds} GFLOP/s here"
    if not good:
        return [f"{first}: nothing is faster than float32 by much, so stay with it."]
    named = " and ".join(f"{name} ({gains[name]:.1f} times float32)" for name in good)
    return [f"{first}: this machine is good at {named}."]


def about_side(
    speeds: Mapping[str, float], rates: Mapping[str, float], *, unit: str = "useful GFLOP/s"
) -> list[str]:
    """How fast filbert is, of how much that is possible, and beside the best of the others.

    Args:
        speeds: by side; those of filbert begin with its name.
        rates: the ceiling by number format, where there is one.
        unit: of the speeds.
    """
    mine = {name: speed for name, speed in speeds.items() if name.startswith("filbert")}
    others = {name: speed for name, speed in speeds.items() if name not in mine}
    if not mine:
        return []
    best = max(mine, key=mine.__getitem__)
    sentence = f"The best of filbert is {best} with {mine[best]:,.3g} {unit}"
    ceiling = rates.get(best.rpartition("-")[2])
    if ceiling:
        sentence += f" of {ceiling:,.0f} possible ({mine[best] / ceiling:.0%})"
    if others:
        peer = max(others, key=others.__getitem__)
        sentence += f"; the best of the others is {peer} with {others[peer]:,.3g}"
    return [f"{sentence}."]
