"""Rules of the source that a test can see: family names, public names, paths."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FAMILIES = ("roberta", "distilbert", "albert", "electra", "camembert", "mpnet", "modernbert")


def code_of(path: Path) -> str:
    """The file's identifiers and strings, without comments and docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value.value = ""
    return ast.unparse(tree).lower()


PUBLISHED = (
    "masking.py", "objective.py", "options.py", "schedule.py", "distill_options.py",
    "distill_text.py",
)  # fmt: skip


@pytest.mark.parametrize("room", ["model", "tasks", "train", "text", "data", "metrics", "report"])
def test_no_family_name_stands_outside_formats(room):
    for path in (ROOT / "src" / "filbert" / room).rglob("*.py"):
        # The name of a post-processor class of the tokenizers library is not ours to choose.
        code = code_of(path).replace("robertaprocessing", "")
        if path.name in PUBLISHED:
            # A published procedure is called after its paper, as users know it: the option's value.
            code = code.replace("'roberta'", "").replace("'electra'", "").replace("_electra", "")
            code = code.replace("'distilbert'", "")
        found = [family for family in FAMILIES if family in code]
        assert not found, f"{path.name} names {found}"


def test_the_public_names_are_exactly_these():
    import filbert

    assert set(filbert.__all__) == {
        "Comparison", "ConfigError", "EncoderConfig", "FilbertError", "FormatError", "InputError",
        "PackedBatch", "Predictor", "Run", "RunError", "Tokenizer", "bench", "check", "compare",
        "convert", "corpus", "distill", "embed", "evaluate", "explain", "export", "fill",
        "finetune", "info", "inspect", "load", "predict", "pretrain", "push", "replay", "score",
        "shrink", "tokenize", "vocab",
    }  # fmt: skip
    for name in filbert.__all__:
        assert getattr(filbert, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fine_tune'"):
        _ = filbert.fine_tune


def test_public_names_and_their_members_say_what_they_are_and_are_used_somewhere(public_members):
    import filbert

    assert {"Predictor", "Run", "Tokenizer"} <= set(public_members)
    places = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    text = "\n".join(path.read_text("utf-8") for path in places if path != Path(__file__))
    words, members = set(re.findall(r"\w+", text)), set(re.findall(r"\.(\w+)", text))
    for name in filbert.__all__:
        value = getattr(filbert, name)
        assert vars(value).get("__doc__") if isinstance(value, type) else value.__doc__, name
        assert name in words, f"no test and no page has {name}"
        for member in public_members.get(name, []):
            assert inspect.getdoc(inspect.getattr_static(value, member)), f"{name}.{member}"
            assert member in members, f"no test and no page has .{member} of {name}"


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        (
            "filbert.cli.main, filbert.text.tokenizer, filbert.data.texts, "
            "filbert.checkpoints.opening, filbert.report.run",
            {"torch", "matplotlib", "sklearn"},
        ),
        (
            "filbert.api, filbert.train.finetune, filbert.inference.predictor",
            {"transformers", "matplotlib", "sklearn", "scipy"},
        ),
    ],
)
def test_a_light_import_does_not_load_a_heavy_package(modules, forbidden):
    code = f"import sys, {modules}; print(*{forbidden} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_no_path_of_one_machine_and_no_package_host_is_written_down():
    pattern = re.compile(r"(^|[^A-Za-z0-9_.])/(work|root|farm|home)/|pypi\.org|pythonhosted")
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = []
    for name in files.stdout.splitlines():
        path = ROOT / name
        if (
            path.suffix in {".py", ".md", ".toml", ".sh", ""}
            and path != Path(__file__)
            and path.is_file()
        ):
            found += [
                name
                for line in path.read_text(errors="ignore").splitlines()
                if pattern.search(line)
            ]
    assert not found


def test_no_todo_is_left():
    left = [
        p.name
        for p in SOURCES
        if re.search(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError", p.read_text())
    ]
    assert not left


# Words for which the field has its own: reported, next to, reference, fix, throughput, provenance.
FOREIGN = re.compile(
    r"\b(anew|alike|nobody|somebody|whoever|mend|pace|told|tells?(?!\()|beside|stands|lies|"
    r"wish\w*|learnt|story|stories|rooms|shelf|shelves|desk|lessons?|judge\w*|(?<!no )room|"
    r"want of|will do|(?:is|are) wanted|wants|said|whom|houses?|doors?|sights?|lanes?|hears?|"
    r"promises?|lie|knows)\b",
    re.IGNORECASE,
)
MAX_FOREIGN_WORDS = 1  # a sentence of a customer, in quickstart


def test_the_source_uses_the_words_of_the_field():
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in SOURCES
        if path.name != "clean.py"  # its lists of stop words and emoji names hold some of them
        for match in FOREIGN.finditer(path.read_text("utf-8"))
    ]
    assert len(found) <= MAX_FOREIGN_WORDS, found


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Not a page that is read as a whole: its entries are older than this rule.
PAGES.remove(ROOT / "docs" / "log.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_the_words_of_the_field_and_short_sentences(page):
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", page.read_text("utf-8"), flags=re.M | re.S)
    # Tables, quotes and headings are no sentences; code and the aim of a link are no words.
    text = re.sub(r"^ *(\||#|>|!\[).*$", "\n", text, flags=re.M)
    text = re.sub(r"`[^`]*`|\"[^\"\n]*\"", "x", text)
    text = re.sub(r"\]\([^)]*\)", "", text)
    assert not FOREIGN.findall(text)
    items = re.split(r"\n\s*\n|^ *(?:[-*]|\d+\.) ", text, flags=re.M)
    sentences = [part.split() for item in items for part in re.split(r"[.!?]\W*\s", item)]
    lengths = [len(words) for words in sentences if len(words) > 2]
    assert sum(lengths) <= 25 * len(lengths), sum(lengths) / len(lengths)
