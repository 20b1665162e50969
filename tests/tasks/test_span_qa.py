"""Windows, targets, loss, decoding and thresholds of question answering, on cases small enough to
work out by hand.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.errors import InputError
from filbert.metrics.squad import metrics_by_id
from filbert.tasks.base import Prediction, TaskOptions, task_from_dict, task_to_dict
from filbert.tasks.rows import row_labels, row_of_value
from filbert.tasks.span_qa import TASK, GoldAnswers, SpanQA
from filbert.text.tokenizer import Tokenizer

# [CLS] he [SEP] the film was good and the play was bad . [SEP]
#   0    1   2    3   4    5   6    7   8   9   10  11 12  13
CONTEXT = "The film was good and the play was bad."


def question(
    *answers: tuple[str, int], context: str = CONTEXT, ask: str = "he", id: str = "q"
) -> dict[str, Any]:
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": ask, "context": context, "answers": found}


def made(task: SpanQA, tiny: Tokenizer, *items: dict[str, Any], max_length: int = 32) -> Any:
    rows = [row_of_value(task, item, i) for i, item in enumerate(items)]
    return task.examples(rows, tiny, max_length=max_length, with_targets=True)


def scores(example: Example, starts: dict[int, float], ends: dict[int, float]) -> torch.Tensor:
    output = torch.full((len(example.input_ids), 2), -9.0)
    for column, given in enumerate((starts, ends)):
        for place, score in given.items():
            output[place, column] = score
    return output


def answered(task: SpanQA, example: Example, starts: Any, ends: Any) -> Prediction:
    (prediction,) = task.decode([scores(example, starts, ends)], [example])
    return prediction


# Targets


def test_the_target_is_the_places_of_the_answers_tokens(tiny):
    (example,) = made(SpanQA(), tiny, question(("good and", 13)))
    assert example.target == (6, 7)
    assert tiny.tokens(example.input_ids[6:8]) == ["good", "and"]


def test_of_several_answers_the_first_is_learnt(tiny):
    (example,) = made(SpanQA(), tiny, question(("play", 26), ("film", 4)))
    assert example.target == (9, 9)


def test_the_span_is_as_tight_as_tokens_allow(tiny):
    # Spaces around the answer are no part of it; half a word takes its piece, not the word.
    (example,) = made(SpanQA(), tiny, question((" good ", 12)))
    assert example.target == (6, 6)
    (example,) = made(SpanQA(), tiny, question(("play", 3), context="He plays"))
    assert example.target == (4, 4) and len(example.input_ids) == 7


def test_a_question_without_answer_points_at_the_first_token(tiny):
    (example,) = made(SpanQA(), tiny, question())
    assert example.target == (0, 0)


def test_offsets_count_characters_whatever_their_bytes(tiny):
    context = "\U0001f600\U0001f600 é\u0301 the good film"
    (example,) = made(SpanQA(), tiny, question(("good", 10), context=context))
    start, end = example.target
    assert tiny.tokens(example.input_ids[start : end + 1]) == ["good"]
    found = answered(SpanQA(), example, {start: 5.0}, {end: 5.0})
    assert (found["answer"], found["start"], found["end"]) == ("good", 10, 14)


def test_a_window_that_lacks_a_part_of_the_answer_points_at_the_first_token(
    tiny,
):
    # Room for 5 tokens: "the film was good and", then 3 further on "good and the play was", ...
    task = SpanQA(stride=3)
    examples = made(task, tiny, question(("and the", 18)), max_length=9)
    assert [e.target for e in examples] == [(0, 0), (4, 5), (0, 0)]
    assert [e.row for e in examples] == [0, 0, 0]
    assert [e.source.start for e in examples] == [0, 3, 6]


def test_an_answer_that_is_not_at_its_offset_is_never_learnt(tiny):
    with pytest.raises(InputError, match="questions:1: question q: .*answer_start 12"):
        made(SpanQA(), tiny, question(("good", 12)))


def test_a_question_that_leaves_no_room_is_named(tiny):
    items = [question(id="a"), question(ask="he " * 9, id="b")]
    with pytest.raises(InputError, match="questions:2: question b: .*--max-question-length"):
        made(SpanQA(), tiny, *items, max_length=12)


def test_a_long_question_is_cut_and_the_prediction_says_so(tiny):
    (example,) = made(SpanQA(max_question_length=2), tiny, question(ask="he he he"))
    found = answered(SpanQA(), example, {4: 1.0}, {4: 1.0})
    assert found["truncated"] and found["num_tokens"] == 3 + 3 + 10
    assert len(example.input_ids) == 15


def test_windows_lose_nothing_and_num_tokens_counts_the_whole_context(tiny):
    examples = made(SpanQA(stride=3), tiny, question(), max_length=9)
    outputs = [scores(e, {}, {}) for e in examples]
    (found,) = SpanQA().decode(outputs, examples)
    assert not found["truncated"] and found["num_tokens"] == 14


# Loss


def test_the_loss_is_the_mean_of_two_cross_entropies_over_each_sequences_own_tokens(
    tiny,
):
    task = SpanQA()
    items = [question(("good", 13)), question(context="the film"), question(("bad.", 35))]
    examples = made(task, tiny, *items)
    targets = task.targets(examples)
    assert targets.values.dtype == torch.int64 and targets.values.shape == (3, 2)
    assert targets.groups == (14, 6, 14)
    torch.manual_seed(0)
    output = torch.randn(34, 2, dtype=torch.float64).float().requires_grad_()
    loss = task.loss(output, targets)
    loss.backward()
    again = output.detach().clone().requires_grad_()
    wanted = torch.zeros(())
    for piece, (start, end) in zip(
        torch.split(again, [14, 6, 14]), targets.values.tolist(), strict=True
    ):
        for column, place in ((0, start), (1, end)):
            wanted = wanted + F.cross_entropy(piece[None, :, column], torch.tensor([place])) / 2
    wanted.backward()
    # Two orders of the same float32 sums.
    torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(output.grad, again.grad, rtol=1e-5, atol=1e-7)
    assert task.count(targets) == 3.0


def test_the_loss_of_half_precision_logits_is_summed_in_float32(tiny):
    task = SpanQA()
    targets = task.targets(made(task, tiny, question(("good", 13))))
    loss = task.loss(torch.randn(14, 2).bfloat16(), targets)
    assert loss.dtype == torch.float32 and loss.isfinite()


# Decoding


def test_the_answer_is_cut_from_the_context_as_it_is_written(tiny):
    context = "THE  Film was\tgóod"
    (example,) = made(SpanQA(), tiny, question(context=context))
    found = answered(SpanQA(), example, {3: 5.0}, {6: 5.0})
    assert found["answer"] == context and (found["start"], found["end"]) == (0, 18)


def test_a_start_counts_only_in_the_window_that_its_token_belongs_to(tiny):
    task = SpanQA(stride=3)
    examples = made(task, tiny, question(), max_length=9)
    # Context token 3 ("good") is in windows 0 (place 6) and 1 (place 3), and belongs to window 0.
    outputs = [scores(e, {}, {}) for e in examples]
    outputs[1][3] = 5.0
    (found,) = task.decode(outputs, examples)
    assert found["answer"] != "good"
    outputs[0][6] = 4.0
    (found,) = task.decode(outputs, examples)
    assert found["answer"] == "good" and found["nbest"][0]["start_logit"] == 4.0


# No answer


def test_the_null_score_is_the_least_over_the_windows(tiny):
    task = SpanQA(stride=3, has_unanswerable=True)
    examples = made(task, tiny, question(), max_length=9)
    outputs = [scores(e, {0: null}, {0: null}) for e, null in zip(examples, (3, 1, 2), strict=True)]
    outputs[0][4] = 0.5
    (found,) = task.decode(outputs, examples)
    assert found["null_score"] == 2.0 - 1.0 and found["answer"] == ""
    assert found["nbest"][0] == {
        "text": "",
        "start": None,
        "end": None,
        "start_logit": 1.0,
        "end_logit": 1.0,
        "score": found["score"],
    }


@pytest.mark.parametrize(("threshold", "answer"), [(0.9, ""), (1.0, "film"), (1.1, "film")])
def test_no_answer_must_win_by_more_than_the_threshold(tiny, threshold, answer):
    task = SpanQA(has_unanswerable=True, null_threshold=threshold)
    (example,) = made(task, tiny, question())
    found = answered(task, example, {0: 2.0, 4: 1.5}, {0: 2.0, 4: 1.5})
    assert found["null_score"] == 1.0 and found["answer"] == answer


def test_a_task_that_saw_only_answers_always_gives_one(tiny):
    (example,) = made(SpanQA(), tiny, question())
    found = answered(SpanQA(), example, {0: 9.0, 4: 1.0}, {0: 9.0, 4: 1.0})
    assert found["answer"] == "film" and found["null_score"] == 16.0
    assert all(entry["text"] for entry in found["nbest"])


def test_the_fitted_threshold_has_the_best_f1(tiny):
    task = SpanQA(has_unanswerable=True)
    items = [question(("film", 4)), question(("film", 4)), question(), question()]
    examples = made(task, tiny, *items)
    # Both answerable ones are right; null scores -1, 3 against 5, 2: answer up to 3.
    outputs = [
        scores(e, {4: 0.0, 0: null}, {4: 0.0, 0: 0.0})
        for e, null in zip(examples, (-1.0, 3.0, 5.0, 2.0), strict=True)
    ]
    gold = [task.gold(row_of_value(task, item, i)) for i, item in enumerate(items)]
    fitted = task.calibrate(gold, outputs, examples)
    assert fitted.null_threshold == -1.0
    outputs[3] = scores(examples[3], {4: 0.0, 0: 4.0}, {4: 0.0, 0: 0.0})
    fitted = task.calibrate(gold, outputs, examples)
    assert fitted.null_threshold == 3.0
    figures = fitted.metrics(gold, fitted.decode(outputs, examples))
    assert figures["exact_match"] == 100.0 == figures["best_f1"]
    assert SpanQA().calibrate(gold, outputs, examples) == SpanQA()


# The rest of the protocol


def test_a_task_is_stored_and_read_back():
    options = TaskOptions(stride=7, max_question_length=8, max_answer_length=9, n_best=3)
    task = TASK.from_options(options, ColumnNames())
    assert (task.stride, task.max_question_length, task.max_answer_length) == (7, 8, 9)
    rows = [row_of_value(task, question(("film", 4)), 0), row_of_value(task, question(), 1)]
    assert task.fit(rows[:1]).spec.metric_names == ("exact_match", "f1")
    fitted = task.fit(rows)
    assert fitted.has_unanswerable and "best_f1" in fitted.spec.metric_names
    assert [row_labels(task, row) for row in rows] == [["answerable"], ["unanswerable"]]
    assert task_from_dict(SpanQA, json.loads(json.dumps(task_to_dict(fitted)))) == fitted


def test_the_files_of_an_evaluation_are_those_of_run_squad(tiny):
    task = SpanQA(has_unanswerable=True)
    examples = made(task, tiny, question(id="a"), question(id="b"))
    outputs = [scores(e, {4: 5.0}, {4: 5.0}) for e in examples]
    predictions = task.decode(outputs, examples)
    files = task.spec.row_format.official_files(
        [GoldAnswers("a", ()), GoldAnswers("b", ("x",))], predictions
    )
    assert files["predictions.json"] == {"a": "film", "b": "film"}
    assert files["null_odds.json"] == {"a": -28.0, "b": -28.0}
    best = files["nbest_predictions.json"]["a"][0]
    assert set(best) == {"text", "probability", "start_logit", "end_logit"}
    assert json.dumps(files, allow_nan=False)


def test_predictions_for_other_questions_are_refused():
    with pytest.raises(InputError, match="no id is in both"):
        metrics_by_id([GoldAnswers("a", ("x",))], {"b": "x"})
    with pytest.raises(InputError, match="no no-answer score"):
        metrics_by_id([GoldAnswers("a", ("x",))], {"a": "x"}, {"b": 0.0})
