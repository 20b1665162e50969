"""The pages of the site that no file of docs/ holds; mkdocs runs this at build time.

They are the front page (README.md), the files of the root that pages link to, every option of every
verb, the recipes with what their keys mean, and the signatures of the Python reference. All of them
are read from the source: whatever says what an option does says it once.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import FunctionType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts.argument import Argument
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

import filbert
import filbert.sklearn
from filbert.cli.main import GROUPS, RECIPE_OPTIONS, SUBCOMMANDS, app, command_app
from filbert.recipes import built_in, read_recipe
from filbert.train.options import keys_of_tables

ROOT = Path(__file__).parents[1]
# What becomes a page under another name; links to it go there.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# A link to a file: not to another site, nor to a part of the same page.
LINK = re.compile(r"\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?:#(?P<part>[^)\s]+))?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the navigation: the pages of verbs at `options/`, the files that a `*` means."""
    for section in config.nav or []:
        for name, items in section.items():
            section[name] = [found for item in items for found in _found(item, config.docs_dir)]
    config.watch.extend([str(ROOT / name) for name in (*PAGES, "src/filbert")])
    return config


def _found(item: Any, docs: str) -> list[Any]:
    if isinstance(item, str) and "*" in item:
        return sorted(path.name for path in Path(docs).glob(item))
    if isinstance(item, dict) and "options/" in item.values():
        pages = [
            {title: [f"options/{file_of(name)}" for name in names]}
            for title, names in verbs().items()
        ]
        return [dict.fromkeys(item, ["options/index.md", *pages])]
    return [item]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    texts = {
        f.src_uri: f.content_string
        for f in files
        if f.src_uri.endswith(".md") and "/" not in f.src_uri
    }
    made = {}
    for path, name in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        made[name] = LINK.sub(_from_docs, text)
    for text in (*texts.values(), *made.values()):
        for link in LINK.finditer(text):
            path = _outside(link["path"])
            if path is not None and path not in PAGES:
                made[f"source/{path}.md"] = source_page(path)
    for name in (name for names in verbs().values() for name in names):
        made[f"options/{file_of(name)}"] = options_page(name)
    made["options/index.md"] = verbs_page()
    made["recipes.md"] = recipes_page()
    made["icon.svg"] = (Path(filbert.__file__).with_name("theme") / "icon.svg").read_text("utf-8")
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files that are no part of the site to their pages here; add search words."""
    words = config.extra["synonyms"].get(page.file.src_uri.removesuffix(".md"), "")
    page.meta["tags"] = words.split(", ")
    if page.file.src_uri == "python.md":
        markdown = with_signatures(markdown)
    return LINK.sub(_inside, markdown) if "/" not in page.file.src_uri else markdown


def _outside(path: str) -> str | None:
    """The file that a page of docs/ links to, from the root; None if the site has it as it is."""
    place = Path(os.path.normpath(Path("docs") / path))
    if place.is_relative_to("docs") and place.suffix != ".py":
        return None
    return place.as_posix() if (ROOT / place).is_file() else None


def _inside(link: re.Match[str]) -> str:
    path = _outside(link["path"])
    if path is None:
        return link[0]
    if path in PAGES:
        return f"]({PAGES[path]}{'#' + link['part'] if link['part'] else ''})"
    line = re.match(r"L(\d+)", link["part"] or "")
    return f"](source/{path}.md{f'#L-{line[1]}' if line else ''})"


def _from_docs(link: re.Match[str]) -> str:
    path = link["path"]
    seen = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
    return f"]({seen}{'#' + link['part'] if link['part'] else ''})"


def source_page(path: str) -> str:
    """A file of the repository, with numbered lines; the search leaves it out."""
    code = (ROOT / path).read_text(encoding="utf-8")
    lexer = get_lexer_for_filename(path, stripnl=False)
    shape = {"linenos": "inline", "lineanchors": "L", "wrapcode": True}
    lines = highlight(code, lexer, HtmlFormatter(cssclass="highlight", **shape))
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n{lines}\n"


# Options


class Verb:
    """A verb as the command line knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.app = command_app(name.split())

    @cached_property
    def groups(self) -> dict[str, list[Argument]]:
        """What can be given, in the groups and the order of `--help-all`."""
        groups: dict[str, list[Argument]] = {"Arguments": []}
        for level in (self.app, app.meta):
            for argument in level.assemble_argument_collection(
                default_parameter=app.default_parameter, parse_docstring=True
            ):
                if argument.show:
                    (group,) = argument.parameter.group
                    groups.setdefault(group.name, []).append(argument)
        return {title: arguments for title, arguments in groups.items() if arguments}

    @property
    def says(self) -> list[str]:
        """The paragraphs of its help, without those on parameters."""
        return inspect.cleandoc(self.app.help).split("\nParameters\n")[0].strip().split("\n\n")


def verbs() -> dict[str, list[str]]:
    """Names of all verbs and subcommands, as typed, by the groups of `filbert --help`."""
    return {
        title: [
            name.replace("_", "-")
            for verb in members
            for name in (verb, *(f"{verb} {below}" for below in SUBCOMMANDS.get(verb, ())))
        ]
        for title, members in GROUPS.items()
    }


def file_of(name: str) -> str:
    """The page of a verb or subcommand."""
    return f"{name.replace(' ', '-')}.md"


def verbs_page() -> str:
    """All verbs, a table for each group."""
    parts = [
        "# Every option\n\nWhat each verb takes, from its own definitions, in the order of "
        "`filbert VERB --help-all`. All options can also be in a TOML file, given with "
        "`--recipe FILE`; flags take precedence."
    ]
    for title, names in verbs().items():
        rows = [(f"[`{name}`]({file_of(name)})", _cell(Verb(name).says[0])) for name in names]
        parts.append(f"## {title}\n\n" + _table(("verb", "what it does"), rows))
    return "\n\n".join(parts)


def options_page(name: str) -> str:
    """All options of a verb, each with an anchor, in the groups of its help."""
    verb = Verb(name)
    required = [one for arguments in verb.groups.values() for one in arguments if one.required]
    usage = " ".join(
        names_of(one)[0] + ("" if one.index is not None else f" {type_of(one.hint)}")
        for one in required
    )
    about = "\n\n".join(verb.says)
    usage = f"filbert {name} {usage} [OPTIONS]".replace("  ", " ")
    parts = [f"# filbert {name}\n\n{about}\n\n```text\n{usage}\n```"]
    for title, arguments in verb.groups.items():
        parts += [f"## {title}", *map(option, arguments)]
    return "\n\n".join(parts) + "\n"


def option(argument: Argument) -> str:
    """A term with its anchor, type and default, and what it says."""
    name, *others = names_of(argument)
    anchor = name.lstrip("-")
    term = ", ".join([f"[`{name}`](#{anchor}){{ #{anchor} }}", *(f"`{other}`" for other in others)])
    facts = "".join(f" · {fact}" for fact in (type_of(argument.hint), default_of(argument)) if fact)
    says = re.sub(
        r"\bdocs/([\w-]+\.md)", r"[\1](../\1)", _cell(argument.parameter.help or "Not described.")
    )
    return f"{term}{facts}\n\n:   {says}"


def names_of(argument: Argument) -> list[str]:
    """What is typed for it: its name first, then other forms and the way to turn it off."""
    if argument.index is not None:
        return [argument.name.lstrip("-").upper()]
    return list(argument.names)


def type_of(hint: Any) -> str:
    """A type, or the choices, as a reader of help texts knows them."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(type_of(one) for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    if get_origin(hint) in (tuple, list):
        return f"{type_of(get_args(hint)[0])} ..."
    return {bool: "flag", str: "text", int: "integer", float: "number", Path: "path"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )


def default_of(argument: Argument) -> str:
    """The value of an option that is not given; "required" where there is none."""
    value = argument.field_info.default
    if argument.required:
        return "required"
    if value is inspect.Parameter.empty or value is None or value == () or value is False:
        return ""
    text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    return "default on" if value is True else f"default `{text}`" if text else ""


# Recipes


def recipes_page() -> str:
    """The recipes that come along, whole and key by key."""
    parts = [
        "# Recipes\n\nThe files that come with filbert, whole, and what each of their keys says. "
        "A name stands for the file: `filbert pretrain mini-cpu`. To change one, copy it and give "
        "the path of the copy instead."
    ]
    for verb, path in ((v, p) for v in ("pretrain", "distill", "compare") for p in built_in(v)):
        helps = key_helps(verb)
        text = path.read_text(encoding="utf-8")
        # A key that no option explains is a mistake, and stops the building.
        rows = [
            (f"`{key}`", f"`{value}`", _cell(helps[key]))
            for key, value in _options_of(read_recipe(path), verb).items()
            if key != "contestants"
        ]
        part = f"## {path.stem}\n\n```toml\n{text}```\n\n"
        part += _table(("key", "value", "what it says"), rows)
        if verb == "compare":
            part += "\n\nThe keys of a contestant: [compare](compare.md#the-recipe).\n"
        parts.append(part)
    return "\n\n".join(parts)


def _options_of(recipe: dict[str, Any], verb: str) -> dict[str, Any]:
    """The options of a recipe by flat name."""
    if verb not in RECIPE_OPTIONS:
        return recipe
    module, name = RECIPE_OPTIONS[verb]
    return keys_of_tables(recipe, getattr(import_module(module), name))[0]


def key_helps(verb: str) -> dict[str, str]:
    """What the options of a verb say, by the keys that a recipe has for them."""
    return {
        flag.lstrip("-").replace("-", "_"): argument.parameter.help or ""
        for arguments in Verb(verb).groups.values()
        for argument in arguments
        for flag in argument.names
    }


# Python


def with_signatures(markdown: str) -> str:
    """Put signature and docstring below each heading that is a public name, and its members."""
    first, *parts = re.split(r"^### (\w+)\n\n?", markdown, flags=re.MULTILINE)
    pages = [first]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        value = getattr(filbert if name in filbert.__all__ else filbert.sklearn, name)
        example, end, rest = text.partition("\n## ")
        pages.append(f"### {name}\n\n{about(name, value)}\n\n{example}")
        if inspect.isclass(value) and not issubclass(value, Exception):
            pages += [
                f"\n\n#### {name}.{member}\n\n{about(member, found)}"
                for member, found in members_of(value)
            ]
        pages.append(f"\n\n{end}{rest}")
    return "".join(pages)


def members_of(value: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class, in the order of the source."""
    for name, member in vars(value).items():
        if not name.startswith("_") and inspect.getdoc(member):
            if isinstance(member, (FunctionType, classmethod, staticmethod)):
                yield name, getattr(value, name)
            elif isinstance(member, (property, cached_property)):
                yield name, member


def about(name: str, value: Any) -> str:
    """Signature and docstring."""
    if inspect.isclass(value) and issubclass(value, Exception):
        bases = ", ".join(base.__name__ for base in value.__bases__)
        return f"```python\nclass {name}({bases})\n```\n\n{docstring(value)}"
    if isinstance(value, (property, cached_property)):
        get = value.fget if isinstance(value, property) else value.func
        gives = inspect.signature(get).return_annotation  # type: ignore[arg-type]
        return f"```python\n{name}: {gives}\n```\n\n{docstring(value)}"
    start = f"class {name}" if inspect.isclass(value) else f"def {name}"
    return f"```{{ .python .signature }}\n{start}{signature(value)}\n```\n\n{docstring(value)}"


def signature(value: Any) -> str:
    """As it would be written: on one line, or one line a parameter."""
    found = inspect.signature(value)
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    found = found.replace(parameters=parameters)
    if inspect.isclass(value):
        found = found.replace(return_annotation=inspect.Signature.empty)
    # Annotations are strings here, since the source has `from __future__ import annotations`.
    line = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(found))
    if len(line) < 80:
        return line
    star = False
    lines = ["("]
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not star:
            lines.append("    *,")
        star = star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        lines.append("    " + re.sub(r": '([^']*)'", r": \1", str(one)) + ",")
    return "\n".join([*lines, ")" + line.rpartition(")")[2]])


def docstring(value: Any) -> str:
    """A docstring with its sections (Args, Returns, Raises ...) as lists."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\n(?=\S)", inspect.getdoc(value) or ""):
        head, _, rest = paragraph.partition("\n")
        if re.fullmatch(r"[A-Z]\w+:", head) and rest.startswith("    "):
            parts.append(f"*{head[:-1]}*\n\n" + _section(dedent(rest)))
        else:
            parts.append(_cell(paragraph))
    text = "\n\n".join(parts)
    # Pages are linked, verbs lead to their options, methods of a Predictor to their place here.
    text = re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", text)
    text = re.sub(r"`filbert ([\w-]+)`", r"[`filbert \1`](options/\1.md)", text)
    return re.sub(r"`(Predictor)\.(\w+)`", r"[`\1.\2`](#predictor\2)", text)


def _section(text: str) -> str:
    """`name: what it is` a line, as a list; anything else as it is."""
    entries = re.split(r"\n(?=\S)", text)
    named = [re.match(r"([\w, *]+): (.*)", entry, re.DOTALL) for entry in entries]
    if not all(named):
        return _cell(text)
    return "\n".join(f"* `{m[1]}`: {_cell(m[2])}" for m in named if m)


def _cell(text: str) -> str:
    """A text from the source, in one line of Markdown."""
    plain = re.sub(r"\s+", " ", text).strip()
    outside = re.split(r"(`[^`]*`)", plain)
    outside[::2] = [re.sub(r"([*<|\[\]])", r"\\\1", part) for part in outside[::2]]
    return "".join(outside)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
