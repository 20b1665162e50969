from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.errors import FormatError
from filbert.protobuf import encode_field
from filbert.text.spiece import (
    PieceOrder,
    SentencePieceModel,
    build_plain_unigram,
    build_unigram,
    parse_spiece,
    write_spiece,
)

PATH = Path("some.model")
ORDER = PieceOrder(
    skipped=("<unk>", "<s>"),
    head=(("<s>", 0.0), ("<pad>", 0.0), ("<unk>", 0.0)),
    tail=("<mask>",),
    unknown="<unk>",
)


scores = st.floats(-50, 0, width=32)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
models = st.dictionaries(texts, scores, min_size=1, max_size=30).flatmap(
    lambda pieces: st.builds(
        SentencePieceModel,
        st.just(tuple(pieces.items())),
        st.integers(0, len(pieces) - 1),
        st.sampled_from([b"", struct.pack("<I", 4) + b"abcdef"]),
    )
)


@settings(deadline=None)
@given(models)
def test_what_is_written_is_read_again(model):
    assert parse_spiece(write_spiece(model, {"a"}), PATH) == model


def small(*names: str, unk_id: int = 0) -> SentencePieceModel:
    scored = tuple((name, 0.0 if name[0] == "<" else -float(n)) for n, name in enumerate(names))
    return SentencePieceModel(scored, unk_id, b"")


def test_an_order_replaces_the_first_pieces_and_can_be_undone():
    model = small("<unk>", "<s>", "▁a", "b")
    found = ORDER.apply(model, PATH)
    assert [text for text, _ in found.pieces] == ["<s>", "<pad>", "<unk>", "▁a", "b", "<mask>"]
    assert (found.unk_id, found.pieces[3][1]) == (2, -2.0)
    assert ORDER.undo(found) == model


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (small("▁a", "<s>", "<unk>", unk_id=2), "some.model: begins with ▁a <s>, where <unk> <s>"),
        (small("<unk>", "<s>", "a", unk_id=2), "begins with"),
        (small("<unk>"), "begins with <unk>, where"),
        (small("<unk>", "<s>", "<mask>"), "one of <s> <pad> <unk> <mask>"),
    ],
)
def test_a_model_that_is_not_in_the_familys_order_is_refused(model, sentence):
    with pytest.raises(FormatError, match=sentence):
        ORDER.apply(model, PATH)


def test_another_algorithm_than_unigram_is_refused_with_the_way_out():
    data = write_spiece(small("<unk>", "a"), ()) + encode_field(2, encode_field(3, 2))
    with pytest.raises(FormatError, match=r"not unigram \(algorithm 2\). Give .* tokenizer.json"):
        parse_spiece(data, PATH)


def test_a_piece_of_digit_and_comma_is_cut_again_only_as_albert_does():
    model = SentencePieceModel(
        (("<unk>", 0.0), ("▁", -2.0), ("1,", -1.0), ("1", -3.0), (",", -3.0)), 0, b""
    )
    albert = build_unigram(model, lowercase=False, keep_accents=True)
    assert albert.encode("1,").tokens == ["▁", "1", ","]
    assert build_plain_unigram(model).encode("1,").tokens == ["▁", "1,"]
