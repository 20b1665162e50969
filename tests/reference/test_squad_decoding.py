"""Decoding against run_squad.py's procedure, written out slowly, on real questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.metrics.squad import normalize
from filbert.tasks.rows import read_task_rows
from filbert.tasks.span_qa import SpanQA
from filbert.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[Row]:
    path = shared_data / "squad" / "dev-v1.1.json.gz"
    return list(read_task_rows(SpanQA(), path, ColumnNames()))


@pytest.fixture(scope="module", params=["bert-base-uncased", "roberta-base", "albert-base-v2"])
def tokenizer(shared_data: Path, request: pytest.FixtureRequest) -> Tokenizer:
    folder = shared_data / "tokenizers" / request.param
    if not folder.is_dir():
        pytest.skip(f"no {request.param} here")
    return Tokenizer.load(folder)


def slowly(task: SpanQA, windows: list[Example], outputs: list[torch.Tensor]) -> dict[str, Any]:
    """Loops over windows, starts and ends, as in write_predictions."""

    def shows_most(token: int) -> int:
        best, chosen = -1.0, -1
        for number, example in enumerate(windows):
            *_, start, length = example.source
            end = start + length - 1
            if start <= token <= end:
                score = min(token - start, end - token) + 0.01 * length
                if score > best:
                    best, chosen = score, number
        return chosen

    null, null_pair = 1e9, (0.0, 0.0)
    candidates: list[tuple[float, float, int, int]] = []
    for number, (example, output) in enumerate(zip(windows, outputs, strict=True)):
        *_, begin, start, length = example.source
        starts, ends = output[:, 0].tolist(), output[:, 1].tolist()
        if starts[0] + ends[0] < null:
            null, null_pair = starts[0] + ends[0], (starts[0], ends[0])
        places = range(len(starts))
        for s in sorted(places, key=lambda i: -starts[i])[: task.n_best]:
            for e in sorted(places, key=lambda i: -ends[i])[: task.n_best]:
                if not (begin <= s < begin + length and begin <= e < begin + length):
                    continue
                if e < s or e - s + 1 > task.max_answer_length:
                    continue
                token = s - begin + start
                if shows_most(token) != number:
                    continue
                candidates.append((starts[s], ends[e], token, e - begin + start))
    if task.has_unanswerable:
        candidates.append((*null_pair, -1, -1))
    window = windows[0].source
    listed: dict[str, float] = {}
    for s, e, first, last in sorted(candidates, key=lambda c: -(c[0] + c[1])):
        if len(listed) == task.n_best:
            break
        text = ""
        if first >= 0:
            text = window.context[window.offsets[first][0] : window.offsets[last][1]].strip()
            if not text:
                continue
        listed.setdefault(text, s + e)
    if task.has_unanswerable:
        listed.setdefault("", null)
    best = next((text for text in listed if text), "")
    null_score = null - listed.get(best, 0.0) if best else null
    answer = "" if task.has_unanswerable and null_score > task.null_threshold else best
    total = np.array(list(listed.values()))
    return {
        "answer": answer,
        "null_score": null_score,
        "texts": list(listed),
        "shares": np.exp(total - total.max()) / np.exp(total - total.max()).sum(),
    }


@pytest.mark.parametrize("unanswerable", [False, True])
def test_answers_equal_those_of_the_slow_procedure(rows, tokenizer, unanswerable):
    task = SpanQA(stride=48, has_unanswerable=unanswerable, null_threshold=-13.0, n_best=8)
    some = rows[::200]
    examples = task.examples(some, tokenizer, max_length=128, with_targets=False)
    torch.manual_seed(1)
    # Rounded, so that equal logits are common and their order counts.
    outputs = [torch.randn(len(e.input_ids), 2).mul(16).round() / 8 for e in examples]
    found = task.decode(outputs, examples)
    assert len(found) == len(some)
    given = {"": 0, "text": 0}
    for index, (row, prediction) in enumerate(zip(some, found, strict=True)):
        mine = [i for i, e in enumerate(examples) if e.row == index]
        wanted = slowly(task, [examples[i] for i in mine], [outputs[i] for i in mine])
        assert prediction["answer"] == wanted["answer"]
        assert prediction["null_score"] == wanted["null_score"]
        assert [entry["text"] for entry in prediction["nbest"]] == wanted["texts"]
        shares = [entry["score"] for entry in prediction["nbest"]]
        np.testing.assert_allclose(shares, wanted["shares"], rtol=1e-12)
        for entry in prediction["nbest"]:
            if entry["text"]:
                context = row.values["context"]
                assert context[entry["start"] : entry["end"]] == entry["text"]
        given["text" if prediction["answer"] else ""] += 1
    assert given["text"] and bool(given[""]) == unanswerable


def test_every_answer_that_tokens_can_spell_is_recovered_from_its_own_target(rows, tokenizer):
    task = SpanQA()
    some = rows[::30]
    examples = task.examples(some, tokenizer, max_length=384, with_targets=True)
    outputs = []
    for example in examples:
        start, end = example.target
        output = torch.full((len(example.input_ids), 2), -5.0)
        output[start, 0] = output[end, 1] = 5.0
        outputs.append(output)
    first = {}
    for example in examples:
        first.setdefault(example.row, example.source)
    spelt = 0
    for index, (row, found) in enumerate(zip(some, task.decode(outputs, examples), strict=True)):
        answer = row.values["answers"][0]
        begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
        offsets = first[index].offsets
        inside = [(int(a), int(b)) for a, b in offsets if b > begin and a < end]
        context = row.values["context"]
        covered = context[inside[0][0] : inside[-1][1]].strip()
        if covered != answer["text"].strip() or len(inside) > task.max_answer_length:
            continue
        spelt += 1
        assert normalize(found["answer"]) == normalize(answer["text"])
        assert found["answer"] == answer["text"].strip()
    assert spelt > 0.98 * len(some)
