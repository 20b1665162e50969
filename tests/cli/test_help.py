"""`filbert` and every `--help` fit into 80 columns, and leave no option without a word."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from filbert.cli.help import examples_of
from filbert.cli.main import GROUPS, SUBCOMMANDS, VERBS, command_app, run

NAMES = list(VERBS)
BELOW = [f"{verb} {name}" for verb, names in SUBCOMMANDS.items() for name in names]


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def printed(*arguments: str) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        assert run(arguments) == 0
    return stream.getvalue()


def test_filbert_alone_lists_every_command_with_what_it_does():
    text = printed()
    assert text == printed("--help")
    for name in NAMES:
        assert re.search(rf"^│ {name} +[A-Z]", text, re.MULTILINE), name
    for name in SUBCOMMANDS["inspect"]:
        assert re.search(rf"^│ {name} +[A-Z]", printed("inspect", "--help"), re.MULTILINE), name
    titles = re.findall(r"^╭─ (.+?) ─", text, re.MULTILINE)
    assert titles == [*GROUPS, "Help", "Every command"], "in the order of a life with filbert"


@pytest.mark.parametrize("name", [*NAMES, *BELOW])
def test_a_help_page_explains_each_option(name):
    command = command_app(name.split())
    page = printed(*name.split(), "--help-all")
    assert not re.search(r"--(data|train|dev|test|out|model|tokenizer|recipe) (STR|PATH)", page)
    for argument in command.assemble_argument_collection(parse_docstring=True):
        if argument.show and argument.parse:
            text = argument.parameter.help
            assert text, argument.name
            has_default = argument.field_info.default not in (None, (), argument.field_info.empty)
            assert not (has_default and "when not given" in text), argument.name


@pytest.mark.parametrize("verb", NAMES)
def test_a_help_page_ends_with_commands_that_are_understood(verb):
    examples = examples_of(verb)
    assert printed(verb, "--help").splitlines()[-len(examples) :] == [f"  {e}" for e in examples]
    for example in examples:
        words = shlex.split(example.partition(f"filbert {verb}")[2].removeprefix(" mini-cpu"))
        path = [verb, *(word for word in words[:1] if word in SUBCOMMANDS.get(verb, ()))]
        command_app(path).parse_args(words[len(path) - 1 :], exit_on_error=False)
        assert len(example) <= 78


def completion(shell: str, out: Path) -> str:
    assert "Wrote" in printed("--install-completion", "--shell", shell, "--out", str(out))
    return out.read_text()


def test_bash_completes_commands_and_options_and_leaves_file_names_to_itself(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    script = tmp_path / "completion.bash"
    completion("bash", script)
    ask = "COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=(); _filbert; "
    answers = {
        "filbert fine": "finetune",
        "filbert predict --max-l": "--max-length",
        # Nothing of ours: bash goes on with the names of files.
        "filbert predict run": "",
        "filbert finetune --train tr": "",
    }
    questions = "".join(ask.format(words=words) + 'echo "${COMPREPLY[*]}"; ' for words in answers)
    done = subprocess.run(
        [bash, "-c", f'source "{script}"; {questions} complete -p filbert'],
        capture_output=True,
        text=True,
        check=False,
    )
    *given, how = done.stdout.splitlines()
    for words, expected, line in zip(answers, answers.values(), given, strict=True):
        assert expected in line if expected else not line, (words, line, done.stderr)
    assert "-o default" in how
