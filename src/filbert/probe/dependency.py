"""How much of a dependency tree is in the attention maps: classifiers that read all heads at once.

K features of a pair of words, w words of one sentence, E width of the word table.

For a dependent j the probability that word i is its head is the softmax over i of

    sum over k of (w_k + A_k v_i + B_k v_j) f_kji

where f are the attention weights of all heads, in both directions, and v vectors of the words that
know no context: rows of the model's own word table. The attention-only classifier has w alone.
Source: Clark et al. 2019, section 5 (with GloVe for v). The loss is convex and starts at zero, so
there is no seed to average over; the classifier of distances and words alone has a hidden layer, as
the paper's has, and a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.errors import ConfigError, InputError
from filbert.inspection.head_relations import PUNCTUATION
from filbert.inspection.heads import maps_of
from filbert.inspection.maps import merged
from filbert.inspection.treebank import Tree, words_of
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model
from filbert.text.encoding import Encoding

# Offsets that the baseline tells apart, on each side; all beyond are one.
NEAR = 5
HIDDEN_SIZE = 256  # of the baseline that reads words and distances
# Numbers of a training batch's features that are computed at once, float32: 128 MiB.
MAX_FEATURES = 2**25
# So many rounds over the training sentences, but no fewer steps than these.
EPOCHS = 10
MIN_STEPS = 400
BATCH_SENTENCES = 16
LEARNING_RATE = 0.05
DISTANCE_RATE = 0.003  # with a hidden layer
WEIGHT_DECAY = 1e-3  # of the weights that read words
RESAMPLES = 1000

DISTANCE = "distance and words"
KINDS = {
    "fixed offset": "the best fixed distance, chosen on the training sentences",
    DISTANCE: "the words and how far apart they are, no attention; one hidden layer",
    "attention": "all heads, both directions",
    "untrained attention and words": "the same embeddings under layers drawn anew",
    "attention and words": "all heads, both directions, and the words",
}


@dataclass(frozen=True, eq=False)
class ProbeSentence:
    """What the classifiers see of one sentence.

    Attributes:
        attention: float16 (K, w, w) between words, rows are who looks.
        untrained: the same of the model with fresh layers; see `untrained`.
        words: float32 (w, E), from the word table.
        heads: int64 (w,), from 0; -1 for words that are not asked about.
    """

    attention: Tensor
    untrained: Tensor
    words: Tensor
    heads: Tensor


@dataclass(frozen=True)
class ProbeScore:
    """How often a classifier of one kind finds the head.

    Attributes:
        kind: of KINDS.
        uas: unlabelled attachment score on the judged sentences, punctuation and roots aside.
        low, high: 95 % of resamples of the sentences lie between these.
    """

    kind: str
    uas: float
    low: float
    high: float


def probe_sentences(
    model: Model, trees: Sequence[Tree], encodings: Sequence[Encoding], *, seed: int = 0
) -> list[ProbeSentence]:
    """The features of every sentence.

    Args:
        model: a transformer in eval mode.
        trees: of the sentences.
        encodings: of `tree.text`, with offsets, none of them cut.
        seed: of the untrained model.

    Raises:
        ConfigError: the model has no attention.
    """
    fresh = untrained(model, seed)
    table = model.encoder.embeddings.word.weight.detach().float().cpu()
    found = []
    maps = zip(maps_of(model, encodings), maps_of(fresh, encodings), strict=True)
    for tree, encoding, (own, other) in zip(trees, encodings, maps, strict=True):
        belongs = words_of(encoding, tree)
        count = len(tree.words)
        vectors = torch.zeros(count, table.shape[1])
        tokens = torch.from_numpy(np.flatnonzero(belongs >= 0))
        at = torch.from_numpy(belongs)[tokens]
        rows = table[torch.from_numpy(encoding.input_ids.astype(np.int64))[tokens]]
        sizes = torch.bincount(at, minlength=count).clamp_min(1)
        vectors = vectors.index_add(0, at, rows) / sizes[:, None]
        attention, drawn = (
            torch.from_numpy(merged(some.flatten(0, 1).numpy(), belongs, count)).half()
            for some in (own, other)
        )
        found.append(ProbeSentence(attention, drawn, vectors, _asked(tree, belongs)))
    return found


def _asked(tree: Tree, belongs: np.ndarray) -> Tensor:
    """The head of every word that counts, else -1."""
    has_token = np.isin(np.arange(len(tree.words)), belongs)
    is_mark = np.array([name.split(":")[0] == PUNCTUATION for name in tree.relations])
    known = (tree.heads >= 0) & ~is_mark & has_token & has_token[tree.heads]
    return torch.from_numpy(np.where(known, tree.heads, -1))


def untrained(model: Model, seed: int = 0) -> Model:
    """A model of the same shape with the same embeddings, whose layers are drawn anew.

    Source: Clark et al. 2019, section 5: pre-trained word and position tables, the rest random.
    """
    assert isinstance(model.encoder, Encoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Encoder(model.config)
        initialize(encoder, model.config.initializer_range)
    encoder.embeddings.load_state_dict(model.encoder.embeddings.state_dict())
    return Model(encoder).to(model.device).eval()


class Probe(nn.Module):
    """Scores for every pair of words; all weights begin at zero."""

    def __init__(self, num_features: int, width: int | None) -> None:
        """`width`: of the words' vectors; None: they are not read."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_features))
        self.of_head = self.of_dependent = None
        if width is not None:
            self.of_head = nn.Parameter(torch.zeros(num_features, width))
            self.of_dependent = nn.Parameter(torch.zeros(num_features, width))

    def forward(self, features: Tensor, words: Tensor) -> Tensor:
        """Scores (S, w, w) from (S, K, w, w) and (S, w, E): row j holds those of j's heads."""
        scores = torch.einsum("skji,k->sji", features, self.weight)
        if self.of_head is not None and self.of_dependent is not None:
            scores = scores + torch.einsum("skji,sik->sji", features, words @ self.of_head.T)
            scores = scores + torch.einsum("skji,sjk->sji", features, words @ self.of_dependent.T)
        is_itself = torch.eye(words.shape[1], dtype=torch.bool)
        found: Tensor = scores.masked_fill(is_itself, -torch.inf)
        return found


class DistanceProbe(nn.Module):
    """Scores for every pair of words from the two words and their distance: one hidden layer."""

    def __init__(self, num_features: int, width: int) -> None:
        """`num_features`: of the distance; `width`: of the words' vectors."""
        super().__init__()
        self.of_pair = nn.Linear(num_features, HIDDEN_SIZE)
        self.of_head = nn.Linear(width, HIDDEN_SIZE, bias=False)
        self.of_dependent = nn.Linear(width, HIDDEN_SIZE, bias=False)
        self.score = nn.Linear(HIDDEN_SIZE, 1)

    def forward(self, features: Tensor, words: Tensor) -> Tensor:
        """As `Probe.forward`."""
        pairs = self.of_pair(features.permute(0, 2, 3, 1))  # (S, w, w, HIDDEN_SIZE)
        hidden = pairs + self.of_head(words)[:, None] + self.of_dependent(words)[:, :, None]
        scores = self.score(hidden.relu())[..., 0]
        found: Tensor = scores.masked_fill(torch.eye(words.shape[1], dtype=torch.bool), -torch.inf)
        return found


def features_of(sentence: ProbeSentence, kind: str) -> Tensor:
    """What a classifier of a kind reads of pairs, float32 (K, w, w).

    Of the distance both which it is and, in tens of words, how far to the right and to the left.
    """
    if kind == DISTANCE:
        count = len(sentence.heads)
        step = torch.arange(count) - torch.arange(count)[:, None]
        bucket = step.clamp(-NEAR - 1, NEAR + 1) + NEAR + 1
        which = F.one_hot(bucket, 2 * NEAR + 3).permute(2, 0, 1)
        return torch.cat([which, torch.stack([step, -step]).clamp_min(0) / 10])
    weights = sentence.untrained if kind.startswith("untrained") else sentence.attention
    return torch.cat([weights, weights.transpose(1, 2)]).float()


def study_dependencies(
    train: Sequence[ProbeSentence], dev: Sequence[ProbeSentence], *, steps: int | None = None
) -> list[ProbeScore]:
    """Train every kind of KINDS on some sentences and judge it on others.

    Args:
        train: to learn from.
        dev: to be judged on; no sentence of `train`.
        steps: of training, for every classifier.

    Raises:
        InputError: there is no dependency in one of the two.
    """
    for name, sentences in (("training", train), ("judged", dev)):
        if not any((s.heads >= 0).any() for s in sentences):
            raise InputError(f"There is no dependency between two words in the {name} sentences.")
    return [_judged(kind, _found(kind, train, dev, steps), dev) for kind in KINDS]


def _found(
    kind: str, train: Sequence[ProbeSentence], dev: Sequence[ProbeSentence], steps: int | None
) -> Iterator[Tensor]:
    """The heads that a classifier finds in every judged sentence, int64 (w,)."""
    if kind == "fixed offset":
        offsets = torch.cat([(s.heads - torch.arange(len(s.heads)))[s.heads >= 0] for s in train])
        values, counts = np.unique(offsets.numpy(), return_counts=True)
        best = int(values[counts.argmax()])
        yield from (torch.arange(len(s.heads)) + best for s in dev)
        return
    spread = float(torch.cat([s.words for s in train]).std().clamp_min(1e-12))
    probe = train_probe(kind, train, spread, steps=steps)
    for sentence in dev:
        batch = _Batch.of([sentence], kind, spread)
        with torch.no_grad():
            yield probe(batch.features, batch.words)[0].argmax(1)


@dataclass(frozen=True, eq=False)
class _Batch:
    """S sentences with zeros in the empty places: (S, K, w, w), (S, w, E), heads (S, w) or -1.

    Empty places get the score 0 and are not told from words without attention, so training masks
    them: `unseen` (S, 1, w) is True there.
    """

    features: Tensor
    words: Tensor
    heads: Tensor
    unseen: Tensor

    @classmethod
    def of(cls, sentences: Sequence[ProbeSentence], kind: str, spread: float) -> _Batch:
        longest = max(len(s.heads) for s in sentences)
        parts = [features_of(sentence, kind) for sentence in sentences]
        gaps = [longest - len(s.heads) for s in sentences]
        # Words of length near 1, whatever the size of the table's numbers.
        scale = spread * sentences[0].words.shape[1] ** 0.5
        places = torch.arange(longest)
        return cls(
            torch.stack([F.pad(p, (0, gap, 0, gap)) for p, gap in zip(parts, gaps, strict=True)]),
            torch.stack(
                [
                    F.pad(s.words / scale, (0, 0, 0, gap))
                    for s, gap in zip(sentences, gaps, strict=True)
                ]
            ),
            torch.stack(
                [F.pad(s.heads, (0, gap), value=-1) for s, gap in zip(sentences, gaps, strict=True)]
            ),
            torch.stack([places >= longest - gap for gap in gaps])[:, None],
        )


def train_probe(
    kind: str, train: Sequence[ProbeSentence], spread: float, *, steps: int | None = None
) -> Probe | DistanceProbe:
    """A classifier of one kind, by Adam with a falling learning rate.

    Args:
        kind: of KINDS, one that reads more than an offset.
        train: sentences.
        spread: standard deviation of the words' numbers.
        steps: of BATCH_SENTENCES sentences each.

    Raises:
        ConfigError: the number of steps is not above zero.
    """
    asked = [sentence for sentence in train if (sentence.heads >= 0).any()]
    if steps is None:
        steps = max(MIN_STEPS, EPOCHS * -(-len(asked) // BATCH_SENTENCES))
    if steps < 1:
        raise ConfigError(f"steps is {steps}; it must be above zero.")
    width = asked[0].words.shape[1]
    num_features = len(features_of(asked[0], kind))
    probe: Probe | DistanceProbe
    if kind == DISTANCE:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            probe = DistanceProbe(num_features, width)
    else:
        probe = Probe(num_features, width if kind.endswith("words") else None)
    rate = DISTANCE_RATE if kind == DISTANCE else LEARNING_RATE
    plain: list[nn.Parameter] = []
    words: list[nn.Parameter] = []
    for name, parameter in probe.named_parameters():
        (words if name.startswith(("of_head", "of_dependent")) else plain).append(parameter)
    groups = [{"params": plain, "weight_decay": 0.0}]
    if words:
        groups.append({"params": words, "weight_decay": WEIGHT_DECAY})
    optimizer = torch.optim.Adam(groups, lr=rate)
    draw = torch.Generator().manual_seed(0)
    waiting: list[int] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
        if not waiting:
            waiting = torch.randperm(len(asked), generator=draw).tolist()
        chosen, waiting = waiting[:BATCH_SENTENCES], waiting[BATCH_SENTENCES:]
        sentences = [asked[i] for i in chosen]
        count = sum(int((s.heads >= 0).sum()) for s in sentences)
        depth = HIDDEN_SIZE if kind == DISTANCE else num_features
        optimizer.zero_grad()
        for part in _parts(sentences, MAX_FEATURES // depth):
            batch = _Batch.of(part, kind, spread)
            scores = probe(batch.features, batch.words).masked_fill(batch.unseen, -torch.inf)
            rows = batch.heads >= 0
            loss = F.cross_entropy(scores[rows], batch.heads[rows], reduction="sum") / count
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return probe


def _parts(sentences: Sequence[ProbeSentence], max_pairs: int) -> Iterator[list[ProbeSentence]]:
    """Sentences of a batch, like lengths together, in parts of at most so many pairs of words."""
    part: list[ProbeSentence] = []
    for sentence in sorted(sentences, key=lambda s: len(s.heads)):
        if part and (len(part) + 1) * len(sentence.heads) ** 2 > max_pairs:
            yield part
            part = []
        part.append(sentence)
    yield part


def _judged(kind: str, found: Iterator[Tensor], dev: Sequence[ProbeSentence]) -> ProbeScore:
    """The score, and how far it moves when other sentences of the same kind are drawn."""
    pairs = list(zip(found, dev, strict=True))
    right = np.array([int(((f == s.heads) & (s.heads >= 0)).sum()) for f, s in pairs])
    words = np.array([int((s.heads >= 0).sum()) for s in dev])
    draws = np.random.default_rng(0).integers(0, len(dev), (RESAMPLES, len(dev)))
    moved = right[draws].sum(1) / np.maximum(words[draws].sum(1), 1)
    low, high = np.quantile(moved, (0.025, 0.975))
    return ProbeScore(kind, float(right.sum() / words.sum()), float(low), float(high))
