"""The cleaning steps: what each does and leaves alone, their order, and any text at all."""

import itertools
import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filbert.errors import ConfigError
from filbert.text import clean
from filbert.text.clean import STEPS, Cleaning

STUDY = Cleaning(tuple(STEPS))
PAGE = Path(__file__).parents[2] / "docs" / "cleaning.md"


def only(*steps: str) -> Cleaning:
    return Cleaning(steps)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I don't", "I do not"),
        ("I DON'T, he Doesn't", "I DO NOT, he Does not"),
        ("can't won't shan't ain't", "cannot will not shall not is not"),
        ("CAN'T WON'T", "CANNOT WILL NOT"),
        ("don\u2019t don\u02bct don\uff07t don`t don\u00b4t", "do not " * 4 + "do not"),
        ("dont, didnt; ISNT", "do not, did not; IS NOT"),
        ("mustn't've _dont_", "must not've _do not_"),
        ("I'm sure he's late", "I'm sure he's late"),
        ("her wont to cant", "her wont to cant"),
        ("a dontist, cannot, n't", "a dontist, cannot, n't"),
        # A mark without a letter is no part of a word; one with a letter is.
        ("\u0301can't \u0301isnt i\u0307can't", "\u0301cannot \u0301is not i\u0307can't"),
    ],
)
def test_negative_contractions_are_written_out_and_no_others(before, after):
    assert only("contractions")(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fun \U0001f602!", "fun face with tears of joy !"),
        ("a\U0001f600b", "a grinning face b"),
        ("\U0001f44d\U0001f3ff \U0001f44d", "thumbs up sign thumbs up sign"),
        ("\U0001f469\U0001f3fd\u200d\U0001f4bb", "woman personal computer"),
        ("\U0001f937\u200d\u2640\ufe0f", "shrug woman"),
        ("\u2764\ufe0f \u2764 \U0001f5a4", "red heart red heart black heart"),
        ("\u26aa \u263a", "medium white circle smiling face"),
        ("\U0001f1e9\U0001f1ea\U0001f1fa\U0001f1f8", "flag flag"),
        ("\U0001f1fd\U0001f1fd", "flag"),
        ("\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "flag"),
        ("5\ufe0f\u20e3 #\ufe0f\u20e3", "5 hash"),
        ("\u00a9 \u00a9\ufe0f \u2122", "\u00a9 copyright sign \u2122"),
        ("\U0001f232 \U0001f197", "\u7981 ok"),
        ("\U0001f3fb", ""),
        ("\u0924\u0947 1 # \u2460", "\u0924\u0947 1 # \u2460"),
        ("\U0001faff", "\U0001faff"),
        ("\u275dso\u275e \u275bit\u275c \u275a", "\u275dso\u275e \u275bit\u275c vertical bar"),
    ],
)  # fmt: skip
def test_emojis_become_words_and_other_signs_stay(before, after):
    assert only("emojis")(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("see http://x.org/a_(b)?c=d#e, please", "see , please"),
        ("(HTTPS://X.ORG/a).", "( )."),
        ("[http://x.org a label]", "[ a label]"),
        ("www.example.org! and ftp://x/y", "! and"),
        ("en.wikipedia.org/wiki/Page_1 stays example.org", "stays example.org"),
        ("done.Next/other and/or 1.5/2", "done.Next/other and/or 1.5/2"),
        ("www. and awww.cute", "www. and awww.cute"),
    ],
)
def test_urls_go_and_bare_domains_only_with_a_path(before, after):
    assert only("urls")(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from 192.168.1.1.", "from ."),
        ("from 192.168.1.xxx, 10.0.xxx.xxx, 10.0.0.*", "from , ,"),
        ("10.0.0.0/24 and 10.0.0.1:8080", "and"),
        ("User:10.0.0.1.", "User: ."),
    ],
)
def test_ip_addresses_go_whole_or_with_a_hidden_end(before, after):
    assert only("ip-addresses")(before) == after


@pytest.mark.parametrize(
    "text",
    ["1.2.3", "1.2.3.4.5", "256.1.1.1", "v1.2.3.4", "12:30:45", "std::vector"],
)
def test_versions_and_times_are_no_ip_addresses(text):
    assert only("ip-addresses")(text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("thanks @ann.lee-3, @bob!", "thanks , !"),
        ("ask User:Ann_Lee, User talk:Bob or user:10.0.0.1.", "ask , or"),
        ("[[User talk:Ann Lee|Ann]] [[:User:Bob]] [[Special:Contributions/10.0.0.1]]", ""),
        ("{{ping|Ann Lee}} {{u|Bob}} yes", "yes"),
        ("u/ann_lee and /u/bob-b", "and"),
        ("ann@example.org.", "."),
    ],
)
def test_user_names_and_mail_addresses_go(before, after):
    assert only("user-names")(before) == after


@pytest.mark.parametrize(
    "text",
    ["a user: me", "the user talk page", "[[Article]] and [[Talk:User]]", "him/her w/u/x", "@ noon",
     "u/a", "superuser:x"],
)  # fmt: skip
def test_what_is_no_user_name_stays(text):
    assert only("user-names")(text) == text


def test_stop_words_go_and_negations_stay():
    text = "It's not the END of any story, and there is NO one who never can't read."
    kept = "not END story, NO one never can't read."
    assert re.sub(" +", " ", only("stop-words")(text)) == kept


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("It\u2019s Ann's", "Ann's"),
        ("the-end (of) \"and\"", "-end ( ) \" \""),
        ("x'the", "x'"),
        ("them\u00e9 th\u00e9 the\u0301", "them\u00e9 th\u00e9 the\u0301"),
        ("t\u200bhe \u200bthe", "\u200b"),
    ],
)  # fmt: skip
def test_a_stop_word_is_a_whole_word(before, after):
    assert only("stop-words")(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a_b-c.d, e!", "a b c d e"),
        ("na\u00efve \u0441\u043b. \u6f22 \u00bd", "na\u00efve \u0441\u043b \u6f22 \u00bd"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u093f\u0928\u094d\u0926\u0940"),
        ("i\u200bd\u00adi\ufeffom", "idiom"),
        ("\u0301x \u0301", "x"),
        ("a\ud800b\x00c", "a b c"),
        ("\U0001f600 ...", ""),
    ],
)  # fmt: skip
def test_letters_digits_and_their_marks_stay_and_nothing_else(before, after):
    assert only("non-alphanumerics")(before) == after


def test_the_study_runs_all_steps_and_may_leave_nothing():
    text = "I DON'T like @ann's page (see https://x.org/a). \U0001f602 192.168.1.xxx"
    assert STUDY(text) == "not like s page see face tears joy"
    assert STUDY("The ... of!") == STUDY("") == STUDY("\U0001f3fb\u200d\ufe0f\ud800") == ""


PIECES = [
    "the", "not", "don", "dont", "n", "t", "'", "\u2019", "\u02bc", "xd", "XD", ":", ")", "(", "D",
    "-", "_", ".", "/", "@", "user:", "User talk:", "u/", "http://", "www.", "com", "1", "255", "x",
    "::", "2001", "ab", "[[", "]]", "{{u|", "}}", " ", "\n", "\u200b", "\u200d", "\ufe0f", "\u20e3",
    "\U0001f600", "\U0001f3fd", "\U0001f1fa", "\U0001f1f8", "\U0001f3f4", "\U000e0067",
    "\U000e007f", "\u0301", "\u0130", "I", "\u03a3", "\u1e9e", "\u2139", "\u2122", "\u24c2",
    "\ud800", "<3", "^", "\u00a0", "\u0345", "\u00b4", "s", "it", "\u017f", "\u212a", "\u00af\\_(",
]  # fmt: skip
ANY = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.text(st.characters(), max_size=60),
    st.lists(st.one_of(st.sampled_from(PIECES), st.characters()), max_size=20).map("".join),
)


@settings(max_examples=200, deadline=None)
@given(ANY)
@example("don\u200bt do")
@example("DONT_")
@example("\u0130dont")
def test_a_text_that_the_study_cleaned_is_clean(text):
    once = STUDY(text)
    assert STUDY(once) == once
    assert once == once.strip() and "  " not in once
    assert all(c.isalnum() or c == " " or is_mark(c) for c in once)


def is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Mc")


@settings(max_examples=100, deadline=None)
@given(ANY, st.sets(st.sampled_from(list(STEPS))))
def test_any_text_goes_through_any_steps(text, steps):
    assert isinstance(Cleaning(tuple(steps))(text), str)


def test_steps_run_in_one_order_however_they_are_named():
    names = ["non-alphanumerics", "urls", "lowercase", "emojis"]
    made = {Cleaning.parse(",".join(order)) for order in itertools.permutations(names)}
    assert made == {Cleaning(("urls", "emojis", "lowercase", "non-alphanumerics"))}
    (cleaning,) = made
    assert cleaning("See HTTP://x.org \U0001f600") == "see grinning face"


@pytest.mark.parametrize(
    ("given_", "spelt"),
    [
        ("study", "study"),
        (" Study ", "study"),
        (list(STEPS), "study"),
        (["lowercase", "urls"], "urls,lowercase"),
    ],
)
def test_a_cleaning_is_spelt_as_it_is_read_and_kept_step_by_step(given_, spelt):
    cleaning = Cleaning.parse(given_)
    assert str(cleaning) == spelt
    assert Cleaning.parse(spelt) == cleaning
    assert Cleaning.parse(json.loads(json.dumps(cleaning.steps))) == cleaning
    assert "study" not in cleaning.steps


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ("url", "no step 'url'.*Did you mean 'urls'"),
        ("studie", "Did you mean 'study'"),
        (["urls", "stopwords"], "Did you mean 'stop-words'"),
        (["urls", 5], "give names of steps"),
        (5, "give names of steps"),
    ],
)
def test_a_misspelt_step_is_refused_with_the_nearest_name(given_, words):
    with pytest.raises(ConfigError, match=words):
        Cleaning.parse(given_)


def test_no_negation_is_a_stop_word():
    assert not clean.STOP_WORDS & {"cannot", "never", "no", "none", "nor", "not", "nothing"}
    assert not clean.STOP_WORDS & set(clean.NEGATED_BARE)
    assert all(word == word.lower() for word in clean.STOP_WORDS)


def test_the_table_of_the_docs_is_what_the_code_does():
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z,-]+)` \| `([^`|]*)` \| `?([^`|]*)`? \|$", page, re.MULTILINE)
    assert {name for name, _, _ in rows} == {*STEPS, "study"}
    for name, before, after in rows:
        cleaning = Cleaning.parse(name)
        assert cleaning is not None and cleaning(before) == after.strip(), name
    order = [name for name, _, _ in rows if name in STEPS]
    assert list(dict.fromkeys(order)) == list(STEPS)
