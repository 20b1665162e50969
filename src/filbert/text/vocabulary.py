"""Every vocabulary layout of the BERT family, read into one `tokenizers.Tokenizer`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as short
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from filbert.errors import FormatError, unreadable_as
from filbert.text.spiece import build_unigram, damage_named, read_spiece

# Hugging Face's limit. Google's own code cuts at 200 (RECIPES section 1); a tokenizer.json carries
# its own.
MAX_WORD_LENGTH = 100

# Longer "limits" are placeholders for "none": transformers writes 10**30, some folders 10**6.
LARGEST_MAX_LENGTH = 10**6 - 1

# What a special token is called, in the order in which names are tried.
SPECIAL_NAMES: dict[str, tuple[str, ...]] = {
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>", "<|endoftext|>"),
}


@dataclass(frozen=True)
class Vocabulary:
    """A folder's tokenizer as it was found.

    `specials` maps cls, sep, mask, pad and unk to the token's text where the vocabulary has it.
    `max_length` is the limit that the folder states, in tokens with specials, or None.
    `settings` is the content of tokenizer_config.json.
    """

    backend: Tokenizer
    specials: dict[str, str]
    max_length: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@unreadable_as(FormatError)
def read_vocabulary(
    folder: Path, *, lowercase: bool | None = None, max_word_length: int = MAX_WORD_LENGTH
) -> Vocabulary:
    """Read tokenizer.json, else vocab.txt, else vocab.json + merges.txt, else spiece.model.

    Args:
        folder: where the files lie; the path of one of those files itself will do.
        lowercase: overrides what the files say. Without it tokenizer.json, or else `do_lower_case`
            of tokenizer_config.json, decides; without both, a vocabulary with no upper-case entry
            lower-cases.
        max_word_length: a longer word becomes unknown, in characters. Used with vocab.txt alone;
            tokenizer.json states its own.

    Raises:
        FormatError: no known layout, or a file that is damaged or cannot be read.
    """
    path = Path(folder)
    chosen = path.name if path.is_file() else None
    home = path.parent if chosen else path
    if chosen:
        layouts = [
            layout for layout in _LAYOUTS if layout[0] == chosen or chosen.endswith(layout[1])
        ]
        layouts = sorted(layouts, key=lambda layout: layout[0] != chosen)[:1]
    else:
        layouts = [layout for layout in _LAYOUTS if (home / layout[0]).is_file()]
    if not layouts:
        raise FormatError(
            f"{folder}: no tokenizer here. "
            "Expected tokenizer.json, vocab.txt, vocab.json with merges.txt, or spiece.model."
        )
    name, _, read = layouts[0]
    settings = _settings(home)
    options = dict(settings)
    if lowercase is not None:
        options["do_lower_case"] = lowercase
    options["max_word_length"] = max_word_length
    with damage_named(home / (chosen or name)):
        backend = read(home / (chosen or name), options)
    if not backend.get_vocab_size(with_added_tokens=True):
        raise FormatError(f"{home / (chosen or name)}: an empty vocabulary.")
    sentence = _json(home / "sentence_bert_config.json")
    if lowercase is None and sentence.get("do_lower_case") is True:
        lowercase = True  # sentence-transformers lower-cases before its tokenizer does
    if lowercase is not None:
        set_lowercase(backend, lowercase)
    # Truncation and padding inside tokenizer.json cut texts without a word (MiniLM's file: 128
    # tokens).
    backend.no_truncation()
    backend.no_padding()
    limit = sentence.get("max_seq_length") or settings.get("model_max_length")
    if not isinstance(limit, int | float) or not 0 < limit <= LARGEST_MAX_LENGTH:
        limit = None
    specials = find_specials(lambda name: backend.token_to_id(name) is not None, settings)
    return Vocabulary(backend, specials, None if limit is None else int(limit), settings)


def find_specials(has: Callable[[str], bool], settings: dict[str, Any]) -> dict[str, str]:
    """The special tokens that the vocabulary holds, by role; names in `settings` go first."""
    found = {}
    for role, names in SPECIAL_NAMES.items():
        stated = settings.get(f"{role}_token")
        stated = stated.get("content") if isinstance(stated, dict) else stated
        present = [name for name in (stated, *names) if isinstance(name, str) and has(name)]
        if present:
            found[role] = present[0]
    return found


def set_lowercase(backend: Tokenizer, lowercase: bool) -> None:
    """Switch lower-casing on or off in place, whatever the layout.

    Without a stated `strip_accents`, BERT's normaliser strips accents exactly when it lower-cases.
    """
    normalizer = backend.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        normalizer.lowercase = lowercase
        return
    steps = _steps(normalizer)
    kept = [step for step in steps if not isinstance(step, normalizers.Lowercase)]
    if lowercase:
        # Before a compiled character map: its entries are written for lower-cased text.
        maps = [i for i, step in enumerate(kept) if isinstance(step, normalizers.Precompiled)]
        kept.insert(maps[0] if maps else len(kept), normalizers.Lowercase())
    if len(kept) != len(steps):
        backend.normalizer = normalizers.Sequence(kept) if kept else None


def lowercases(backend: Tokenizer) -> bool:
    """Whether text is lower-cased before it is cut into tokens."""
    normalizer = backend.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        return bool(normalizer.lowercase)
    return any(isinstance(step, normalizers.Lowercase) for step in _steps(normalizer))


def has_cased_entries(tokens: Iterable[str]) -> bool:
    """Whether a vocabulary was made for cased text. Specials such as [CLS] or <S> do not count."""
    return any(
        token != token.lower() and not (token[:1] in "[<" and token[-1:] in "]>")
        for token in tokens
    )


def _steps(normalizer: Any) -> list[Any]:
    if normalizer is None:
        return []
    if not isinstance(normalizer, normalizers.Sequence):
        return [normalizer]
    return [normalizer[index] for index in range(len(normalizer))]


def _read_tokenizer_json(path: Path, options: dict[str, Any]) -> Tokenizer:
    text = _text(path)
    backend = Tokenizer.from_str(text)
    if type(backend.model).__name__ not in ("WordPiece", "BPE", "Unigram"):
        raise FormatError(
            f"{path}: a {type(backend.model).__name__} tokenizer. "
            "filbert reads WordPiece, BPE and Unigram."
        )
    return backend


def _read_wordpiece(path: Path, options: dict[str, Any]) -> Tokenizer:
    # Not splitlines(): U+2028 is an entry of the Chinese vocabulary.
    lines = _text(path).split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    # A repeated line keeps its last number, as in every reader of this format.
    ids = {line.rstrip("\r"): number for number, line in enumerate(lines)}
    lowercase = options.get("do_lower_case")
    if lowercase is None:
        lowercase = not has_cased_entries(ids)
    names = find_specials(ids.__contains__, options)
    missing = [SPECIAL_NAMES[role][0] for role in ("cls", "sep", "unk") if role not in names]
    if missing:
        raise FormatError(
            f"{path}: no line for {', '.join(missing)}. This is not a BERT vocabulary."
        )
    model = models.WordPiece(
        ids, unk_token=names["unk"], max_input_chars_per_word=options["max_word_length"]
    )
    backend = Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=options.get("tokenize_chinese_chars", True) is not False,
        strip_accents=options.get("strip_accents"),
        lowercase=bool(lowercase),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in names.values()])
    backend.post_processor = _template(ids, names)
    return backend


def _read_bytebpe(path: Path, options: dict[str, Any]) -> Tokenizer:
    ids = _json(path)
    if not ids or not all(isinstance(number, int) for number in ids.values()):
        raise FormatError(f"{path}: not a vocabulary; expected an object of token: number.")
    merges_path = path.parent / "merges.txt"
    if not merges_path.is_file():
        raise FormatError(f"{path.parent}: vocab.json without merges.txt. Both files are needed.")
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(_text(merges_path).split("\n"), 1):
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
    # The mask takes the space before it, as RoBERTa's own tokenizer.json says.
    backend.add_special_tokens(
        [
            AddedToken(name, lstrip=role == "mask", normalized=True)
            for role, name in sorted(names.items(), key=lambda item: ids[item[1]])
        ]
    )
    if "cls" in names and "sep" in names:
        sep, cls = (names["sep"], ids[names["sep"]]), (names["cls"], ids[names["cls"]])
        backend.post_processor = processors.RobertaProcessing(sep, cls, True, prefix_space)
    else:
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
    return backend


def _read_unigram(path: Path, options: dict[str, Any]) -> Tokenizer:
    model = read_spiece(path)
    ids = {text: number for number, (text, _) in enumerate(model.pieces)}
    lowercase = options.get("do_lower_case")
    if lowercase is None:
        lowercase = not has_cased_entries(ids)
    backend = build_unigram(
        model, lowercase=bool(lowercase), keep_accents=options.get("keep_accents") is True
    )
    names = find_specials(ids.__contains__, options)
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in names.values()])
    if "cls" in names and "sep" in names:
        backend.post_processor = _template(ids, names)
    return backend


_LAYOUTS: tuple[tuple[str, str, Callable[[Path, dict[str, Any]], Tokenizer]], ...] = (
    ("tokenizer.json", ".json", _read_tokenizer_json),
    ("vocab.txt", ".txt", _read_wordpiece),
    ("vocab.json", "vocab.json", _read_bytebpe),
    ("spiece.model", ".model", _read_unigram),
)


def _template(ids: dict[str, int], names: dict[str, str]) -> processors.TemplateProcessing:
    """CLS A SEP, or CLS A SEP B SEP with token type 1 from B on. Devlin et al. 2019, figure 2."""
    cls, sep = names["cls"], names["sep"]
    return processors.TemplateProcessing(
        single=[f"{cls}:0", "$A:0", f"{sep}:0"],
        pair=[f"{cls}:0", "$A:0", f"{sep}:0", "$B:1", f"{sep}:1"],
        special_tokens=[(cls, ids[cls]), (sep, ids[sep])],
    )


_SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")


def _settings(folder: Path) -> dict[str, Any]:
    settings = _json(folder / "special_tokens_map.json")
    path = folder / "tokenizer_config.json"
    settings.update(_json(path))
    for key in _SWITCHES:
        if not isinstance(settings.get(key), bool | None):
            raise FormatError(f"{path}: {key} is {short(settings[key])}; it must be true or false.")
    return settings


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: broken JSON: {error}.") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: expected a JSON object.")
    return content


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: byte {error.start} is not UTF-8.") from error
