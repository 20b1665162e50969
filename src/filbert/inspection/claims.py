"""What a model says about a text, as one number that its words can be made responsible for.

n tokens of the claim, S copies of it in a batch, C classes, E width of the word table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from filbert.batch import PackedBatch, pack
from filbert.errors import ConfigError, InputError, printable
from filbert.inspection.word_numbers import with_words
from filbert.model.heads import Features, Head, Model
from filbert.predict import Predictor
from filbert.text.encoding import Encoding

Output = Callable[[Model, PackedBatch], Tensor]


@dataclass(frozen=True)
class Word:
    """A word as people read it, with the tokens that stand for it.

    Attributes:
        text: as it stands in the text, or the token's own name where it stands for no character.
        which: 0 for the first text, 1 for the second.
        start, end: characters [start, end) of that text.
        rows: its tokens, as places among the claim's n.
    """

    text: str
    which: int
    start: int
    end: int
    rows: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Claim:
    """An answer of a model and how strongly it is held.

    Attributes:
        kind: the task's name, "fill" or "similarity".
        says: the answer in words, such as 'label "toxic"'.
        target: the label, tag, answer or word; None for a number.
        unit: what the number is: "log-odds" (0 is fifty-fifty), "value" or "cosine".
        names: what the texts are called.
        texts: one or two, as the model reads them.
        tokens: n vocabulary entries.
        encodings: the sequences, end to end the n tokens; two for a similarity, else one.
        words: of the texts, in order.
        reads: the rows of the last layer that the head reads; None for what stands for a sequence.
        output: the head's output for a batch of S copies, (S, ...).
        number: the number of every copy from that output, float64 (S,).
        marks: what is spoken of, (which, start, end): the tagged word, the answer, the mask.
        notes: sentences about what is not shown.
        is_scale_free: whether every word vector is normalised by itself, before positions or
            anything else (ModernBERT), so that its length plays no part.
    """

    kind: str
    says: str
    target: str | None
    unit: str
    names: tuple[str, ...]
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    words: tuple[Word, ...]
    reads: tuple[int, ...] | None
    output: Output
    number: Callable[[Tensor], Tensor]
    marks: tuple[tuple[int, int, int], ...] = ()
    notes: tuple[str, ...] = ()
    is_scale_free: bool = False

    @property
    def num_tokens(self) -> int:
        """Number n."""
        return len(self.tokens)

    def batch(self, copies: int) -> PackedBatch:
        """S copies, end to end."""
        ids = [encoding.input_ids for encoding in self.encodings] * copies
        return pack(ids, [encoding.token_type_ids for encoding in self.encodings] * copies)

    def numbers(self, model: Model, vectors_SnE: Tensor) -> Tensor:
        """The claim's number for S ways to fill in its word vectors, float64 (S,).

        Args:
            model: of the claim, in eval mode; a hook that lives during this call replaces what its
                word table gives, while positions, token types and all else stay.
            vectors_SnE: on the model's device.
        """
        batch = self.batch(len(vectors_SnE)).to(model.device)
        vectors_TE = vectors_SnE.flatten(0, 1)
        hook = model.encoder.embeddings.word.register_forward_hook(
            lambda module, inputs, output: vectors_TE
        )
        try:
            return self.number(self.output(model, batch))
        finally:
            hook.remove()


def differentiable(predictor: Predictor) -> Model:
    """The predictor's model, if gradients go through it.

    Raises:
        ConfigError: it is an exported graph, or has rounded weights.
    """
    model = predictor.model
    if not isinstance(model, Model) or predictor.precision.name != "float32":
        raise ConfigError("Explanations need the original model in float32, not an int8 or ONNX.")
    if next(model.parameters()).dtype is not torch.float32:
        raise ConfigError("Explanations need the model in float32. Load it with that precision.")
    return model


def new_claim(
    predictor: Predictor,
    texts: Sequence[str],
    encodings: Sequence[Encoding],
    *,
    kind: str,
    names: tuple[str, ...],
    rows: Sequence[int] | None = None,
    head: Head | None = None,
) -> Claim:
    """A claim that says nothing yet: its words, and how its head is run.

    Args:
        predictor: whose model it is.
        texts: one or two, as the model reads them.
        encodings: with offsets: one of both texts, or one a text.
        kind: as of Claim.
        names: of the texts.
        rows: the rows that a head over tokens shall answer for.
        head: another than the model's.

    Raises:
        InputError: there is no word in the texts.
    """
    words: list[Word] = []
    begin = 0
    for number, encoding in enumerate(encodings):
        own = texts if len(encodings) == 1 else [texts[number]]
        words += words_of(own, encoding, predictor, shift=begin, which=number)
        begin += len(encoding.input_ids)
    if not words or not any(text.strip() for text in texts):
        raise InputError("The text is empty. Give one with words in it.")
    ids = np.concatenate([encoding.input_ids for encoding in encodings])
    config = predictor.model.config
    return Claim(
        kind=kind,
        says="",
        target=None,
        unit="log-odds",
        names=names,
        texts=tuple(texts),
        tokens=tuple(predictor.tokenizer.tokens(ids)),
        encodings=tuple(encodings),
        words=tuple(words),
        reads=None if rows is None else tuple(rows),
        output=head_output(rows, head),
        number=lambda output: output.double(),
        is_scale_free=config.rotary_base is not None and not config.type_vocab_size,
    )


def words_of(
    texts: Sequence[str], encoding: Encoding, predictor: Predictor, *, shift: int, which: int
) -> list[Word]:
    """The words of a sequence: what the vocabulary's splitting step or white space parts.

    Args:
        texts: that the sequence is made of.
        encoding: with offsets.
        predictor: knows the names of tokens that stand for no character.
        shift: tokens of the claim before this sequence.
        which: number of the first of these texts among the claim's.
    """
    encoding = with_words(encoding, texts)
    assert encoding.offsets is not None and encoding.words is not None
    assert encoding.sequence is not None
    groups: list[tuple[int, list[int]]] = []
    keys = zip(encoding.sequence.tolist(), encoding.words.tolist(), strict=True)
    for (side, _), group in groupby(enumerate(keys), key=itemgetter(1)):
        if side >= 0:
            groups.append((side, [row for row, _ in group]))
    found = []
    for side, rows in groups:
        first, last = int(encoding.offsets[rows, 0].min()), int(encoding.offsets[rows, 1].max())
        piece = texts[side][first:last]
        start, end = last - len(piece.lstrip()), first + len(piece.rstrip())
        name = texts[side][start:end]
        if not name:
            start = end = last
            name = "".join(predictor.tokenizer.tokens(encoding.input_ids[rows]))
        found.append(Word(name, which + side, start, end, tuple(row + shift for row in rows)))
    return found


def head_output(rows: Sequence[int] | None = None, head: Head | None = None) -> Output:
    """How a head is run over S copies of one sequence.

    Args:
        rows: K places of the sequence that a head over tokens shall answer for; all when None.
        head: another than the model's.

    Returns:
        A function that gives (S, C) for heads over sequences and (S, K, C) for those over tokens.
    """

    def output(model: Model, batch: PackedBatch) -> Tensor:
        chosen = head or model.head
        assert isinstance(chosen, Head)
        tokens_TH = model.encoder(batch)
        pooled_SH = model.encoder.pool(tokens_TH, batch) if chosen.reads_pooled else None
        table = model.encoder.embeddings.word.weight
        at = None
        if chosen.per_token and rows is not None:
            at = (batch.starts[:, None] + torch.tensor(rows, device=batch.starts.device)).flatten()
        made = chosen(Features(tokens_TH, pooled_SH, table, batch), at)
        assert isinstance(made, Tensor)
        return made.view(batch.num_sequences, -1, made.shape[-1]) if chosen.per_token else made

    return output


def log_odds(logits: Tensor, index: int) -> Tensor:
    """log(p / (1 - p)) of one class under a softmax, float64: (..., C) to (...).

    Unlike a logit it does not change when all logits are shifted, and unlike a probability it does
    not flatten out where a model is sure.
    """
    values = logits.double()
    others = torch.cat([values[..., :index], values[..., index + 1 :]], -1)
    return values[..., index] - others.logsumexp(-1)


def asked_label(target: str | None, labels: Sequence[str], usual: str, what: str) -> str:
    """The label that is to be explained: the one asked for, else the usual one.

    Raises:
        ConfigError: there is no such label.
    """
    if target is None:
        return usual
    if target not in labels:
        known = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        raise ConfigError(f"--target {printable(target)!r} is no {what} of this model: {known}.")
    return target


def refuse_target(target: str | None, why: str) -> None:
    """For claims with nothing to choose.

    Raises:
        ConfigError: something was chosen.
    """
    if target is not None:
        raise ConfigError(f"--target has no meaning here: {why}. Leave it out.")


def evaluated(claim: Claim, model: Model) -> Tensor:
    """The head's output for the claim as it stands, on the host, (...)."""
    with torch.inference_mode():
        return claim.output(model, claim.batch(1).to(model.device))[0].float().cpu()


def whole(predictor: Predictor, text: str | tuple[str, str]) -> Encoding:
    """A text or a pair as tokens, uncut.

    Raises:
        InputError: it is longer than the model reads at once.
    """
    (encoding,) = predictor.tokenizer.encode([text], with_offsets=True)
    if encoding.num_tokens > predictor.max_length:
        if getattr(predictor.task, "on_overflow", "") == "window":
            raise InputError(
                f"The text is {encoding.num_tokens} tokens with specials, which this model answers "
                f"by the mean over windows of {predictor.max_length}; one window at a time can be "
                "explained. Give a part of the text."
            )
        positions = predictor.model.config.max_tokens_per_sequence
        more = f", or pass --max-length (up to {positions})"
        raise InputError(
            f"The text is {encoding.num_tokens} tokens with specials, and the model reads "
            f"{predictor.max_length}. Explain a part of it"
            f"{more if positions > predictor.max_length else ''}."
        )
    return encoding


def quoted(text: str) -> str:
    """A text in a sentence."""
    return f'"{printable(text, 80)}"'
