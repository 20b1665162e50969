"""`filbert` and every `--help` fit into 80 columns, and leave no option without a word."""

import contextlib
import io
import re
import shutil
import subprocess
import sys

import pytest

from filbert.cli.main import VERBS, app, run

NAMES = [verb.replace("_", "-") for verb in VERBS]


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
        assert re.search(rf"^│ {name} +\S+", text, re.MULTILINE), name
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_a_help_page_fits_and_explains_each_option(name):
    text = printed(name, "--help")
    assert max(map(len, text.splitlines())) <= 80
    # A dash at the beginning of a line would come out as a list; a default of False says nothing.
    assert not re.search(r"[•`]|default:\s+(│\s+│\s+)?(False|\(\))", text)
    assert "…" not in text, "nothing is cut off"
    for argument in app[name].assemble_argument_collection(parse_docstring=True):
        if argument.show and argument.parse:
            assert argument.parameter.help, argument.name
    assert app[name].help.strip().splitlines()[0].rstrip().endswith((".", "?", "]")), "one sentence"


def test_long_lists_of_options_come_in_sections():
    titles = re.findall(r"^╭─ (.+?) ─", printed("finetune", "--help"), re.MULTILINE)
    assert titles == ["Parameters", "Training", "What the task reads and learns", "Columns"]
    first = printed("finetune", "--help").split("╭─ Training")[0]
    for name in ("--task", "--model", "--train", "--out", "--dev", "--resume"):
        assert name in first


def test_completion_works_in_bash(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    script = tmp_path / "completion.bash"
    assert run(["--install-completion", "--shell", "bash", "--output", str(script)]) == 0
    ask = (
        f'source "{script}"; COMP_WORDS=({{words}}); COMP_CWORD=$((${{{{#COMP_WORDS[@]}}}} - 1)); '
        "COMPREPLY=(); _filbert; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    for words, expected in (
        ("filbert fine", "finetune"),
        ("filbert predict --max-l", "--max-length"),
    ):
        done = subprocess.run(
            [bash, "-c", ask.format(words=words)], capture_output=True, text=True, check=False
        )
        assert expected in done.stdout.split(), (done.stdout, done.stderr)


def test_doctor_fits_into_eighty_columns():
    text = printed("doctor")
    assert max(map(len, text.splitlines())) <= 80
    assert "bf16" in text and "…" not in text


def test_importing_filbert_gives_no_warning_and_takes_no_torch():
    code = "import sys, filbert; assert 'torch' not in sys.modules; print(sorted(filbert.__all__))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
