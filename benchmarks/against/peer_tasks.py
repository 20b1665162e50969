"""The peer of finetune_tasks.py: transformers' Trainer, fed as transformers' own examples feed it.

Float32, its own collators (every batch is padded to its longest row), first-token labels for tags,
one sequence per choice, and overlapping windows of long contexts with the best span over all
windows for questions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from task_data import read_conll, read_json_lines, read_squad, tags_in
from task_scores import FIGURES, KINDS, dev_gold, score

Feature = dict[str, Any]
Predictions = list[Any]

NUM_BEST = 20
MAX_ANSWER_TOKENS = 30


@dataclass(frozen=True)
class Prepared:
    """What the Trainer needs for a kind of task.

    Attributes:
        train, dev: inputs and labels by the model's names.
        model_class: a class of transformers that loads the checkpoint under a new head.
        model_options: for its `from_pretrained`.
        collator: makes padded batches.
        decode: predictions in the order of the dev rows, from the outputs of the dev features.
    """

    train: list[Feature]
    dev: list[Feature]
    model_class: str
    model_options: dict[str, Any]
    collator: Any
    decode: Callable[[Any], Predictions]


def prepare_texts(tokenizer: Any, train: Path, dev: Path, max_length: int, task: str) -> Prepared:
    """Classification and regression of single texts and pairs."""
    from transformers import DataCollatorWithPadding

    splits = [read_json_lines(path) for path in (train, dev)]
    is_regression = KINDS[task] == "regression"
    labels = [] if is_regression else sorted({row["label"] for row in splits[0]})

    def features(rows: Sequence[dict[str, Any]]) -> list[Feature]:
        pairs = [row["text_pair"] for row in rows] if "text_pair" in rows[0] else None
        texts = [row["text"] for row in rows]
        encoded = tokenizer(texts, pairs, truncation=True, max_length=max_length)
        wanted = [r["label"] if is_regression else labels.index(r["label"]) for r in rows]
        return [feature | {"labels": w} for feature, w in zip(_split(encoded), wanted, strict=True)]

    def decode(logits: np.ndarray) -> Predictions:
        if is_regression:
            return [float(value) for value in logits.reshape(-1)]
        return [labels[i] for i in logits.argmax(-1)]

    options: dict[str, Any] = {"num_labels": len(labels) or 1}
    if is_regression:
        options["problem_type"] = "regression"
    return Prepared(
        features(splits[0]),
        features(splits[1]),
        "AutoModelForSequenceClassification",
        options,
        DataCollatorWithPadding(tokenizer),
        decode,
    )


def prepare_tags(tokenizer: Any, train: Path, dev: Path, max_length: int, task: str) -> Prepared:
    """Tags: the first token of a word carries its tag; words that were cut off count as O."""
    from transformers import DataCollatorForTokenClassification

    splits = [read_conll(path) for path in (train, dev)]
    tags = tags_in(train, dev)
    ids = {tag: i for i, tag in enumerate(tags)}
    places: list[dict[int, int]] = []

    def features(sentences: Sequence[Any]) -> list[Feature]:
        places.clear()
        encoded = tokenizer(
            [sentence.tokens for sentence in sentences],
            is_split_into_words=True,
            truncation=True,
            max_length=max_length,
        )
        found = _split(encoded)
        for i, sentence in enumerate(sentences):
            first: dict[int, int] = {}
            for token, word in enumerate(encoded.word_ids(i)):
                if word is not None:
                    first.setdefault(word, token)
            labels = [-100] * len(found[i]["input_ids"])
            for word, token in first.items():
                labels[token] = ids[sentence.tags[word]]
            found[i]["labels"] = labels
            places.append(first)
        return found

    def decode(logits: np.ndarray) -> Predictions:
        best = logits.argmax(-1)
        return [
            [tags[best[i][first[w]]] if w in first else "O" for w in range(len(sentence.tokens))]
            for i, (sentence, first) in enumerate(zip(splits[1], places, strict=True))
        ]

    # The dev features come last, so that `places` are theirs.
    of_train, of_dev = features(splits[0]), features(splits[1])
    return Prepared(
        of_train,
        of_dev,
        "AutoModelForTokenClassification",
        {"num_labels": len(tags)},
        DataCollatorForTokenClassification(tokenizer),
        decode,
    )


def prepare_choices(tokenizer: Any, train: Path, dev: Path, max_length: int, task: str) -> Prepared:
    """Multiple choice: the context with each of its continuations."""
    from transformers import DataCollatorForMultipleChoice

    def features(path: Path) -> list[Feature]:
        found = []
        for row in read_json_lines(path):
            contexts = [row["context"]] * len(row["choices"])
            encoded = tokenizer(contexts, row["choices"], truncation=True, max_length=max_length)
            found.append(dict(encoded) | {"labels": row["label"]})
        return found

    return Prepared(
        features(train),
        features(dev),
        "AutoModelForMultipleChoice",
        {},
        DataCollatorForMultipleChoice(tokenizer),
        lambda logits: [int(i) for i in logits.argmax(-1)],
    )


def prepare_questions(
    tokenizer: Any, train: Path, dev: Path, max_length: int, task: str, overlap: int = 128
) -> Prepared:
    """Questions: windows over long contexts that share `overlap` tokens.

    A window without the whole answer learns to point at its first token.
    """
    from transformers import DataCollatorWithPadding

    splits = [read_squad(path) for path in (train, dev)]

    def features(rows: Sequence[dict[str, Any]]) -> tuple[list[Feature], list[int], list[Any]]:
        encoded = tokenizer(
            [row["question"].lstrip() for row in rows],
            [row["context"] for row in rows],
            truncation="only_second",
            max_length=max_length,
            stride=overlap,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        owners = encoded.pop("overflow_to_sample_mapping")
        all_offsets = encoded.pop("offset_mapping")
        found = _split(encoded)
        kept = []
        for i, feature in enumerate(found):
            in_context = [part == 1 for part in encoded.sequence_ids(i)]
            offsets = [o if c else None for o, c in zip(all_offsets[i], in_context, strict=True)]
            answer = rows[owners[i]]["answers"][0]
            start = answer["answer_start"]
            span = _token_span(offsets, start, start + len(answer["text"]))
            feature["start_positions"], feature["end_positions"] = span
            kept.append(offsets)
        return found, owners, kept

    of_train, _, _ = features(splits[0])
    of_dev, owners, offsets = features(splits[1])

    def decode(logits: Any) -> Predictions:
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(splits[1])
        for i, owner in enumerate(owners):
            found = _best_span(logits[0][i], logits[1][i], offsets[i])
            if found is not None and found[0] > best[owner][0]:
                begin, end = found[1]
                best[owner] = (found[0], splits[1][owner]["context"][begin:end])
        return [text for _, text in best]

    return Prepared(
        of_train,
        of_dev,
        "AutoModelForQuestionAnswering",
        {},
        DataCollatorWithPadding(tokenizer),
        decode,
    )


PREPARERS = {
    "classification": prepare_texts,
    "regression": prepare_texts,
    "tagging": prepare_tags,
    "multiple_choice": prepare_choices,
    "span_qa": prepare_questions,
}


def _split(encoded: Any) -> list[Feature]:
    """One mapping per sequence, from lists by name."""
    names = list(encoded.keys())
    return [
        dict(zip(names, values, strict=True))
        for values in zip(*(encoded[name] for name in names), strict=True)
    ]


def _token_span(offsets: Sequence[Any], begin: int, end: int) -> tuple[int, int]:
    """First and last token of characters [begin, end); (0, 0) where they are not all in view."""
    inside = [i for i, place in enumerate(offsets) if place is not None]
    first = max((i for i in inside if offsets[i][0] <= begin), default=0)
    last = min((i for i in inside if offsets[i][1] >= end), default=0)
    return (first, last) if 0 < first <= last else (0, 0)


def _best_span(
    starts: np.ndarray, ends: np.ndarray, offsets: Sequence[Any]
) -> tuple[float, tuple[int, int]] | None:
    """The likeliest allowed span of a window: its score and its characters."""
    best = None
    for start in np.argsort(-starts)[:NUM_BEST]:
        for end in np.argsort(-ends)[:NUM_BEST]:
            # Padding lies behind the last offset.
            if max(start, end) >= len(offsets) or not 0 <= end - start < MAX_ANSWER_TOKENS:
                continue
            if offsets[start] is None or offsets[end] is None:
                continue
            total = float(starts[start] + ends[end])
            if best is None or total > best[0]:
                best = (total, (offsets[start][0], offsets[end][1]))
    return best


def train_peer(
    task: str,
    train: Path,
    dev: Path,
    settings: dict[str, Any],
    seed: int,
    out: Path,
    model: str,
    device: str,
) -> dict[str, Any]:
    """Fine-tune with transformers' Trainer; the best epoch is kept.

    Returns:
        predictions: of the dev rows.
        training_seconds: evaluations and saving not counted.
        tokenise_seconds: for train and dev.
        sequences: training sequences; more than rows where there are windows.
    """
    import transformers
    from transformers import AutoTokenizer, Trainer, TrainerCallback, TrainingArguments, set_seed

    transformers.logging.set_verbosity_error()
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model)
    clock = time.perf_counter()
    prepare = PREPARERS[KINDS[task]]
    prepared = prepare(tokenizer, train, dev, settings["max_length"], task)
    tokenise_seconds = time.perf_counter() - clock
    loader = getattr(transformers, prepared.model_class)
    network = loader.from_pretrained(model, **prepared.model_options)
    gold, chooses = dev_gold(task, dev), FIGURES[task][0]

    class Timed(Trainer):
        paused = 0.0

        def _outside(self, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return act(*given, **named)
            finally:
                self.paused += time.perf_counter() - began

        def evaluate(self, *given: Any, **named: Any) -> Any:
            return self._outside(super().evaluate, *given, **named)

        def _save_checkpoint(self, *given: Any, **named: Any) -> Any:
            return self._outside(super()._save_checkpoint, *given, **named)

        def _load_best_model(self, *given: Any, **named: Any) -> Any:
            return self._outside(super()._load_best_model, *given, **named)

    class Watch(TrainerCallback):
        began = ended = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.ended = time.perf_counter()

    watch = Watch()
    trainer = Timed(
        model=network,
        args=TrainingArguments(
            output_dir=str(out),
            per_device_train_batch_size=settings["batch_size"],
            per_device_eval_batch_size=64,
            learning_rate=settings["lr"],
            num_train_epochs=settings["epochs"],
            warmup_steps=settings["warmup"],
            weight_decay=settings["weight_decay"],
            max_grad_norm=settings["clip"],
            lr_scheduler_type="linear",
            eval_strategy="epoch",
            save_strategy="epoch",
            save_only_model=True,
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model=chooses,
            greater_is_better=True,
            logging_strategy="epoch",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=seed,
            use_cpu=device == "cpu",
        ),
        train_dataset=prepared.train,
        eval_dataset=prepared.dev,
        data_collator=prepared.collator,
        compute_metrics=lambda found: score(task, gold, prepared.decode(found.predictions)),
        callbacks=[watch],
    )
    trainer.train()
    training_seconds = watch.ended - watch.began - trainer.paused
    return {
        "predictions": prepared.decode(trainer.predict(prepared.dev).predictions),
        "training_seconds": training_seconds,
        "tokenise_seconds": tokenise_seconds,
        "sequences": len(prepared.train),
        "steps": trainer.state.global_step,
    }
