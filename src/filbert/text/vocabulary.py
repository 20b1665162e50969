"""Every vocabulary layout of the BERT family, read into one `tokenizers.Tokenizer`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from reprlib import repr as short
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from filbert.errors import FormatError, printable, unreadable_as
from filbert.files import MAX_JSON_BYTES, read_json
from filbert.text.spiece import PieceOrder, build_plain_unigram, build_unigram, parse_spiece

# Files

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# The largest published tokenizer.json has half of this.
MAX_BYTES = 64 * 2**20
_MAX_LINES = 4_000_000
LARGEST_ID = 2**31 - 1


@contextmanager
def damage_named(what: str | Path) -> Iterator[None]:
    """Convert exceptions of the `tokenizers` library about damaged files into a FormatError.

    It raises bare Exception, or PanicException, which is no Exception, from its Rust code.
    """
    try:
        yield
    except BaseException as error:
        known = (Exception, ValueError, OverflowError, TypeError, UnicodeEncodeError)
        if type(error) in known or type(error).__name__ == "PanicException":
            reason = printable(str(error), 200)
            raise FormatError(f"{what}: damaged ({reason}). Fetch the file again.") from error
        raise


def read_settings(path: Path, *, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file of at most `most` bytes; empty without the file."""
    return read_json(path, most=most) if path.is_file() else {}


def read_data(path: Path) -> bytes:
    """Return the content of a file, or raise a FormatError above MAX_BYTES."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise FormatError(f"{path} has {size:,} bytes; no tokenizer's {path.name} has so many.")
    return path.read_bytes()


def read_text(path: Path) -> str:
    """Return a UTF-8 file, without its byte order mark."""
    data = read_data(path)
    if path.suffix == ".txt" and data.count(b"\n") > _MAX_LINES:
        raise FormatError(f"{path} has more than {_MAX_LINES:,} lines, so it is no vocabulary.")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path}: byte {error.start} is not UTF-8. Fetch the file again."
        ) from error


def add_tokens(
    backend: Tokenizer, specials: list[AddedToken], folder: Path, settings: dict[str, Any]
) -> None:
    """Add the tokens that are found before a text is split: special ones, and those of the files.

    `added_tokens_decoder` of tokenizer_config.json (id: token with flags) takes precedence over
    added_tokens.json (token: id), and that over `specials`.

    Raises:
        FormatError: An entry that is no token, or an id that cannot be given to it.
    """
    tokens = {token.content: token for token in specials}
    ids: dict[str, Any] = read_settings(folder / "added_tokens.json")
    for content in ids:
        tokens.setdefault(content, AddedToken(content, normalized=False))
    try:
        for number, entry in settings.get("added_tokens_decoder", {}).items():
            text = entry["content"]
            tokens[text] = AddedToken(text, **{flag: entry.get(flag, False) for flag in _FLAGS})
            ids[text] = int(number)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{folder / 'tokenizer_config.json'}: damaged: added_tokens_decoder is not an object "
            f"of id: token ({printable(str(error))}). Fetch the file again."
        ) from error
    # The library gives ids in the order of adding; those without a stated id come last.
    known = {name: number for name, number in ids.items() if type(number) is int}
    order = sorted(tokens, key=lambda name: known.get(name, LARGEST_ID))
    for special, names in groupby(order, lambda name: tokens[name].special):
        adding = backend.add_special_tokens if special else backend.add_tokens
        adding([tokens[name] for name in names])
    for content, number in ids.items():
        given = backend.token_to_id(content)
        if type(number) is not int or given != number:
            raise FormatError(
                f"{folder}: the added token {printable(content)!r} has the id {short(number)}, but "
                f"the vocabulary's files give it {given}. They belong to different models, or a "
                "token is missing."
            )


# Limits on rules

# SentencePiece's own map needs 36, for an Arabic formula of one character.
MAX_GROWTH = 4096


def check_growth(backend: Tokenizer, path: Path) -> None:
    """Raise a FormatError for rules that can make a text, decoded or not, much longer."""
    growth = 1.0
    waiting = [
        json.loads(part.__getstate__())
        for part in (backend.normalizer, backend.pre_tokenizer, backend.decoder)
        if part is not None
    ]
    while waiting:
        rule = waiting.pop()
        if isinstance(rule, list | dict):
            waiting += rule if isinstance(rule, list) else rule.values()
        if isinstance(rule, dict):
            growth *= _growth_of(rule)
        if growth > MAX_GROWTH:
            raise FormatError(
                f"{path}: its rules can make a text more than {MAX_GROWTH:,} times as long, which "
                "would fill the memory."
            )


def _growth_of(rule: dict[str, Any]) -> float:
    kind = rule.get("type")
    if kind == "Replace":
        pattern = rule.get("pattern", {}).get("String")
        # A regular expression can match between any two characters, without removing one.
        size = len(rule["content"])
        return max(1.0, size / len(pattern) if pattern else size + 1)
    if kind == "Prepend":
        return 1.0 + len(rule["prepend"])
    if kind == "Precompiled":
        # A trie with its size in bytes (4 bytes, little-endian), and the texts it maps to, each
        # with a zero at its end. Source: google/sentencepiece, src/normalizer.cc.
        charsmap = base64.b64decode(rule["precompiled_charsmap"] or "")
        texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
        return float(max(1, max(map(len, texts))))
    return 2.0 if kind == "ByteLevel" else 1.0


# google-research/bert's normalization

# A word of more characters is unknown.
ORIGINAL_LONGEST_WORD = 200

_DROPPED = r"[\x00\uFFFD]|(?![\t\n\r])[\p{Cc}\p{Cf}]"
# Unicode 3.13, "Final_Sigma": behind a cased letter and before none, but for what has no case.
_CASED = r"[\p{Lu}\p{Ll}\p{Lt}]"
_IGNORED = (
    r"[\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:\u00B7\u2018\u2019\u2024\u2027\u0387\u055F\u05F4"
    r"\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A]"
)
_FINAL_SIGMA = rf"{_CASED}{_IGNORED}*\KΣ(?!{_IGNORED}*{_CASED})"
_LEFT_OUT = "[\U0002b820-\U0002b91f]"


def original_normalizer(lowercase: bool, strip_accents: bool | None, chinese: bool) -> Any:
    """Return what is applied before a text is split into words.

    `strip_accents` None: if it lower-cases. `chinese`: put blanks around Chinese characters.
    """
    steps: list[Any] = [normalizers.Replace(Regex(_DROPPED), "")]
    if lowercase:
        steps.append(normalizers.Replace(Regex(_FINAL_SIGMA), "ς"))
    steps.append(
        normalizers.BertNormalizer(
            clean_text=False,
            handle_chinese_chars=chinese,
            strip_accents=strip_accents,
            lowercase=lowercase,
        )
    )
    return normalizers.Sequence(steps)


# Layouts

# Hugging Face's limit. Google's own code has 200; a tokenizer.json has its own limit.
MAX_WORD_LENGTH = 100

# Longer "limits" are placeholders for "none": transformers writes 10**30, some folders 10**6.
LARGEST_MAX_LENGTH = 10**6 - 1

SURROGATE = re.compile("[\ud800-\udfff]")

# Hugging Face's class that takes tokenizer.json as it is. Other classes with BERT's normalizer
# have settings that take precedence: their names in the normalizer.
_GENERIC = "PreTrainedTokenizer"
_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

SPIECE_NAMES = ("spiece.model", "sentencepiece.bpe.model", "spm.model")

# Usual names of the special tokens, in the order in which they are tried.
SPECIAL_NAMES: dict[str, tuple[str, ...]] = {
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>", "<|endoftext|>"),
}


# A vocabulary with so many ids that belong to no entry, and more than half of them, is damaged.
LARGEST_HOLE = 10_000

_KINDS = {
    "WordPiece": "wordpiece",
    "BPE": "bytebpe",
    "Unigram": "unigram",
    "WordLevel": "symbols",
}


@dataclass(frozen=True)
class Convention:
    """What a family's classic files (vocab.txt and others) do not contain.

    Attributes:
        class_name: The class of transformers that reads those files, for tokenizer_config.json.
        specials: The special tokens by role (cls, sep, mask, pad, unk).
        double_separator: A pair is CLS A SEP SEP B SEP, all of token type 0, and the mask takes the
            space before it.
        cls_last: CLS, of a token type of its own, ends a sequence, and the mask takes the space
            before it (XLNet). Other tools have to pad on the left.
        order: How the pieces of a SentencePiece model become ids; None: in their order.
        unk_id: The one that the class requires, if any.
        file: Usual name of the SentencePiece model.
        is_exact: Whether that class of transformers 5 gives the ids of the model file.
    """

    class_name: str
    specials: Mapping[str, str] = field(default_factory=dict)
    double_separator: bool = False
    cls_last: bool = False
    order: PieceOrder | None = None
    unk_id: int | None = None
    file: str = "spiece.model"
    is_exact: bool = True


# Of a family that is not known.
NO_CONVENTION = Convention("", is_exact=False)


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer in a folder.

    Attributes:
        specials: The texts of cls, sep, mask, pad and unk, where the vocabulary has them.
        max_length: The limit in the folder's files, in tokens with special ones, or None.
        convention: The family's.
        spiece: Content of the SentencePiece model file in the folder.
    """

    backend: Tokenizer
    specials: dict[str, str]
    max_length: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    convention: Convention = NO_CONVENTION
    spiece: bytes | None = None

    @property
    def kind(self) -> str:
        """The algorithm: wordpiece, bytebpe, unigram or symbols."""
        return _KINDS[type(self.backend.model).__name__]

    @property
    def size(self) -> int:
        """One more than the largest id.

        Raises:
            FormatError: Far more ids than entries, with which tables would fill the memory.
        """
        ids = self.backend.get_vocab(with_added_tokens=True)
        size = 1 + max(ids.values())
        if size > 2 * len(ids) + LARGEST_HOLE:
            raise FormatError(
                f"The tokenizer has {len(ids)} entries, but ids up to {size - 1}. Its files are "
                "damaged; fetch them again."
            )
        return size

    def id_of(self, role: str) -> int | None:
        """Return the id of a special token by its role, such as "cls"."""
        return self.backend.token_to_id(self.specials[role]) if role in self.specials else None


@unreadable_as(FormatError)
def read_vocabulary(
    folder: Path, *, as_google: bool = False, convention: Convention = NO_CONVENTION
) -> Vocabulary:
    """Read tokenizer.json, else vocab.txt, vocab.json + merges.txt, or a SentencePiece model.

    The case is that of tokenizer.json, or else `do_lower_case` of tokenizer_config.json; without
    both, a vocabulary with no upper-case entry is lower-cased.

    Args:
        folder: The folder of the files, or the path of one of them.
        as_google: Read a vocab.txt as `original_normalizer` does. tokenizer.json has its own rules.
        convention: What the files leave open.

    Raises:
        FormatError: No known layout, or a file that is damaged or cannot be read.
    """
    file, read = _find_layout(folder)
    home = file.parent
    settings = read_settings(home / "special_tokens_map.json")
    settings |= read_settings(home / "tokenizer_config.json")
    stated = convention.specials.items()
    options: dict[str, Any] = {f"{role}_token": name for role, name in stated}
    options |= {**settings, "as_google": as_google}
    with damage_named(file):
        backend = read(file, options, convention)
        check_growth(backend, file)
    if not backend.get_vocab_size(with_added_tokens=True):
        raise FormatError(f"{file}: an empty vocabulary.")
    # Until 2020 every family had a file name of its own for it.
    files = [home / "sentence_bert_config.json", *sorted(home.glob("sentence_*_config.json"))]
    sentence = read_settings(next((path for path in files if path.is_file()), files[0]))
    if sentence.get("do_lower_case") is True and not lowercases(backend):
        # sentence-transformers lower-cases before the tokenizer, which then keeps its accents.
        steps = [normalizers.Lowercase(), *_steps(backend.normalizer)]
        backend.normalizer = normalizers.Sequence(steps)
    # tokenizer.json may truncate without notice (MiniLM's file: 128 tokens).
    backend.no_truncation()
    backend.no_padding()
    limit = sentence.get("max_seq_length") or settings.get("model_max_length")
    if not isinstance(limit, int | float) or not 0 < limit <= LARGEST_MAX_LENGTH:
        limit = None
    models = [file] if file.suffix == ".model" else [home / name for name in SPIECE_NAMES]
    return Vocabulary(
        backend,
        find_specials(lambda name: backend.token_to_id(name) is not None, options),
        None if limit is None else int(limit),
        settings,
        convention,
        spiece=next((read_data(path) for path in models if path.is_file()), None),
    )


def _find_layout(folder: Path) -> tuple[Path, _Reader]:
    """Return the file of a tokenizer and its reader."""
    path = Path(folder)
    if path.name == "vocab.json" and path.is_file():
        return path, _read_bytebpe
    for name, suffix, read in _LAYOUTS:
        if not path.is_file() and (path / name).is_file():
            return path / name, read
        if path.is_file() and path.name.endswith(suffix):
            return path, read
    raise FormatError(
        f"{folder}: no tokenizer here. Expected tokenizer.json, vocab.txt, vocab.json with "
        "merges.txt, spiece.model or sentencepiece.bpe.model."
    )


def find_specials(has: Callable[[str], bool], settings: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens of the vocabulary by role; names in `settings` take precedence."""
    specials = {}
    for role, names in SPECIAL_NAMES.items():
        stated = settings.get(f"{role}_token")
        stated = stated.get("content") if isinstance(stated, dict) else stated
        # The library takes no lone surrogates, and no token has one.
        if isinstance(stated, str) and not SURROGATE.search(stated):
            names = (stated, *names)
        present = [name for name in names if has(name)]
        if present:
            specials[role] = present[0]
    return specials


def lowercases(backend: Tokenizer) -> bool:
    """Return whether text is lower-cased before it is split into tokens."""
    return any(
        step.lowercase
        if isinstance(step, normalizers.BertNormalizer)
        else isinstance(step, normalizers.Lowercase)
        for step in _steps(backend.normalizer)
    )


def _is_lowercased(tokens: Iterable[str], options: dict[str, Any]) -> bool:
    """Return `do_lower_case`; without it, whether no token is cased, except specials as [CLS]."""
    if options.get("do_lower_case") is not None:
        return bool(options["do_lower_case"])
    return all(
        token == token.lower() or (token[:1] in "[<" and token[-1:] in "]>") for token in tokens
    )


def _steps(normalizer: Any) -> list[Any]:
    if normalizer is None:
        return []
    if not isinstance(normalizer, normalizers.Sequence):
        return [normalizer]
    return [normalizer[index] for index in range(len(normalizer))]


def _read_tokenizer_json(path: Path, options: dict[str, Any], convention: Convention) -> Tokenizer:
    text = read_text(path)
    backend = Tokenizer.from_str(text)
    if (kind := type(backend.model).__name__) not in _KINDS:
        raise FormatError(f"{path}: a {kind} tokenizer. filbert reads {', '.join(_KINDS)}.")
    normalizer = backend.normalizer
    stated = str(options.get("tokenizer_class") or _GENERIC)
    if isinstance(normalizer, normalizers.BertNormalizer) and not stated.startswith(_GENERIC):
        for key, name in _SETTINGS.items():
            if isinstance(options.get(key), bool):
                setattr(normalizer, name, options[key])
    return backend


def _read_wordpiece(path: Path, options: dict[str, Any], convention: Convention) -> Tokenizer:
    if options.get("word_tokenizer_type", "basic") != "basic":
        raise FormatError(
            f"{path.parent}: word_tokenizer_type is {short(options['word_tokenizer_type'])}; only "
            "basic is supported. Give a folder with a tokenizer.json."
        )
    # Not splitlines(): U+2028 is an entry of the Chinese vocabulary.
    lines = read_text(path).split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    # A repeated line keeps its last number, as in every reader of this format.
    ids = {line.rstrip("\r"): number for number, line in enumerate(lines)}
    lowercase = _is_lowercased(ids, options)
    names = find_specials(ids.__contains__, options)
    missing = [SPECIAL_NAMES[role][0] for role in ("cls", "sep", "unk") if role not in names]
    if missing:
        raise FormatError(
            f"{path}: no line for {', '.join(missing)}. This is not a BERT vocabulary; fetch "
            "the model's own."
        )
    longest = ORIGINAL_LONGEST_WORD if options["as_google"] else MAX_WORD_LENGTH
    model = models.WordPiece(ids, unk_token=names["unk"], max_input_chars_per_word=longest)
    backend = Tokenizer(model)
    chinese = options.get("tokenize_chinese_chars", True) is not False
    accents, words = options.get("strip_accents"), pre_tokenizers.BertPreTokenizer()
    backend.pre_tokenizer = words
    if options["as_google"]:
        backend.normalizer = original_normalizer(lowercase, accents, chinese)
        if chinese:
            left_out = pre_tokenizers.Split(Regex(_LEFT_OUT), "isolated")
            backend.pre_tokenizer = pre_tokenizers.Sequence([left_out, words])
    else:
        backend.normalizer = normalizers.BertNormalizer(
            handle_chinese_chars=chinese, strip_accents=accents, lowercase=lowercase
        )
    backend.decoder = decoders.WordPiece(prefix="##")
    add_tokens(backend, _specials(names, convention), path.parent, options)
    backend.post_processor = bert_template(backend, names, convention)
    return backend


def build_symbols(symbols: Iterable[str], names: dict[str, str]) -> Tokenizer:
    """Return a tokenizer whose entries are whole texts between white space, read as they are.

    `symbols` are the entries in the order of their ids; the special tokens are among them.
    """
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    backend = Tokenizer(models.WordLevel(ids, unk_token=names["unk"]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(_specials(names))
    backend.post_processor = bert_template(backend, names)
    return backend


def _read_bytebpe(path: Path, options: dict[str, Any], convention: Convention) -> Tokenizer:
    ids = read_settings(path, most=4 * MAX_JSON_BYTES)
    if not ids or any(type(n) is not int or not 0 <= n <= LARGEST_ID for n in ids.values()):
        raise FormatError(f"{path}: not a vocabulary; expected an object of token: number.")
    merges_path = path.parent / "merges.txt"
    if not merges_path.is_file():
        raise FormatError(f"{path.parent}: vocab.json without merges.txt. Both files are needed.")
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(read_text(merges_path).split("\n"), 1):
        # Only the version line is a comment: "# #" is a merge.
        if not line.strip("\r") or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.rstrip("\r").partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise FormatError(f"{merges_path}:{number}: not a merge of two tokens of vocab.json.")
        merges.append((left, right))
    prefix_space = options.get("add_prefix_space") is True
    backend = Tokenizer(models.BPE(ids, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    names = find_specials(ids.__contains__, options)
    # The mask takes the space before it, as in RoBERTa's own tokenizer.json.
    specials = [
        AddedToken(name, lstrip=role == "mask", normalized=True, special=True)
        for role, name in names.items()
    ]
    add_tokens(backend, specials, path.parent, options)
    names = find_specials(lambda name: backend.token_to_id(name) is not None, options)
    if "cls" in names and "sep" in names:
        known = backend.get_vocab(with_added_tokens=True)
        sep, cls = ((names[role], known[names[role]]) for role in ("sep", "cls"))
        backend.post_processor = processors.RobertaProcessing(sep, cls, True, prefix_space)
    else:
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
    return backend


def _read_unigram(path: Path, options: dict[str, Any], convention: Convention) -> Tokenizer:
    model = parse_spiece(read_data(path), path)
    order = convention.order
    if order is not None:
        extra = options.get("extra_ids")
        if isinstance(extra, int) and 0 <= extra < len(order.tail):
            order = replace(order, tail=order.tail[len(order.tail) - extra :])
        model = order.apply(model, path)
        backend = build_plain_unigram(model)
    elif path.name in SPIECE_NAMES[1:]:
        raise FormatError(
            f"{path}: the ids of its pieces are not recorded. A config.json with model_type or a "
            "tokenizer_config.json with tokenizer_class would; so would a tokenizer.json."
        )
    else:
        keeps_accents = options.get("keep_accents") is True
        lowercase = _is_lowercased((text for text, _ in model.pieces), options)
        backend = build_unigram(model, lowercase=lowercase, keep_accents=keeps_accents)
    names = find_specials({text for text, _ in model.pieces}.__contains__, options)
    add_tokens(backend, _specials(names, convention), path.parent, options)
    if "sep" in names:
        backend.post_processor = bert_template(backend, names, convention)
    return backend


_Reader = Callable[[Path, dict[str, Any], Convention], Tokenizer]
# The usual name of each layout's file, the end of other names, and the reader, in the order in
# which they are tried.
_LAYOUTS: tuple[tuple[str, str, _Reader], ...] = (
    ("tokenizer.json", ".json", _read_tokenizer_json),
    ("vocab.txt", ".txt", _read_wordpiece),
    ("vocab.json", "vocab.json", _read_bytebpe),
    *((name, ".model", _read_unigram) for name in SPIECE_NAMES),
)


def _specials(names: dict[str, str], convention: Convention = NO_CONVENTION) -> list[AddedToken]:
    strip = convention.double_separator or convention.cls_last
    return [
        AddedToken(name, lstrip=strip and role == "mask", normalized=False, special=True)
        for role, name in names.items()
    ]


def bert_template(
    backend: Tokenizer, names: dict[str, str], convention: Convention = NO_CONVENTION
) -> processors.TemplateProcessing:
    """Return CLS A SEP, or CLS A SEP B SEP with type 1 from B on. Devlin et al. 2019, figure 2.

    With a double separator: CLS A SEP SEP B SEP, all of type 0. Source: fairseq,
    roberta/hub_interface.py, encode. A vocabulary without CLS: A SEP B SEP, all of type 0. With CLS
    at the end: A SEP B SEP CLS, of types 0, 1 and 2. Source: zihangdai/xlnet, classifier_utils.py.
    """
    sep = names["sep"]
    if "cls" not in names:
        return processors.TemplateProcessing(
            single=["$A:0", f"{sep}:0"],
            pair=["$A:0", f"{sep}:0", "$B:0", f"{sep}:0"],
            special_tokens=[(sep, backend.token_to_id(sep))],
        )
    cls = names["cls"]
    pair = [f"{cls}:0", "$A:0", f"{sep}:0", "$B:1", f"{sep}:1"]
    if convention.double_separator:
        pair = [f"{cls}:0", "$A:0", f"{sep}:0", f"{sep}:0", "$B:0", f"{sep}:0"]
    single = pair[:3]
    if convention.cls_last:
        single, pair = ([*text, f"{cls}:2"] for text in (single[1:], pair[1:]))
    return processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(name, backend.token_to_id(name)) for name in (cls, sep)],
    )
