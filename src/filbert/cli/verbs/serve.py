"""filbert serve."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

from cyclopts import Parameter

from filbert.errors import ConfigError, install_hint
from filbert.serve.settings import ModelSettings, Settings, named_models

_SETTINGS, _MODEL_SETTINGS = Settings(), ModelSettings()
_FLAT = Parameter(name="*", negative_bool="no-")


def serve(
    *models: str,
    settings: Annotated[Settings, _FLAT] = _SETTINGS,
    model_settings: Annotated[ModelSettings, _FLAT] = _MODEL_SETTINGS,
) -> None:
    """Answer over HTTP with one or several models, until SIGTERM or Ctrl-C.

    Parameters
    ----------
    models:
        folders, built-in names or Hub ids; NAME=MODEL sets the name in requests.
    """
    named = named_models(models)
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if not find_spec(name)]
    if missing:
        raise ConfigError(f"filbert serve needs {', '.join(missing)}. {install_hint('serve')}")
    from filbert.serve import app

    app.run(named, settings, model_settings)
