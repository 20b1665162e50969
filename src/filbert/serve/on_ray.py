"""The same server on many machines: a Ray Serve application, of which every replica has the models.

    serve run filbert.serve.on_ray:build models=toxic=runs/toxic/model replicas=2 cores=2

or in the configuration file of `serve deploy`: `import_path: filbert.serve.on_ray:build`, with
`args` as below. Ray's proxies take the connections and share out the requests, so host, port, TLS
and time-outs of connections are Ray's business; everything else is as with `filbert serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from filbert.errors import ConfigError, install_hint
from filbert.serve.operation import Operation, named_models
from filbert.serve.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

# Ray's, or of no use where Ray has the socket and the processes.
_RAYS = ("host", "port", "idle_seconds", "workers", "certificate", "key")


def build(arguments: Mapping[str, Any]) -> Any:
    """The Ray Serve application.

    Args:
        arguments: `models` (a list, or one text with commas between), `replicas` (1), `cores` and
            `gpus` of a replica (1 and 0), and the options of `filbert serve` by their names, such
            as `max_batch_tokens`; values may be text, as a command line gives them.

    Returns:
        What `ray.serve.run` takes.

    Raises:
        ConfigError: ray is not installed, an argument is unknown or cannot be meant.
    """
    given = dict(arguments)
    models = given.pop("models", ())
    names = named_models(models.split(",") if isinstance(models, str) else models)
    replicas, cores, gpus = (
        _number(name, given.pop(name, usual))
        for name, usual in (("replicas", 1), ("cores", 1), ("gpus", 0))
    )
    settings = Settings(**_taken(Settings, given))
    operation = Operation(**_taken(Operation, given))
    if given:
        known = ["models", "replicas", "cores", "gpus", *_names(Settings), *_names(Operation)]
        raise ConfigError(f"Unknown: {', '.join(given)}. There are {', '.join(known)}.")
    try:
        from ray import serve
    except ImportError as error:
        raise ConfigError(f"This needs Ray Serve. {install_hint('serve,ray')}") from error

    def application() -> FastAPI:
        """In a replica, whose share of the machine's cores Ray has set."""
        from filbert.serve.memory import keep_less
        from filbert.serve.process import open_app

        keep_less()
        app, lines = open_app(names, settings, operation)
        # Ray keeps what a replica prints in the replica's log.
        print(*lines, sep="\n", file=sys.stderr, flush=True)
        return app

    # Ray asks for a class and makes it one; what it runs is the application.
    replica = serve.ingress(application)()
    return serve.deployment(
        name="filbert",
        num_replicas=int(replicas),
        ray_actor_options={"num_cpus": cores, "num_gpus": gpus},
        # Ray lets 5 in at once, which no batch could be made of; what is too much gets 429 from us.
        max_ongoing_requests=2 * settings.max_concurrent_requests,
        graceful_shutdown_timeout_s=settings.grace_seconds,
    )(replica).bind()


def _names(kind: type[Settings] | type[Operation]) -> dict[str, str]:
    """The options that are not Ray's, and what they are declared as."""
    return {field.name: str(field.type) for field in fields(kind) if field.name not in _RAYS}


def _taken(kind: type[Settings] | type[Operation], given: dict[str, Any]) -> dict[str, Any]:
    """The options of `kind` among the arguments, which lose them; text becomes what they are."""
    named = {name: declared for name, declared in _names(kind).items() if name in given}
    return {name: _value(name, given.pop(name), declared) for name, declared in named.items()}


def _value(name: str, value: Any, declared: str) -> Any:
    if not isinstance(value, str) or "str" in declared:
        return value
    if "bool" in declared:
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{name} is {value!r}; give true or false.")
        return value.lower() == "true"
    number = _number(name, value)
    return int(number) if "int" in declared else number


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} is {value!r}; give a number.") from error
