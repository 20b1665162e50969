"""Every command and every piece of Python in README.md and docs/ runs, in the order of its page.

A block of `bash` or `python` is run as it stands; of a `console`, what stands behind `$ `; a file
that a page shows is written (`<!-- file: own.toml -->` above it). Names in the text are those of
small stand-ins (conftest.py), long commands get less to do (SHORTER, MORE), addresses of the web
are files of the folder, and the Hub is tests/hub_server.py. Blocks under `<!-- needs Ray -->` run
where Ray is installed: `make test-ray`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock
from urllib.request import Request, urlopen

import pytest
from _pytest.mark import ParameterSet
from tests import hub_server

from filbert import samples
from filbert.cli.main import run
from filbert.inference.bulk import Unfinished

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Its blocks are quotes and sessions, which tests/docs/test_annotated_bert.py looks after.
ELSEWHERE = {"annotated-bert.md"}
ON_RAY = (
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="no Ray: make test-ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray Serve
)
# These pages show what real models give.
REAL = {
    "inspect.md": ("minilm", "filbert-mini"),
}

# What makes a command shorter: in every page, what is found and what stands in its place.
SHORTER = [
    (r"--size \d+", "--size 400"),
    (r"--time \w+", "--time 1s"),
    (r"--workers \d+", "--workers 1"),
    (r"(?<= )--(epochs|steps) [\d.]+", "--steps 2"),
    (r"--finetune-epochs \d+", "--finetune-epochs 1"),
    (r"--embedding-size \d+", "--embedding-size 12"),
    # What an untrained model loses says nothing.
    (r"--max-loss [\d.]+", "--max-loss 1"),
    (r"--data-root /data", "--data-root ."),
    (r"--nproc-per-node \d+", "--nproc-per-node 2"),
    (r"(benchmarks/feature_extraction.py .*)--rows \d+(.*)", r"\1--rows 40\2 --seeds 1 --epochs 1"),
    # Three contestants of each study.
    (r"(compare distil-toxic .*)", r"\1 --only minilm --only soft-3 --only soft-3-int8"),
    (r"(compare toxic-study .*)", r"\1 --only minilm --only bigru --only tfidf"),
]
# The same in a block of Python.
SHORTER_PYTHON = [
    (r"seconds=\d+", "seconds=0.1"),
    (r"num_replicas=\d+", "num_replicas=1"),
    (r'"num_cpus": \d+', '"num_cpus": 1'),
    (r'out="runs/few"', 'out="runs/few", steps=2'),
]
SMALL = {"steps": "2", "max-length": "32", "precision": "float32"}
NARROW = {"num-hidden-layers": "1", "hidden-size": "32", "num-attention-heads": "2"}
# What the models of filbert.lineage get, by their recipes.
LINEAGE = {"steps": "2", "batch-size": "8", "hidden-size": "32", "intermediate-size": "64"}
# Options that a verb gets where the page does not give them.
MORE: dict[str, dict[str, str]] = {
    "finetune": SMALL,
    "distill": SMALL | {"batch-size": "8"},
    "pretrain": {
        "steps": "2",
        "batch-size": "8",
        "max-length": "32",
        "dev-rows": "8",
        "precision": "float32",
    },
    "quickstart": {"steps": "2"},
    "compare": {"steps": "1", "seeds": "1", "resamples": "100", "max-length": "32"},
    "bench": {"seconds": "0.1", "model": "minilm"},
}


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    text: str
    mark: str

    @property
    def needs_ray(self) -> bool:
        return self.mark == "needs Ray"

    @property
    def is_file(self) -> bool:
        return self.mark.startswith("file: ")


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(
        r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?"
        r"(?P<pad> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=pad)```",
        text,
        re.MULTILINE | re.DOTALL,
    )
    return [
        Block(
            text[: m.start("language")].count("\n") + 1, m["language"], m["text"], m["mark"] or ""
        )
        for m in found
    ]


def commands_of(block: Block) -> list[str]:
    """The lines that a reader would type, each whole."""
    text = block.text.replace("\\\n", " ")
    lines = [line.rstrip() for line in text.splitlines()]
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    whole: list[str] = []
    ending = ""
    for line in lines:
        if ending:
            whole[-1] += f"\n{line}"
            ending = "" if line == ending else ending
        elif line and not line.startswith("#"):
            whole.append(line)
            here = re.search(r"<<-? *['\"]?(\w+)", line)
            ending = here[1] if here else "done" if line.startswith("for ") else ""
    return whole


def cut(line: str) -> str:
    for long, short in SHORTER:
        line = re.sub(long, short, line)
    return line


def shorter(line: str) -> str:
    """A command of filbert with less to do."""
    line = cut(line)
    verb = re.search(r"filbert (\S+)", line)[1]
    more = MORE.get(verb, {})
    if verb == "pretrain" and " --model " not in line:
        more = more | NARROW
    if "transformer-small" in line:
        more = {"dev-rows": "8"} | NARROW
    if re.search(r"pretrain (elmo|ulmfit|xlnet)", line):
        more = LINEAGE
    if " --time " in line:
        more = {name: value for name, value in more.items() if name != "steps"}
    line = re.sub(r"\s+#( .*)?$", "", line)
    given = "".join(f" --{name} {value}" for name, value in more.items() if f"--{name}" not in line)
    command, redirect, target = line.partition(" > ")
    return command + given + redirect + target


class Reader:
    """Somebody who follows a page, in a folder of stand-ins."""

    def __init__(self, folder: Path, environ: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.environ = environ
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.printed = ""
        self.port = 0

    def follow(self, block: Block) -> None:
        if block.is_file:
            place = self.folder / block.mark.removeprefix("file: ")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self.python(block)
        elif block.language in ("bash", "console"):
            for line in commands_of(block):
                self.type(line)

    def serve(self) -> None:
        """A server that the page takes for granted, and that somebody has already asked."""
        self.filbert("filbert serve minilm filbert-mini", "")
        body = json.dumps({"input": "one text"}).encode()
        address = f"http://127.0.0.1:{self.port}/v1/embeddings"
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(address, body, headers)) as answer:
            assert answer.status == 200

    def python(self, block: Block) -> None:
        text = self.here(block.text)
        for long, short in SHORTER_PYTHON:
            text = re.sub(long, short, text)
        code = compile(text, f"line {block.line}", "exec", dont_inherit=True)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        self.printed += out.getvalue()

    def here(self, text: str) -> str:
        """With the port on which this test's server listens."""
        return re.sub(r"\b8080\b", str(self.port), text) if self.port else text

    def type(self, line: str) -> None:
        """A line of a shell, which may be a pipe with filbert in it."""
        if re.match(r"(pip install|make|cd|source|python3 -m venv) ", line):
            return check_spoken(line)
        if "--install-completion" in line:
            self.environ.setenv("HOME", str(self.folder))
            self.environ.setenv("SHELL", "/bin/bash")
        if re.match(r"(torchrun|python|for) ", line):
            self.printed += self.bash(shorter(line) if "-m filbert " in line else cut(line))
            return None
        if re.match(r"export \w+=", line):
            name, value = line.removeprefix("export ").split("=", 1)
            return self.environ.setenv(name, self.bash(f"echo {value}").strip())
        setting = re.match(r"(\w+)=(\$\([^)]*\)|\S*) +(?=filbert )", line)
        if setting:
            self.environ.setenv(setting[1], self.bash(f"echo {setting[2]}").strip())
            line = line[setting.end() :]
        before, found, command = (
            line.rpartition("| filbert ") if "| filbert " in line else ("", "", line)
        )
        given = self.bash(before) if found else ""
        if found:
            command = f"filbert {command}"
        if not command.startswith("filbert "):
            self.printed += self.bash(command)
            return None
        command, pipe, behind = command.partition(" | ")
        out = self.filbert(shorter(command), given)
        self.printed += self.bash(behind, out) if pipe else out
        return None

    def filbert(self, line: str, given: str) -> str:
        words = shlex.split(line, comments=True)
        target = None
        if ">" in words:
            target, words = words[words.index(">") + 1], words[: words.index(">")]
        words = [word for word in words if word != "&"]
        self.environ.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8"))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if "--resume" in words:
                self.interrupt([*words[1:], "--overwrite"])
            status = run(words[1:])
        assert status == 0, f"{line}\n{err.getvalue()[-2000:]}"
        if target is None:
            return out.getvalue()
        (self.folder / target).write_text(out.getvalue(), encoding="utf-8")
        return ""

    def interrupt(self, words: list[str]) -> None:
        """The same command before, stopped by Ctrl-C after its last chunk."""
        with self.environ.context() as patched:
            patched.setattr(Unfinished, "finish", Mock(side_effect=KeyboardInterrupt))
            assert run([word for word in words if word != "--resume"]) == 130

    def bash(self, line: str, given: str = "") -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        line = re.sub(r"https://", f"file://{self.folder}/https:/", self.here(line))
        done = subprocess.run(
            ["bash", "-euc", line],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"},
            input=given,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
        return done.stdout


def check_spoken(line: str) -> None:
    """What is not run: that the extras and targets it names are there."""
    project, makefile = (ROOT / name for name in ("pyproject.toml", "Makefile"))
    if line.startswith("pip install"):
        for extra in re.findall(r"[\w-]+", "".join(re.findall(r"filbert\[([^]]*)\]", line))):
            assert re.search(rf"^{extra} = \[", project.read_text(), re.MULTILINE), line
    if line.startswith("make "):
        target = line.split()[1]
        assert re.search(rf"^{target}:", makefile.read_text(), re.MULTILINE), line


@pytest.fixture
def reader(tmp_path, monkeypatch, one_process, small_samples) -> Iterator[Callable[[Path], Reader]]:
    """Makes the reader of a page; a server that its page starts runs in this process."""
    import uvicorn

    from filbert.serve import app as serve_app

    path = samples.path
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []
    made: list[Reader] = []

    def stop() -> None:
        while servers:
            server, thread = servers.pop()
            server.should_exit = True
            thread.join(20)

    def serve(models, settings, model_settings) -> None:
        stop()
        app = serve_app.load_app(models, settings, model_settings)
        config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        made[0].port = server.servers[0].sockets[0].getsockname()[1]

    monkeypatch.setattr(serve_app, "run", serve)
    monkeypatch.setattr(samples, "path", lambda name: small_samples.get(name) or path(name))
    monkeypatch.chdir(tmp_path)

    def make(page: Path) -> Reader:
        made.append(Reader(tmp_path, monkeypatch))
        return made[0]

    with hub_server.running() as hub, hub_server.client(monkeypatch, hub, tmp_path / "hf"):
        monkeypatch.setenv("HF_TOKEN", "hf_writer")
        with one_process():
            yield make
        stop()


def lay(standins, page: Path, blocks: list[Block], folder: Path) -> None:
    """Put the files there that the page names, but for those that it makes itself."""
    # What a command prints names files that it has made.
    text = "\n".join(block.text for block in blocks if block.language != "text")
    for name, make in standins.items():
        place = folder / name
        own = re.search(rf"""(--out |out=["']){re.escape(name)}(?![\w-])""", text)
        named = re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", text)
        if named and not own and name not in REAL.get(page.name, ()):
            place.parent.mkdir(parents=True, exist_ok=True)
            make(place)


def cases() -> Iterator[ParameterSet]:
    """Each page without Ray, and those that need Ray whole."""
    for page in PAGES:
        blocks = [] if page.name in ELSEWHERE else blocks_of(page)
        rest = [block for block in blocks if not block.needs_ray]
        yield pytest.param(page, rest, id=page.name)
        if len(rest) < len(blocks):
            yield pytest.param(page, blocks, id=f"{page.name}-ray", marks=ON_RAY)


@pytest.mark.parametrize(("page", "blocks"), list(cases()))
def test_the_blocks_of_a_page_run(page, blocks, standins, reader, tmp_path):
    lay(standins, page, blocks, tmp_path)
    somebody = reader(page)
    text = "".join(block.text for block in blocks)
    if "8080" in text and "filbert serve" not in text:
        somebody.serve()
    # A page may show a file after the command that reads it.
    for block in sorted(blocks, key=lambda block: not block.is_file):
        somebody.follow(block)


def test_no_command_hides_in_a_block_without_a_language():
    for page in PAGES:
        for block in blocks_of(page):
            if block.language in ("", "text"):
                found = re.search(r"^(\$ |filbert |make |pip |torchrun )", block.text, re.MULTILINE)
                assert not found, f"{page.name}:{block.line} is bash, or a console"
