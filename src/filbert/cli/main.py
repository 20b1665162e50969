"""`filbert`: finds the verb, and turns every deliberate error into a sentence and an exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Toml

from filbert import __version__
from filbert.errors import FilbertError

EXIT_INPUT = 2
EXIT_INTERRUPTED = 130

# Verb to module. A verb is imported when it runs or when its help is asked for, and none imports torch at the top.
VERBS = (
    "quickstart",
    "info",
    "tokenize",
    "finetune",
    "evaluate",
    "predict",
    "embed",
    "check",
    "doctor",
)

app = App(
    name="filbert",
    help="One tool for the whole life of a BERT-family encoder.",
    version=__version__,
    default_parameter=Parameter(consume_multiple=True, negative_iterable=(), negative_bool=()),
    result_action="return_value",
)
for verb in VERBS:
    app.command(f"filbert.cli.verbs.{verb}:{verb}", name=verb)


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    recipe: Path | None = None,
) -> int | None:
    """Run one verb.

    Parameters
    ----------
    recipe:
        TOML file with the options of the verb; flags win over it.
    """
    if recipe is not None:
        app.config = (
            Toml(str(recipe), must_exist=True, search_parents=False, use_commands_as_keys=False),
        )
    return app(tokens, exit_on_error=False, print_error=False)  # type: ignore[no-any-return]


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    try:
        return app.meta(list(arguments), exit_on_error=False, print_error=False) or 0
    except CycloptsError as error:
        return _fail(_plain(str(error)), EXIT_INPUT)
    except FilbertError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted.", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            where = f" while writing {error.filename}" if error.filename else ""
            return _fail(f"The disk is full{where}. Free some space and try again.", EXIT_INPUT)
        raise
    finally:
        app.config = ()


def main() -> None:
    """Entry point of the `filbert` command."""
    sys.exit(run(sys.argv[1:]))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _fail(message: str, status: int) -> int:
    print(f"filbert: {message}", file=sys.stderr)
    return status
