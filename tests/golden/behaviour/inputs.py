"""Inputs of the record: texts, rows and checkpoints made of fixed numbers, written as plain files.

Nothing here imports filbert or torch. Numbers are raw PCG64 words, whose stream numpy guarantees;
the arithmetic on them is exact, so every machine writes the same bytes.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "a", "film", "was", "not", "very", "good", "bad", "and", "he", "she", "it"]
WORDS += ["to", "see", "great", "play", "run", "new", "old", "long"]
PIECES = ["##ly", "##ing", "##ed", "##s", ",", ".", "!", "?", "'", "1", "2", "3", "##a", "##b"]
VOCABULARY = [*SPECIALS, *WORDS, *PIECES]
LABELS = ("neg", "pos", "new")
TAGS = ("O", "B-FILM", "I-FILM")
HIDDEN, WIDE, LAYERS, POSITIONS, NARROW = 16, 24, 2, 66, 8

TEXTS = [
    "the film was not very good",
    "Bad!",
    "he and she see the plays , the play was long and very very good .",
    "Zürich it's 12.3 \u4f60\u597d naïve\tplaying",
    "",
]
PAIRS = [("the film was good", "she was not"), ("a play", "it was a very long old film , he see")]


def raw(name: str, count: int) -> np.ndarray:
    """uint64 numbers that the name determines."""
    return np.random.PCG64(zlib.crc32(name.encode())).random_raw(count)


def floats(name: str, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """float32 numbers in [-scale, scale), exact on every machine; `scale` is a power of two."""
    words = raw(name, int(np.prod(shape))) >> np.uint64(41)
    return ((words.astype(np.float64) / 2**22 - 1) * scale).astype(np.float32).reshape(shape)


class Draw:
    """Whole numbers below a bound, one after another."""

    def __init__(self, name: str) -> None:
        self.numbers = iter(raw(name, 100_000).tolist())

    def below(self, bound: int) -> int:
        return next(self.numbers) % bound

    def words(self, low: int, high: int) -> list[str]:
        return [WORDS[self.below(len(WORDS))] for _ in range(low + self.below(high - low + 1))]


def row_of(task: str, draw: Draw, number: int) -> dict[str, Any]:
    """One labelled row; what is wanted depends on its words."""
    words = draw.words(3, 14)
    text = " ".join(words)
    score = sum(w in ("good", "great", "very", "new") for w in words) + draw.below(2)
    if task == "binary":
        return {"text": text, "label": LABELS[score % 2]}
    if task == "classes":
        return {"text": text, "label": LABELS[score % 3]}
    if task == "pairs":
        return {"text": text, "text_pair": " ".join(draw.words(2, 8)), "label": LABELS[score % 2]}
    if task == "multilabel":
        return {"text": text, "labels": [label for i, label in enumerate(LABELS) if score >> i & 1]}
    if task == "regression":
        return {"text": text, "label": score / 2}
    if task == "tagging":
        tags, inside = [], False
        for word in words:
            film = word in ("film", "play", "new", "old")
            tags.append(("I-FILM" if inside else "B-FILM") if film else "O")
            inside = film
        return {"tokens": words, "tags": tags}
    if task == "multiple_choice":
        choices = [" ".join(draw.words(1, 5)) for _ in range(3)]
        return {"context": text, "choices": choices, "label": score % 3}
    if task == "embedding":
        return {"text": text, "text_pair": " ".join(draw.words(2, 8)) + f" {number}"}
    assert task in ("span_qa", "span_qa_v2")
    context = f"{text} film {' '.join(draw.words(2, 30))}"
    answers = [{"text": "film", "answer_start": len(text) + 1}]
    if task == "span_qa_v2" and number % 3 == 0:
        answers = []
    question = " ".join(draw.words(2, 5)) + " ?"
    return {"id": str(number), "question": question, "context": context, "answers": answers}


# name of a set of rows -> the task that reads it
ROWS = {
    "binary": "classification",
    "classes": "classification",
    "pairs": "classification",
    "multilabel": "classification",
    "regression": "regression",
    "tagging": "tagging",
    "span_qa": "span_qa",
    "span_qa_v2": "span_qa",
    "multiple_choice": "multiple_choice",
    "embedding": "embedding",
}


def write_rows(folder: Path) -> None:
    """NAME.train.jsonl and NAME.dev.jsonl of every set, and bad.csv, which has what is wrong."""
    folder.mkdir(parents=True)
    for name in ROWS:
        for part, count in (("train", 32), ("dev", 16)):
            draw = Draw(f"{name} {part}")
            lines = [json.dumps(row_of(name, draw, i)) for i in range(count)]
            (folder / f"{name}.{part}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    bad = "text,label\ngood,a\ngood,b\n,a\nbad,a,extra\nfilm,b\nfilm,b\nthe film,B\n"
    (folder / "bad.csv").write_text(bad, "utf-8")
    (folder / "texts.txt").write_text("\n".join(t for t in TEXTS if "\t" not in t) + "\n", "utf-8")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    conll = "the O\nold B-FILM\nfilm I-FILM\n\nhe O\nplay B-FILM\n\n" * 3
    (folder / "tags.conll").write_text(conll, "utf-8")
    _write_squad(folder)


def _write_squad(folder: Path) -> None:
    """The same questions as SQuAD 2.0 publishes them, and answers made elsewhere."""
    rows = [json.loads(x) for x in (folder / "span_qa_v2.dev.jsonl").read_text().splitlines()]
    paragraphs = [
        {
            "context": row["context"],
            "qas": [
                {
                    "id": row["id"],
                    "question": row["question"],
                    "answers": row["answers"],
                    "is_impossible": not row["answers"],
                }
            ],
        }
        for row in rows
    ]
    squad = {"version": "v2.0", "data": [{"title": "films", "paragraphs": paragraphs}]}
    (folder / "squad.json").write_text(json.dumps(squad), "utf-8")
    answers = {row["id"]: ["film", "", "the film"][i % 3] for i, row in enumerate(rows)}
    (folder / "answers.json").write_text(json.dumps(answers), "utf-8")


def write_corpora(folder: Path) -> None:
    """train.txt of 40 documents and dev.txt of 8, a blank line between them; one document twice."""
    folder.mkdir(parents=True)
    for name, count in (("train", 40), ("dev", 8)):
        draw = Draw(f"corpus {name}")
        documents = []
        for _ in range(count):
            sentences = [f"{' '.join(draw.words(2, 12))} ." for _ in range(1 + draw.below(7))]
            documents.append(" ".join(s[0].upper() + s[1:] for s in sentences))
        documents.append(documents[0])
        (folder / f"{name}.txt").write_text("\n\n".join(documents) + "\n", "utf-8")


def write_vocabulary(folder: Path) -> None:
    """vocab.txt of an uncased WordPiece vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", "utf-8")


Shapes = dict[str, tuple[int, ...]]


def linear(name: str, out: int, wide: int = HIDDEN, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (out, wide)} | ({f"{name}.bias": (out,)} if bias else {})


def norm(name: str, width: int = HIDDEN, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (width,)} | ({f"{name}.bias": (width,)} if bias else {})


def _tables(prefix: str, vocab: int, width: int, types: int, positions: int = POSITIONS) -> Shapes:
    found = {f"{prefix}.word_embeddings.weight": (vocab, width)}
    found[f"{prefix}.position_embeddings.weight"] = (positions, width)
    if types:
        found[f"{prefix}.token_type_embeddings.weight"] = (types, width)
    return found | norm(f"{prefix}.LayerNorm", width)


def _layer(place: str, names: str) -> Shapes:
    """Query, key, value, out, norm, up, down, norm; their names stand between blanks."""
    *products, out, first, up, down, second = [f"{place}.{name}" for name in names.split()]
    found: Shapes = {}
    for name in (*products, out):
        found |= linear(name, HIDDEN)
    found |= norm(first) | linear(up, WIDE) | linear(down, HIDDEN, WIDE) | norm(second)
    return found


BERT_LAYER = (
    "attention.self.query attention.self.key attention.self.value attention.output.dense "
    "attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm"
)
DISTILBERT_LAYER = (
    "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm "
    "ffn.lin1 ffn.lin2 output_layer_norm"
)
ALBERT_LAYER = (
    "attention.query attention.key attention.value attention.dense attention.LayerNorm "
    "ffn ffn_output full_layer_layer_norm"
)


def _modernbert_encoder(vocab: int) -> Shapes:
    found: Shapes = {"model.embeddings.tok_embeddings.weight": (vocab, HIDDEN)}
    found |= norm("model.embeddings.norm", bias=False) | norm("model.final_norm", bias=False)
    for number in range(LAYERS):
        place = f"model.layers.{number}"
        found |= linear(f"{place}.attn.Wqkv", 3 * HIDDEN, bias=False)
        found |= linear(f"{place}.attn.Wo", HIDDEN, bias=False)
        found |= norm(f"{place}.attn_norm", bias=False) if number else {}
        found |= norm(f"{place}.mlp_norm", bias=False)
        found |= linear(f"{place}.mlp.Wi", 2 * WIDE, bias=False)
        found |= linear(f"{place}.mlp.Wo", HIDDEN, WIDE, bias=False)
    return found


def _encoder(family: str, vocab: int) -> Shapes:
    if family == "modernbert":
        return _modernbert_encoder(vocab)
    layers = range(LAYERS)
    if family == "distilbert":
        found = _tables("distilbert.embeddings", vocab, HIDDEN, 0)
        for number in layers:
            found |= _layer(f"distilbert.transformer.layer.{number}", DISTILBERT_LAYER)
        return found
    if family == "albert":
        found = _tables("albert.embeddings", vocab, NARROW, 2)
        found |= linear("albert.encoder.embedding_hidden_mapping_in", HIDDEN, NARROW)
        place = "albert.encoder.albert_layer_groups.0.albert_layers.0"
        return found | _layer(place, ALBERT_LAYER)
    if family == "electra":
        found = _tables("electra.embeddings", vocab, NARROW, 2)
        found |= linear("electra.embeddings_project", HIDDEN, NARROW)
    elif family == "bert":
        found = _tables("bert.embeddings", vocab, HIDDEN, 2)
    else:
        found = _tables("roberta.embeddings", vocab, HIDDEN, 1)
    prefix = family if family in ("bert", "electra") else "roberta"
    for number in layers:
        found |= _layer(f"{prefix}.encoder.layer.{number}", BERT_LAYER)
    return found


# Modules of a head's own: kind of head -> shapes. None of them repeats a tied word table.
def _head(family: str, head: str, vocab: int, labels: int) -> Shapes:
    lm_bias = {"cls.predictions.bias": (vocab,)}
    masked = linear("cls.predictions.transform.dense", HIDDEN)
    masked |= norm("cls.predictions.transform.LayerNorm") | lm_bias
    if family == "modernbert":
        found = linear("head.dense", HIDDEN, bias=False) | norm("head.norm", bias=False)
        masked = found | {"decoder.bias": (vocab,)}
        rest = {"sequence": labels, "tokens": labels, "choices": 1, "spans": 2}
        heads = {kind: found | linear("classifier", n) for kind, n in rest.items()}
        return ({"bare": {}, "masked": masked} | heads)[head]
    sequence, choices = linear("classifier", labels), linear("classifier", 1)
    bare: Shapes = {}
    if family == "bert":
        bare = linear("bert.pooler.dense", HIDDEN)
        sequence, choices = bare | sequence, bare | choices
    elif family == "albert":
        bare = linear("albert.pooler", HIDDEN)
        sequence, choices = bare | sequence, bare | choices
        masked = linear("predictions.dense", NARROW) | norm("predictions.LayerNorm", NARROW)
        masked |= {"predictions.bias": (vocab,)}
    elif family == "distilbert":
        first = linear("pre_classifier", HIDDEN)
        sequence, choices = first | sequence, first | choices
        masked = linear("vocab_transform", HIDDEN) | norm("vocab_layer_norm")
        masked |= {"vocab_projector.bias": (vocab,)}
    else:
        sequence = linear("classifier.dense", HIDDEN) | linear("classifier.out_proj", labels)
        if family == "electra":
            choices |= linear("sequence_summary.summary", HIDDEN)
            masked = linear("generator_predictions.dense", NARROW)
            masked |= norm("generator_predictions.LayerNorm", NARROW)
            masked |= {"generator_lm_head.bias": (vocab,)}
        else:
            choices |= linear("roberta.pooler.dense", HIDDEN)
            masked = linear("lm_head.dense", HIDDEN) | norm("lm_head.layer_norm")
            masked |= {"lm_head.bias": (vocab,)}
    return {
        "bare": bare,
        "masked": masked,
        "pretraining": bare | masked | linear("cls.seq_relationship", 2),
        "sequence": sequence,
        "choices": choices,
        "tokens": linear("classifier", labels),
        "spans": linear("qa_outputs", 2),
    }[head]


CLASSES = {
    "bare": "Model",
    "masked": "ForMaskedLM",
    "pretraining": "ForPreTraining",
    "sequence": "ForSequenceClassification",
    "choices": "ForMultipleChoice",
    "tokens": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
}
PREFIXES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "albert": "Albert",
    "electra": "Electra",
    "modernbert": "ModernBert",
}
HEADS = ("bare", "masked", "sequence", "tokens", "spans", "choices")


def config_of(family: str, head: str, vocab: int) -> dict[str, Any]:
    """config.json as transformers writes it; no dropout, so that training draws nothing for it."""
    config: dict[str, Any] = {
        "architectures": [PREFIXES[family] + CLASSES[head]],
        "model_type": family,
        "vocab_size": vocab,
        "max_position_embeddings": POSITIONS,
    }
    if family == "distilbert":
        config |= {"dim": HIDDEN, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": WIDE}
        return config | {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
    config |= {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    config |= {"intermediate_size": WIDE}
    if family == "modernbert":
        config |= {"local_attention": 8, "global_attn_every_n_layers": 2, "norm_eps": 1e-5}
        return config | {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config["type_vocab_size"] = 2 if family in ("bert", "albert", "electra") else 1
    if family in ("albert", "electra"):
        config["embedding_size"] = NARROW
    if family == "albert":
        config |= {"num_hidden_groups": 1, "classifier_dropout_prob": 0.0}
    if family == "electra":
        config["summary_last_dropout"] = 0.0
    if family in ("roberta", "xlm-roberta", "camembert"):
        config |= {"pad_token_id": 1, "layer_norm_eps": 1e-5}
    return config


def write_model(
    folder: Path,
    family: str,
    head: str,
    vocab: int,
    labels: tuple[str, ...] = (),
    problem: str = "",
) -> None:
    """A folder in Hugging Face's layout, without a tokenizer."""
    names = labels or (TAGS if head == "tokens" else LABELS)
    shapes = _encoder(family, vocab) | _head(family, head, vocab, len(names))
    tensors = {}
    for name, shape in shapes.items():
        is_norm = "norm" in name.lower() and name.endswith("weight")
        seed = f"{family} {name}"
        # Answers differ from text to text only under a head with large weights.
        scale = 1.0 if name.endswith(("classifier.weight", "out_proj.weight")) else 0.25
        tensors[name] = floats(seed, shape, 0.125) + 1 if is_norm else floats(seed, shape, scale)
    config = config_of(family, head, vocab)
    if head in ("sequence", "tokens"):
        config["id2label"] = {str(i): label for i, label in enumerate(names)}
        config["label2id"] = {label: i for i, label in enumerate(names)}
    if problem:
        config["problem_type"] = problem
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
