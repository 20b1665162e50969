"""fill: candidates under every mask, the user's own text around them, and nothing lost silently."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

import filbert
from filbert.batch import pack
from filbert.inference.fill import fill_masks, sequences_around
from filbert.inference.predictor import Predictor
from filbert.model.heads import DiscriminatorHead
from filbert.text.masks import Piece, piece_of
from filbert.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model(masked_lm: Path) -> Predictor:
    return Predictor.load(masked_lm, device="cpu")


def promoted(model: Predictor, *tokens: str) -> Predictor:
    """The same model, to which these are the likeliest tokens everywhere, in this order."""
    changed = copy.deepcopy(model.model)
    with torch.no_grad():
        for place, token in enumerate(tokens):
            changed.head.bias[model.tokenizer.id_of(token)] += 1000 - 10 * place
    return Predictor(changed, model.tokenizer)


def scores_by_hand(model: Predictor, text: str, place: int) -> torch.Tensor:
    """Probabilities of the whole vocabulary at one row, by the whole head and no shortcut."""
    (encoding,) = model.tokenizer.encode([text])
    with torch.no_grad():
        logits = model.model(pack([encoding.input_ids], [encoding.token_type_ids]))
    logits = logits[0] if isinstance(logits, tuple) else logits
    return logits[place].softmax(-1)


def test_scores_are_the_softmax_over_the_whole_vocabulary_at_the_mask(model):
    text = "the film was [MASK] ."
    answer = model.fill(text, top=34)
    (candidates,) = answer["candidates"]
    wanted = scores_by_hand(model, text, 4)
    assert [c["id"] for c in candidates] == wanted.argsort(descending=True).tolist()
    for candidate in candidates:
        assert candidate["score"] == pytest.approx(float(wanted[candidate["id"]]), abs=1e-6)
    assert sum(c["score"] for c in candidates) == pytest.approx(1, abs=1e-6)
    assert (answer["truncated"], answer["num_tokens"]) == (False, 7)


def test_every_mask_has_its_own_list_and_the_other_masks_stay_in_the_sequence(model):
    text = "[MASK] film was [MASK]"
    first, second = model.fill(text, top=3)["candidates"]
    assert [c["score"] for c in first] != [c["score"] for c in second]
    assert all(c["sequence"] == f"{c['token']} film was [MASK]" for c in first)
    for candidate, place in ((first[0], 1), (second[0], 4)):
        wanted = scores_by_hand(model, text, place)
        assert candidate["score"] == pytest.approx(float(wanted.max()), abs=1e-6)


def test_a_list_of_texts_gets_a_list_in_order_and_one_text_one_answer(model):
    texts = [f"{'the ' * (7 * i % 11)}film [MASK] good" for i in range(40)]
    answers = model.fill(texts, top=2)
    assert [a["num_tokens"] for a in answers] == [5 + 7 * i % 11 for i in range(40)]
    narrow = Predictor(model.model, model.tokenizer, max_tokens=16).fill(texts, top=2)
    for text, answer, other in zip(texts, answers, narrow, strict=True):
        alone = model.fill(text, top=2)
        for given in (answer, other):
            assert [c["sequence"] for c in given["candidates"][0]] == [
                c["sequence"] for c in alone["candidates"][0]
            ]
            # Another number of rows may pick another kernel; the bound of predict and embed.
            assert given["candidates"][0][0]["score"] == pytest.approx(
                alone["candidates"][0][0]["score"], abs=1e-6
            )
    assert list(fill_masks(model, iter(texts[:3]), top=2)) == model.fill(texts[:3], top=2)
    assert model.fill([]) == []


def test_only_the_rows_of_masks_are_projected(model):
    rows = []
    norm = model.model.head.norm
    handle = norm.register_forward_hook(lambda module, given, out: rows.append(len(out)))
    model.fill(["the film was [MASK] and [MASK]", "[MASK] " + "very " * 30])
    handle.remove()
    assert sum(rows) == 3


def test_a_long_text_is_cut_around_its_masks_and_says_so(model):
    text = "the film " * 100 + "was [MASK] good " + "and bad " * 100
    answer = model.fill(text, top=3)
    assert (answer["truncated"], answer["num_tokens"]) == (True, 405)
    # What the model saw: the mask in the middle of 62 tokens.
    seen = "the film " * 15 + "was [MASK] good " + "and bad " * 14 + "and"
    wanted = scores_by_hand(model, seen, 32)
    assert len(model.tokenizer.encode([seen])[0].input_ids) == 64
    (candidates,) = answer["candidates"]
    assert candidates[0]["id"] == int(wanted.argmax())
    assert candidates[0]["score"] == pytest.approx(float(wanted.max()), abs=1e-6)
    before, after = text.split("[MASK]")
    assert candidates[0]["sequence"].startswith(before.rstrip())
    assert candidates[0]["sequence"].endswith(candidates[0]["token"] + after)


@pytest.mark.parametrize("max_length", [3, 4, 5, 8, 13, 64])
def test_no_mask_is_ever_cut_away(tiny, max_length):
    words = ["very"] * 200
    for place in (0, 1, 2, 7, 60, 61, 63, 120, 199):
        words[place] = "[MASK]"
    (encoding,) = tiny.encode([" ".join(words)], with_offsets=True)
    places = [i for i, number in enumerate(encoding.input_ids) if number == tiny.mask_id]
    found = []
    for example in sequences_around(5, encoding, places, max_length):
        assert len(example.input_ids) == max_length == len(example.token_type_ids)
        assert (example.input_ids[0], example.input_ids[-1]) == (tiny.cls_id, tiny.sep_id)
        assert (example.row, example.num_tokens) == (5, 202)
        assert all(example.input_ids[example.target] == tiny.mask_id)
        found += example.source
    assert found == list(range(9))


# How candidates are written


def test_a_continuation_joins_to_the_word_before_and_shows_no_marks(model):
    model = promoted(model, "##ing", "bad", "!")
    joined, apart, closing = model.fill("Play  [MASK] the film", top=3)["candidates"][0]
    assert (joined["token"], joined["sequence"]) == ("ing", "Playing the film")
    assert (apart["token"], apart["sequence"]) == ("bad", "Play  bad the film")
    assert (closing["token"], closing["sequence"]) == ("!", "Play! the film")
    (first,) = model.fill("[MASK] film", top=1)["candidates"][0]
    assert first["sequence"] == "ing film"
    _, second = model.fill("[MASK] [MASK]", top=1)["candidates"]
    assert second[0]["sequence"] == "[MASK]ing"


@pytest.mark.parametrize(
    ("name", "token", "wanted"),
    [
        ("bert-base-uncased", "##ing", Piece("ing", True)),
        ("bert-base-uncased", "paris", Piece("paris", False)),
        ("bert-base-uncased", "#", Piece("#", False)),
        ("bert-base-uncased", "[SEP]", Piece("[SEP]", False)),
        ("roberta-base", "ĠParis", Piece("Paris", False)),
        ("roberta-base", "ing", Piece("ing", True)),
        ("roberta-base", "ĠcafÃ©", Piece("café", False)),
        ("roberta-base", "Ġ", Piece(" ", False)),
        ("roberta-base", "</s>", Piece("</s>", False)),
        ("albert-base-v2", "▁paris", Piece("paris", False)),
        ("albert-base-v2", "ing", Piece("ing", True)),
        ("albert-base-v2", "▁", Piece(" ", False)),
    ],
)
def test_a_token_of_any_vocabulary_is_readable(shared_data, name, token, wanted):
    tokenizer = Tokenizer.load(shared_data / "tokenizers" / name)
    number = tokenizer.id_of(token)
    assert number is not None
    assert piece_of(number, tokenizer) == wanted


# Another vocabulary's mask


@pytest.fixture(scope="module")
def angled(masked_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """The same model whose vocabulary calls the mask <mask>, which takes the blank before it."""
    out = tmp_path_factory.mktemp("angled")
    for path in masked_lm.iterdir():
        text = path.read_text("utf-8") if path.suffix in (".json", ".txt") else None
        if text is None:
            (out / path.name).write_bytes(path.read_bytes())
        else:
            (out / path.name).write_text(text.replace("[MASK]", "<mask>"), "utf-8")
    content = json.loads((out / "tokenizer.json").read_text("utf-8"))
    for token in content["added_tokens"]:
        token["lstrip"] = token["content"] == "<mask>"
    (out / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    return Predictor.load(out, device="cpu")


def test_mask_in_brackets_is_understood_by_every_vocabulary(model, angled):
    assert angled.tokenizer.specials["mask"] == "<mask>"
    for text in ("the [MASK] was", "[MASK] [MASK][MASK] it", "a[MASK]"):
        wanted = model.fill(text)["candidates"]
        for written in (text, text.replace("[MASK]", "<mask>")):
            found = angled.fill(written)["candidates"]
            assert [[c["id"] for c in m] for m in found] == [[c["id"] for c in m] for m in wanted]
    sequences = [m[0]["sequence"] for m in angled.fill("a <mask> b [MASK] c")["candidates"]]
    assert sequences[0].endswith(" b [MASK] c")
    assert sequences[1].startswith("a <mask> b")


# Refusals


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ("the film", r"The text has no mask: 'the film'\. Write \[MASK\] where a word is missing"),
        ("the [mask]", r"Write \[MASK\], in capitals, where"),
        (["[MASK]", "no"], "Item 1 has no mask"),
        (["[MASK]", 5], "Item 1 is a int"),
        ([""], "Item 0 has no mask"),
    ],
)
def test_a_text_without_a_mask_is_refused_by_its_place(model, texts, sentence):
    with pytest.raises(filbert.InputError, match=sentence):
        model.fill(texts)


def test_a_model_without_a_masked_lm_head_is_refused_with_what_it_has(
    tiny_model, with_head, tmp_path
):
    bare = Predictor.load(tiny_model, device="cpu")
    with pytest.raises(filbert.ConfigError, match="a bare encoder.*filbert-mini.*pretrain"):
        bare.fill("[MASK]")
    other = Predictor.load(with_head(tiny_model, tmp_path / "m", "spans"), device="cpu")
    with pytest.raises(filbert.ConfigError, match="its head is 'spans'"):
        other.fill("[MASK]")
    other.model.head = DiscriminatorHead(other.model.config)
    with pytest.raises(filbert.ConfigError, match="'discriminator', so take the generator"):
        other.fill("[MASK]")
