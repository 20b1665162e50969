"""The files of deploy/: the commands in them are what `filbert serve` takes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from filbert.cli.main import app
from filbert.serve.settings import KEYS_VARIABLE

DEPLOY = Path(__file__).parents[2] / "deploy"


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def options_of(words: list[str]) -> tuple[list[str], dict[str, object]]:
    """The models and what else the command line understands."""
    command, bound, *_ = app.parse_args(["serve", *words], exit_on_error=False, print_error=False)
    assert command.__name__ == "serve"
    given = bound.arguments
    return list(given.get("models", ())), {
        name: value
        for group in ("settings", "model_settings")
        if group in given
        for name, value in vars(given[group]).items()
    }


def test_the_container_s_command_listens_for_everybody_and_has_a_model():
    text = text_of("Dockerfile").replace("\\\n", " ")
    lines = dict(
        line.split(" ", 1) for line in text.splitlines() if line.startswith(("ENTRYPOINT", "CMD"))
    )
    entry, usual = json.loads(lines["ENTRYPOINT"]), json.loads(lines["CMD"])
    assert entry[:2] == ["filbert", "serve"]
    models, options = options_of([*entry[2:], *usual])
    assert models == ["filbert-mini"]
    assert (options["host"], options["port"]) == ("0.0.0.0", 8080)
    assert "127.0.0.1:8080/health" in text


def test_the_unit_s_command_is_understood_and_has_time_to_end():
    text = text_of("filbert.service")
    examples = dict(re.findall(r"^#\s+(FILBERT_\w+)=(.*)$", text, re.MULTILINE))
    assert KEYS_VARIABLE in examples
    command = re.search(r"^ExecStart=\S+/filbert serve (.*)$", text, re.MULTILINE)
    assert command is not None
    words = command[1]
    for name, value in examples.items():
        words = words.replace(f"${name}", value)
    models, options = options_of(shlex.split(words))
    assert models == ["toxic=/srv/models/toxic", "minilm"]
    assert options["workers"] == 2
    stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert stop is not None and int(stop[1]) > float(str(options["grace_seconds"])) + 5
