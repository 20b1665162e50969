"""Which tokenizer a folder's family has: what the classic files leave unsaid, as tables.

Sources: transformers 5, models/*/tokenization_*.py and convert_slow_tokenizer.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from filbert.checkpoints.families import CAUSAL_TYPE
from filbert.errors import FormatError, unreadable_as
from filbert.text.spiece import Convention, PieceOrder, read_json
from filbert.text.tokenizer import Tokenizer

_BRACKETS = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]", "unk": "[UNK]"}
_ANGLES = {"cls": "<s>", "sep": "</s>", "mask": "<mask>", "pad": "<pad>", "unk": "<unk>"}

# fairseq puts its own first tokens before the pieces; "NOTUSED" are entries of its dictionary that
# CamemBERT's training never met, because the pieces hold <s> and </s> once more.
_FAIRSEQ = PieceOrder(
    skipped=("<unk>", "<s>", "</s>"),
    head=(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
    tail=("<mask>",),
    unknown="<unk>",
)
_FAIRSEQ_TWICE = PieceOrder(
    skipped=("<unk>",),
    head=(
        ("<s>NOTUSED", 0.0),
        ("<pad>", 0.0),
        ("</s>NOTUSED", 0.0),
        ("<unk>", 0.0),
        ("<unk>NOTUSED", -100.0),
    ),
    tail=("<mask>",),
    unknown="<unk>",
)

# By the class that tokenizer_config.json names, without "Fast".
CONVENTIONS: dict[str, Convention] = {
    convention.class_name: convention
    for convention in (
        Convention("BertTokenizer", _BRACKETS),
        Convention("DistilBertTokenizer", _BRACKETS),
        Convention("ElectraTokenizer", _BRACKETS),
        Convention("MPNetTokenizer", {**_ANGLES, "unk": "[UNK]"}, double_separator=True),
        Convention("RobertaTokenizer", _ANGLES, double_separator=True),
        Convention("AlbertTokenizer", {**_BRACKETS, "pad": "<pad>", "unk": "<unk>"}, unk_id=1),
        Convention("XLMRobertaTokenizer", _ANGLES, double_separator=True, order=_FAIRSEQ),
        Convention("CamembertTokenizer", _ANGLES, double_separator=True, order=_FAIRSEQ_TWICE),
    )
}

# By config.json's model_type, for folders that name no class.
_CLASSES = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "albert": "AlbertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
}

# Classes that do in Python what no vocabulary file says, before it is used.
_PYTHON_ONLY = {
    "BertJapaneseTokenizer": "cuts Japanese into words with MeCab or Sudachi",
    "BertweetTokenizer": "rewrites tweets and numbers pieces by a dictionary of its own",
    "PhobertTokenizer": "expects segmented Vietnamese and a dictionary of its own",
    "RoCBertTokenizer": "looks up shapes and sounds of Chinese characters",
    "HerbertTokenizer": "cuts Polish words by rules of its own",
}


@unreadable_as(FormatError)
def convention_of(
    folder: Path,
    model_type: str | None = None,
    config: Callable[[], dict[str, Any] | None] | None = None,
) -> Convention | None:
    """The convention of the tokenizer in a folder, or None where nothing tells.

    Args:
        folder: tokenizer_config.json in it goes first.
        model_type: the family, if it is known from elsewhere; else from config.json in the folder.
        config: returns the content of config.json, if that was parsed already.

    Raises:
        FormatError: a tokenizer that does more than its files say, or a damaged file.
    """
    name = read_json(folder / "tokenizer_config.json").get("tokenizer_class")
    name = name.removesuffix("Fast") if isinstance(name, str) else None
    if name in _PYTHON_ONLY and not (folder / "tokenizer.json").is_file():
        raise FormatError(
            f"{folder}: its {name} {_PYTHON_ONLY[name]}, which filbert does not. Save its "
            "tokenizer.json beside it where there is one, or choose another model."
        )
    if name in CONVENTIONS:
        return CONVENTIONS[name]
    raw = (config() if config else read_json(folder / "config.json")) or {}
    stated = model_type or raw.get("model_type")
    if not isinstance(stated, str):
        return None
    return CONVENTIONS.get(_CLASSES.get(stated.removeprefix(CAUSAL_TYPE), ""))


def read_tokenizer(
    folder: Path,
    *,
    model_type: str | None = None,
    lowercase: bool | None = None,
    as_google: bool = False,
    config: Callable[[], dict[str, Any] | None] | None = None,
) -> Tokenizer:
    """The tokenizer in a folder, or in one of its files, by the conventions of its family.

    Raises:
        FormatError: none in a known layout, or a file that is damaged.
    """
    home = folder.parent if folder.is_file() else folder
    return Tokenizer.load(
        folder,
        lowercase=lowercase,
        as_google=as_google,
        convention=convention_of(home, model_type, config),
    )
