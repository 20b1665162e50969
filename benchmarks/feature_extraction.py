"""Named entities from the features of a frozen encoder: the six choices of BERT's table 7.

    python benchmarks/feature_extraction.py --data DIR [--model minilm] [--context] [--seeds 3]

A bidirectional LSTM of two layers reads the features of each word's first token. DIR has the files
train.conll.gz and dev.conll.gz; of dev one half chooses the epoch and the other is measured. With
`--context` a sentence is encoded between its neighbours of the same document, as many as fit
(`-DOCSTART-` lines separate documents; without any, the file is one document), and only its own
words are read.

Source: Devlin et al. 2019, section 5.3.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import statistics
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import filbert
from filbert.batch import pack
from filbert.inference.predictor import Predictor
from filbert.lineage.elmo import ScalarMix
from filbert.metrics.entities import entity_metrics
from filbert.model.encoder import hidden_states

Sentence = tuple[list[str], list[str]]

# Which of the states of all layers, the embeddings first, and whether they are summed with trained
# weights or stand side by side.
CHOICES = {
    "embeddings": (slice(0, 1), False),
    "second-to-last hidden": (slice(-2, -1), False),
    "last hidden": (slice(-1, None), False),
    "weighted sum of the last four": (slice(-4, None), True),
    "last four side by side": (slice(-4, None), False),
    "weighted sum of all layers": (slice(1, None), True),
}


def read(path: Path, most: int) -> list[list[Sentence]]:
    """Return the documents of a file, each a list of sentences: words and tags."""
    documents: list[list[Sentence]] = [[]]
    words: list[str] = []
    tags: list[str] = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in [*file, ""]:
            fields = line.split()
            if not fields or fields[0] == "-DOCSTART-":
                if words:
                    documents[-1].append((words, tags))
                    words, tags = [], []
                if fields:
                    documents.append([])
                continue
            words.append(fields[0])
            tags.append(fields[-1])
    kept, count = [], 0
    for document in documents:
        kept.append(document[: most - count])
        count += len(kept[-1])
    return [document for document in kept if document]


def tokens_of(model: Predictor, words: list[str]) -> list[list[int]]:
    """Return the tokens of each word, at least one."""
    unknown = [model.tokenizer.unk_id or 0]
    return [e.input_ids.tolist()[1:-1] or unknown for e in model.tokenizer.encode(words)]


def with_context(
    sentences: list[list[list[int]]], number: int, limit: int, neighbours: bool
) -> tuple[list[int], list[int]]:
    """Return a row of tokens without special ones, and the places of the words' first tokens.

    Args:
        sentences: Tokens of the words of each sentence of a document.
        number: The sentence whose words are read.
        limit: Most tokens.
        neighbours: Fill the row with the tokens before and after the sentence.
    """
    flat = [[token for word in sentence for token in word] for sentence in sentences]
    own = flat[number][:limit]
    before = [token for sentence in flat[:number] for token in sentence] if neighbours else []
    after = [token for sentence in flat[number + 1 :] for token in sentence] if neighbours else []
    free = limit - len(own)
    left = min(len(before), max(free // 2, free - len(after)))
    row = before[len(before) - left :] + own + after[: free - left]
    places, at = [], left
    for word in sentences[number]:
        places.append(min(at, left + len(own) - 1))
        at += len(word)
    return row, places


@torch.inference_mode()
def features(model: Predictor, documents: list[list[Sentence]], neighbours: bool) -> list[Tensor]:
    """Return the states of each sentence's words, float32 (words, layers, H)."""
    encoder, tokenizer = model.model.encoder, model.tokenizer
    numbers = tuple(range(model.model.config.num_hidden_layers + 1))
    limit = min(model.model.config.max_tokens_per_sequence, 256) - 2
    found = []
    for document in documents:
        sentences = [tokens_of(model, words) for words, _ in document]
        for number in range(len(sentences)):
            row, places = with_context(sentences, number, limit, neighbours)
            batch = pack([[tokenizer.cls_id, *row, tokenizer.sep_id]])
            states = hidden_states(encoder, batch, numbers).unflatten(-1, (len(numbers), -1))
            found.append(states[[place + 1 for place in places]].clone())
    return found


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers and an output for each tag.

    It reads states of words, (words, layers, H).
    """

    def __init__(self, shape: torch.Size, num_tags: int, is_sum: bool, hidden: int = 128) -> None:
        super().__init__()
        self.mix = ScalarMix(shape[0]) if is_sum else None
        width = shape[1] if is_sum else shape.numel()
        self.lstm = nn.LSTM(width, hidden, 2, batch_first=True, bidirectional=True, dropout=0.3)
        self.out = nn.Linear(2 * hidden, num_tags)

    def forward(self, words: list[Tensor]) -> Tensor:
        """Return the scores of all words, one sentence after the other."""
        words = [self.mix(w.unbind(1)) if self.mix else w.flatten(1) for w in words]
        packed = nn.utils.rnn.pack_sequence(words, enforce_sorted=False)
        states, lengths = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        kept = torch.cat([row[:length] for row, length in zip(states, lengths, strict=True)])
        return self.out(F.dropout(kept, 0.3, self.training))  # type: ignore[no-any-return]


def f1_of(tagger: Tagger, rows: list[Tensor], gold: list[list[str]], names: list[str]) -> float:
    """Return the entity F1 of a tagger."""
    tagger.eval()
    with torch.inference_mode():
        answers = [[names[i] for i in tagger([row]).argmax(-1).tolist()] for row in rows]
    return float(entity_metrics(gold, answers)["f1"])


def trained(
    train: list[Tensor], targets: list[Tensor], dev: tuple[list[Tensor], list[list[str]]],
    names: list[str], is_sum: bool, seed: int, epochs: int,
) -> Tagger:  # fmt: skip
    """Train a tagger and return that of the epoch that is best on dev."""
    torch.manual_seed(seed)
    tagger = Tagger(train[0].shape[1:], len(names), is_sum)
    adam, best, kept = torch.optim.Adam(tagger.parameters(), 2e-3), -1.0, copy.deepcopy(tagger)
    for _ in range(epochs):
        tagger.train()
        for part in torch.randperm(len(train)).split(16):
            logits = tagger([train[i] for i in part])
            loss = F.cross_entropy(logits, torch.cat([targets[i] for i in part]))
            adam.zero_grad()
            loss.backward()
            adam.step()
        score = f1_of(tagger, *dev, names)
        if score > best:
            best, kept = score, copy.deepcopy(tagger)
    return kept


def main() -> None:
    """Print a row for each choice: the mean entity F1 over the seeds, and its deviation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--context", action="store_true")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = filbert.load(options.model)
    parts = {
        name: read(options.data / f"{name}.conll.gz", options.rows) for name in ("train", "dev")
    }
    states = {name: features(model, part, options.context) for name, part in parts.items()}
    tags = {name: [row for document in part for _, row in document] for name, part in parts.items()}
    names = sorted({tag for row in tags["train"] for tag in row})
    known = [[tag if tag in names else "O" for tag in row] for row in tags["train"]]
    targets = [torch.tensor([names.index(tag) for tag in row]) for row in known]
    half = len(tags["dev"]) // 2
    print(f"{len(targets)} sentences, {half} to choose by, {len(tags['dev']) - half} measured")
    for choice, (layers, is_sum) in CHOICES.items():
        rows = {name: [words[:, layers] for words in part] for name, part in states.items()}
        scores = []
        for seed in range(options.seeds):
            dev = (rows["dev"][:half], tags["dev"][:half])
            tagger = trained(rows["train"], targets, dev, names, is_sum, seed, options.epochs)
            scores.append(f1_of(tagger, rows["dev"][half:], tags["dev"][half:], names))
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        print(f"{choice:30} F1 {statistics.mean(scores):.4f} ± {spread:.4f}", flush=True)


if __name__ == "__main__":
    main()
