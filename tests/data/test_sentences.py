"""Sentence borders: a table of hard cases, judged by hand; "|" stands where a sentence ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filbert.data.documents import split_sentences

CASES = """
He left.| She stayed.
He left!| She stayed?| Yes.
What?!| No.
"Stop!" he said.| "Why?" she asked.
“Stop!”| Tom was gone.| ‘Now.’| “Go.”
He said, "Go.| Now!" and left.
(It rained.)| Then it stopped.
She smiled.| (He did not.)| They went on.
Mr. Smith met Mrs. Jones and Dr. Who.| They spoke.
Prof. A. Einstein and J. R. R. Tolkien met in St. Louis.| It rained.
By J. A. Smith.| All rights reserved.
He is taller than I.| She knows.
It was Henry I. of England.
They took vitamin C.| The rest is history.
See e.g. Berlin, i.e. Germany vs. France.| Good.
It costs 3.5 dollars, or $4.20.| Cheap.
He was 12.| Then he left.
See No. 5 and Vol. II, p. 7, of Fig. 3.| Good.
He said no.| She said yes.
On Jan. 5 he came.| In Feb. she left.
He came at 5 p.m. on Monday.| She came at 6 p.m.| The rest did not.
The U.S. Army came.| They left the U.S.| It was over.
He has a Ph.D. from Yale.| She has none.
Smith & Co. Ltd. sells nuts, bolts, etc.| It grows.
Smith et al. (2019) found it.| We did too.
Well... maybe.| Or not...| They left.
Wait... I know.| Yes… I do.
He waited…| Nobody came.
1. Introduction.| This is it.
IV. The return.| He came back.
2.3. Methods.| We counted.
Use version 2.0.| It works.
Mail a.b@c.org or see www.x.org.| Thanks.
The end.[3]| The next.
It was over.| — The door closed.
He stopped. — and went on.
Es war am 3. Oktober in Berlin.| Er kam z.B. mit Hrn. Maier.| Gut.
¿Qué?| ¡No!| Sí.
„Gut.“| Er ging.| »Ja.«| Sie kam.
Il est parti.| M. Dupont aussi.| « Oui. »| Elle rit.
Он ушёл.| Она осталась.
यह एक है।| वह दो है।
هل هذا صحيح؟| نعم.
你好。|我很好！|真的吗？|是的。
他说：“走吧。”|然后走了。
「行こう。」|彼は言った。
“好！”，他说。|完了。
我……|我不知道。
什么?|不知道!|走吧。
圆周率是３．１４。|对。
他用Python 3.5写的。|很好。
彼は「Stop!」と言った。|終わり。
안녕하세요.| 저는 학생입니다.
one line without any mark
lower. case after a stop
Trailing space. "
"""


@pytest.mark.parametrize("case", CASES.strip().split("\n"))
def test_a_line_is_cut_where_a_reader_would_cut_it(case):
    wanted = case.split("|")
    assert split_sentences("".join(wanted)) == wanted


@given(st.text(alphabet="aZé. !?…。」\"'(1I\u00a0中\t“«", max_size=60))
def test_no_character_of_a_line_is_lost_or_moved(line):
    sentences = split_sentences(line)
    assert "".join(sentences) == line
    assert all(sentence.strip() for sentence in sentences) or not line.strip()


def test_a_megabyte_without_a_border_takes_no_square_of_its_time():
    for unit in ("a", ".", '"', "Mr. ", "... ", "。", " ", "A. B. "):
        line = unit * (2**18 // len(unit))
        assert "".join(split_sentences(line)) == line
