"""Parses the command line, calls the verb and turns exceptions into messages and exit codes."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import App, ArgumentCollection, CoercionError, CycloptsError, Group, Parameter
from cyclopts.config import Dict

from filbert import __version__
from filbert.cli.arguments import STDIO, shown_as
from filbert.errors import ConfigError, FilbertError, on_terminal, printable
from filbert.files import THREADS_VARIABLE, available_cores, cpu_quota
from filbert.train.options import keys_of_tables

EXIT_INPUT = 2
EXIT_INTERRUPTED = 130

# Errors of the system for files that cannot be read or written.
_CLOSED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG,
    errno.EEXIST,
)  # fmt: skip
_MEMORY = (
    "Out of memory. Lower --max-tokens, --max-length or --batch-size, use a smaller model, or end "
    "other programs."
)

# Each verb is a function in a module of cli/verbs, which does not import torch at the top. Titles
# and order are those of `filbert --help`.
GROUPS = {
    "First steps": dict.fromkeys(("quickstart", "doctor"), "start"),
    "Data and text": dict.fromkeys(("check", "tokenize", "vocab", "corpus"), "data"),
    "Train and compare": {
        **dict.fromkeys(("finetune", "pretrain", "distill"), "train"),
        **dict.fromkeys(("compare", "evaluate"), "measure"),
        "replay": "train",
    },
    "Answers": dict.fromkeys(("predict", "embed", "fill", "score", "serve"), "answers"),
    "Models": dict.fromkeys(("info", "convert", "export", "shrink", "push"), "models"),
    "Look inside": dict.fromkeys(("inspect", "explain"), "inspect"),
    "Speed": {"bench": "start"},
}
# Other words for a verb.
_UNDERSTOOD = {"train": "finetune", "help": "--help"}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
# Subcommands of a verb, functions of its module: filbert inspect heads.
SUBCOMMANDS = {"inspect": ("heads", "neighbours", "layers")}
_SUBCOMMANDS = Group("Subcommands", sort_key=len(GROUPS))
_EVERY = Group("Every command", sort_key=len(GROUPS) + 1)

# Their --out may be -; other verbs write a folder, or several files.
TO_STDOUT = ("predict", "embed", "fill", "score", "inspect", "explain")
# Their first argument is a recipe: a TOML file, or the name of a built-in one.
RECIPE_VERBS = ("pretrain", "distill")
# This verb reads its recipe and the tables in it itself.
STUDY_VERB = "compare"
# Module and class of the options whose inner values are the tables of a recipe.
RECIPE_OPTIONS = {
    "finetune": ("filbert.train.options", "FinetuneOptions"),
    "pretrain": ("filbert.train.pretrain_options", "PretrainOptions"),
    "distill": ("filbert.train.distill_options", "DistillOptions"),
}

# cyclopts reads a lone - as a misspelt flag, so it gets this instead.
_DISGUISED = "(standard input or output)"
_FRACTION = re.compile(r"[+-]?\d*\.\d+")

# The command line, for the help page.
_words: list[str] = []


class _Help:
    """Prints help pages; their module is imported with the first of them."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        import_module("filbert.cli.help").print_panel(console, options, panel, _words)

    def render_usage(self, console: Any, _: Any, usage: Any) -> None:
        import_module("filbert.cli.help").print_usage(console, str(usage))


def read_values(_: App, command: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Check the texts of all values, of flags and of a recipe, before cyclopts converts them.

    Raises:
        CoercionError: A fraction for a whole number, which cyclopts would round.
        ConfigError: The folder to write is named -.
    """
    for argument in arguments:
        name = argument.field_info.name
        is_whole = int in (argument.hint, *get_args(argument.hint))
        for at, token in enumerate(argument.tokens):
            if is_whole and _FRACTION.fullmatch(token.value):
                raise CoercionError(argument=argument, token=token, target_type=int)
            if token.value == _DISGUISED:
                argument.tokens[at] = token.evolve(value=STDIO)
            is_stdio = token.value in (STDIO, _DISGUISED)
            if is_stdio and name in ("out", "target") and command[0] not in TO_STDOUT:
                raise ConfigError(f"- is standard output; name a folder as {name}.")


app = App(
    name="filbert",
    help="One tool for the whole life of a BERT-family encoder.\n\n"
    "Start with filbert quickstart; filbert COMMAND --help lists the options of a command.",
    group_commands=Group("Help", sort_key=len(GROUPS)),
    version=__version__,
    default_parameter=Parameter(
        consume_multiple=True,
        negative_iterable=(),
        negative_bool=(),
        # A flag that is off and an empty value are not shown.
        show_default=lambda v: (
            None if v is None or v is False or v in ("", ()) else "on" if v is True else str(v)
        ),
    ),
    help_formatter=_Help(),
    config=(read_values,),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.meta.suppress_keyboard_interrupt = False
for place, (title, verbs) in enumerate(GROUPS.items()):
    group = Group(title, sort_key=place)
    for order, (verb, module) in enumerate(verbs.items()):
        # A path, which cyclopts imports when the verb is called.
        path = f"filbert.cli.verbs.{module}:{verb}"
        app.command(path, name=verb, group=group, sort_key=order)
app.command(
    "filbert.cli.help:install_completion",
    name="--install-completion",
    help="Let the Tab key complete commands, options and file names.",
)


def load_verb(name: str) -> App:
    """Import the module of a verb, and return the verb with its subcommands."""
    verb = app[name]
    for below in SUBCOMMANDS.get(name, ()):
        if below not in verb:
            verb.command(f"filbert.cli.verbs.{name}:{below}", name=below, group=_SUBCOMMANDS)
        verb[below]  # imported, so that the help has its text
    return verb


def command_app(path: Sequence[str]) -> App:
    """Return the app of a verb, or of a verb and its subcommand."""
    return reduce(App.__getitem__, path[1:], load_verb(path[0]))


def without_overruled(content: dict[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """Return a recipe without the run length that a flag for another kind of length replaces.

    Of time, steps and epochs the first that is given counts; a flag takes precedence.
    """
    flags = {token.split("=")[0].lstrip("-") for token in tokens if token.startswith("--")}
    dropped: set[str] = set()
    if "steps" in flags and "time" not in flags:
        dropped = {"time"}
    elif "epochs" in flags and not flags & {"time", "steps"}:
        dropped = {"time", "steps"}
    return {name: value for name, value in content.items() if name not in dropped}


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    recipe: Annotated[Path | None, shown_as("FILE"), Parameter(group=_EVERY)] = None,
    threads: Annotated[int | None, Parameter(group=_EVERY)] = None,
) -> int | None:
    """Run one verb.

    Parameters
    ----------
    recipe:
        TOML file with the options of the command; flags take precedence.
    threads:
        CPU threads, with serve --workers of each process; by default one per core.
    """
    if threads is not None:
        _use_threads(threads)
    if tokens[:1] and tokens[0] in RECIPE_VERBS and recipe is None and len(tokens) > 1:
        from filbert.recipes import recipe_path

        verb, first, *rest = tokens
        if not first.startswith("-"):
            tokens, recipe = (verb, *rest), recipe_path(first, verb)
    if tokens[:1] == (STUDY_VERB,):
        if recipe is not None:
            tokens = (STUDY_VERB, str(recipe), *tokens[1:])
        recipe = _study_among(tokens[1:])
    if recipe is not None and not tokens:
        raise ConfigError(
            f"Which command is {recipe} for? Write: filbert COMMAND --recipe {recipe}"
        )
    if recipe is not None:
        content = without_overruled(_flat_recipe(recipe, tokens[0]), tokens)
        # Under the verb's name: otherwise cyclopts would read a key such as "corpus" as a verb.
        if tokens[1:2] and tokens[1] in SUBCOMMANDS.get(tokens[0], ()):
            content = {tokens[1]: content}
        app.config = (Dict({tokens[0]: content}, source=str(recipe)), read_values)
    words = [_DISGUISED if token == STDIO else token for token in tokens]
    return app(words, exit_on_error=False, print_error=False)  # type: ignore[no-any-return]


def _use_threads(count: int) -> None:
    """Let this process, and those that it starts, compute with `count` threads."""
    if count < 1:
        raise ConfigError(f"--threads is {count}; it must be a whole number above zero.")
    os.environ["OMP_NUM_THREADS"] = os.environ[THREADS_VARIABLE] = str(count)
    if "torch" in sys.modules:  # which has read the variable
        sys.modules["torch"].set_num_threads(count)


def _flat_recipe(path: Path, verb: str) -> dict[str, Any]:
    """Return the options of a recipe by flat name; an unknown table or key is a ConfigError."""
    from filbert.recipes import call_of_study, read_recipe

    content = read_recipe(path)
    if verb == STUDY_VERB:
        return call_of_study(content)
    if verb not in RECIPE_OPTIONS:
        return content
    module, name = RECIPE_OPTIONS[verb]
    try:
        keys, outside = keys_of_tables(content, getattr(import_module(module), name))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if outside:
        print(
            f"{path}: options outside of tables are still read; new recipes have tables such as "
            f"[train].",
            file=sys.stderr,
        )
    return keys


def _study_among(tokens: Sequence[str]) -> Path | None:
    """Return the recipe of a study, which may be anywhere between flags."""
    from filbert.recipes import built_in, recipe_path

    known = [path.stem for path in built_in(STUDY_VERB)]
    recipes = (token for token in tokens if token.endswith(".toml") or token in known)
    return next((recipe_path(token, STUDY_VERB) for token in recipes), None)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    if arguments[:1] and arguments[0] in _UNDERSTOOD:
        arguments = [_UNDERSTOOD[arguments[0]], *arguments[1:]]
    _words[:] = arguments
    arguments = ["--help" if word == "--help-all" else word for word in arguments]
    # The help of all verbs, and the nearest name of an unknown one, need the modules of all.
    for name in arguments[:1] if set(arguments[:1]) & set(VERBS) else VERBS:
        load_verb(name)
    try:
        return app.meta(list(arguments), exit_on_error=False, print_error=False) or 0
    except CycloptsError as error:
        from filbert.cli.refusals import sentence

        return _fail(sentence(error), EXIT_INPUT)
    except FilbertError as error:
        return _fail(on_terminal(error), error.exit_status)
    except KeyboardInterrupt as error:
        return _fail(on_terminal(error) or "interrupted.", EXIT_INTERRUPTED)
    except SystemExit as error:
        # rich, which prints the tables, raises this for a broken pipe.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return 0
    except BrokenPipeError:
        # The reader of the output closed it (`| head`): no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f" while writing {error.filename}" if error.filename else ""
            return _fail(f"The disk is full{where}. Free some space and try again.", EXIT_INPUT)
        if error.errno in _CLOSED and error.filename:
            why = f"{printable(str(error.filename), 200)}: {error.strerror}"
            return _fail(f"{why}. Name another file or folder, or change this one.", EXIT_INPUT)
        raise
    except (MemoryError, RuntimeError, ImportError) as error:
        if not _is_out_of_memory(error):
            raise
        return _fail(_MEMORY, EXIT_INPUT)
    finally:
        app.config = (read_values,)


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, on a GPU, on the CPU or while torch's libraries load."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
        or "failed to map segment" in str(error)
    )


def main() -> None:
    """Run the `filbert` command and exit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, for example by a service manager
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Lone surrogates in file names must not break the message that names them.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # SIGTERM ends a command as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.basicConfig(handlers=[_Lines()])
    logging.getLogger("filbert").setLevel(logging.INFO)
    if cpu_quota() is not None:
        # torch counts the cores without the quota; read when it is imported.
        os.environ.setdefault("OMP_NUM_THREADS", str(available_cores()))
    status = run(sys.argv[1:])
    if status == EXIT_INTERRUPTED:
        # A library's thread may still be at work, which aborts the process while Python ends.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


class _Lines(logging.Handler):
    """Prints the messages of the library on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, a warning in its colour."""
        from filbert.train.log import STYLES, print_line

        print_line(self.format(record), STYLES.get(record.levelname.lower(), ""))


def _fail(message: str, status: int) -> int:
    from filbert.train.log import print_line

    print_line(f"filbert: {message}")
    return status
