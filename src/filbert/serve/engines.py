"""The models of a server, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from filbert.errors import ConfigError, InputError, printable
from filbert.serve.engine import Engine


class NoSuchModel(InputError):
    """A request names a model that is not loaded."""


class Engines:
    """One engine a model, in the order in which they were given.

    Raises:
        ConfigError: there is none, or two have one name.
    """

    def __init__(self, engines: Iterable[Engine]) -> None:
        self._by_name: dict[str, Engine] = {}
        for engine in engines:
            if engine.name in self._by_name:
                raise ConfigError(
                    f"Two models are called {engine.name!r}. Give them names: NAME=MODEL."
                )
            self._by_name[engine.name] = engine
        if not self._by_name:
            raise ConfigError("There is no model to serve. Name at least one.")

    def __iter__(self) -> Iterator[Engine]:
        return iter(self._by_name.values())

    def get(self, name: str | None, needs: str) -> Engine:
        """The model of that name; without a name the first of those that do it best.

        Args:
            name: as the request says, or None.
            needs: one of `work.abilities`.

        Raises:
            NoSuchModel: there is none of that name.
            ConfigError: it cannot do that, or none can.
        """
        if name is None:
            able = [engine for engine in self if needs in engine.can]
            if not able:
                raise ConfigError(f"No loaded model can {needs}. {self._list()}")
            # Any encoder can embed, but one made for it comes before a classifier.
            return min(able, key=lambda engine: engine.can.index(needs))
        engine = self._by_name.get(name)
        if engine is None:
            names = ", ".join(self._by_name)
            raise NoSuchModel(f"There is no model {printable(name)!r}. Loaded: {names}.")
        if needs not in engine.can:
            raise ConfigError(f"The model {name!r} cannot {needs}. {self._list()}")
        return engine

    def _list(self) -> str:
        return "; ".join(f"{engine.name} can {', '.join(engine.can)}" for engine in self) + "."

    def start(self) -> None:
        """Start all."""
        for engine in self:
            engine.start()

    async def close(self, grace: float) -> None:
        """Stop all, at once; see `Engine.close`."""
        await asyncio.gather(*(engine.close(grace) for engine in self))

    async def check(self) -> None:
        """Run every model once; see `Engine.check`."""
        await asyncio.gather(*(engine.check() for engine in self))
