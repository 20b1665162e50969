"""BERT over symbols that are no language, against unigrams and Markov chains on the same masks.

    python benchmarks/symbols.py python --out runs/python
    python benchmarks/symbols.py words --out runs/words --cmudict cmudict.dict

Rows have two streams. `python`: the tokens of a statement and the instructions that it becomes, of
the modules of the standard library of the Python that runs this (PSF licence). `words`: the letters
and the phonemes of an English word, from the CMU Pronouncing Dictionary (BSD licence; the package
`cmudict` has the file). Everything is learned from nine tenths of the modules or words. One symbol
of the second stream of each other row is masked; an interval is that of 2,000 bootstrap resamples
of the modules or words. Then a model is fine-tuned to tell whether two streams belong together.
"""

from __future__ import annotations

import argparse
import dis
import json
import random
import sysconfig
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import numpy as np
import torch

import filbert
from filbert.cli.main import run
from filbert.data.examples import Example
from filbert.inference.fill import read_masks
from filbert.text.tokenizer import Tokenizer

SIZES = "--num-hidden-layers 4 --hidden-size 128 --num-attention-heads 4 --batch-size 128"
SIZES += " --max-position-embeddings 128 --max-length 52 --steps {steps} --lr 1e-3 --seed 0"
RESAMPLES = 2_000
LEFT_OUT = ("test", "tests", "idlelib", "site-packages", "encodings", "__pycache__", "lib2to3")


# What a row belongs to, and its two streams.
Streams = tuple[str, list[str], list[str]]


class Masked(NamedTuple):
    """A held-out sequence: its ids with masks, token types, where it is masked, what was there."""

    group: str
    ids: np.ndarray
    types: np.ndarray
    at: np.ndarray
    labels: np.ndarray


def part_of(name: str) -> str:
    """Return train or test, one in ten, by a hash of the name."""
    return "test" if blake2b(name.encode(), digest_size=1).digest()[0] < 26 else "train"


# The symbols


def source_lines(path: Path) -> dict[int, list[str]]:
    """Return names, keywords, operators of each statement on one line; texts are one symbol."""
    kept, lines, current = {tokenize.NAME, tokenize.OP}, dict[int, list[str]](), list[str]()
    first = 0
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            kind = tokenize.tok_name[token.type].lower()
            if token.type == tokenize.NEWLINE:
                if first == token.start[0]:
                    lines[first] = current
                current = []
            elif kind not in ("comment", "nl", "indent", "dedent", "endmarker"):
                first = first if current else token.start[0]
                current.append(token.string if token.type in kept else f"<{kind}>")
    return lines


def opcode_lines(code: CodeType) -> Iterator[tuple[int, str]]:
    """Yield the instructions of a module with their lines, functions included."""
    for one in dis.get_instructions(code):
        if one.positions is not None and one.positions.lineno is not None:
            yield one.positions.lineno, one.opname
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from opcode_lines(constant)


def statements() -> Iterator[Streams]:
    """Yield different statements of the standard library: module, source tokens, instructions."""
    root, seen = Path(sysconfig.get_path("stdlib")), set[str]()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if set(place.parts) & set(LEFT_OUT):
            continue
        opcodes: dict[int, list[str]] = defaultdict(list)
        for line, name in opcode_lines(compile(path.read_bytes(), place.name, "exec")):
            opcodes[line].append(name)
        for line, tokens in source_lines(path).items():
            text = " ".join(tokens)
            if 3 <= len(tokens) <= 24 and 3 <= len(opcodes[line]) <= 24 and text not in seen:
                seen.add(text)
                yield str(place), tokens, opcodes[line]


def words(file: Path) -> Iterator[Streams]:
    """Yield words: each with its letters and the phonemes of its first pronunciation."""
    for line in file.read_text(encoding="utf-8").splitlines():
        word, *phonemes = line.partition("#")[0].split()
        if word.isalpha() and len(word) > 2:
            yield word, list(word), phonemes


def write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def filbert_run(command: str) -> None:
    print("filbert", command, flush=True)
    assert run(command.split()) == 0, command


# Markov chains


class Markov:
    """Symbols by their neighbours on both sides, smoothed by shorter contexts (Witten and Bell).

    Args:
        rows: Sequences of ids, special tokens included.
        most: Neighbours of a side.
        size: Entries of the vocabulary.
        drawn: Ids that occur as symbols; others have no probability.
    """

    def __init__(self, rows: Sequence[np.ndarray], most: int, size: int, drawn: set[int]) -> None:
        self.most = most
        self.uniform = np.zeros(size)
        self.uniform[list(drawn)] = 1 / len(drawn)
        self.counts: dict[tuple[tuple[int, ...], tuple[int, ...]], Counter[int]]
        self.counts = defaultdict(Counter)
        for ids in (row.tolist() for row in rows):
            for place, symbol in enumerate(ids):
                if symbol in drawn:
                    for context in self.contexts(ids, place, most, most):
                        self.counts[context][symbol] += 1

    @staticmethod
    def contexts(
        ids: Sequence[int], place: int, left: int, right: int
    ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the neighbours, the widest context last; each drops one of the longer side."""
        found = []
        while True:
            before = tuple(ids[max(0, place - left) : place])
            found.append((before, tuple(ids[place + 1 : place + 1 + right])))
            if not left and not right:
                return found[::-1]
            left, right = (left, right - 1) if right >= left else (left - 1, right)

    def probabilities(self, ids: Sequence[int], place: int, mask_id: int) -> np.ndarray:
        """Return the distribution at a mask, from neighbours up to the next mask of each side."""
        left = right = 0
        while left < min(self.most, place) and ids[place - left - 1] != mask_id:
            left += 1
        while right < min(self.most, len(ids) - 1 - place) and ids[place + right + 1] != mask_id:
            right += 1
        current = self.uniform
        for context in self.contexts(ids, place, left, right):
            if (seen := self.counts.get(context)) is not None:
                kinds, total = len(seen), sum(seen.values())
                current = current * (kinds / (kinds + total))
                current[list(seen)] += np.array(list(seen.values())) / (kinds + total)
        return current


class Bigram(Markov):
    """A Markov chain from left to right, which sees no neighbour on the right."""

    @staticmethod
    def contexts(
        ids: Sequence[int], place: int, left: int, right: int
    ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        return [(tuple(ids[max(0, place - n) : place]), ()) for n in range(left + 1)]


# Measuring


def masked_rows(rows: Iterable[Streams], tokenizer: Tokenizer) -> list[Masked]:
    """Mask one known symbol in the second stream of each row."""
    draw, found = random.Random(0), []
    for group, first, second in rows:
        encoding = tokenizer.encode([(" ".join(first), " ".join(second))])[0]
        ids = encoding.input_ids.copy()
        never = (tokenizer.sep_id, tokenizer.unk_id)
        is_open = (encoding.token_type_ids == 1) & ~np.isin(ids, never)
        if is_open.any():
            at = np.array([draw.choice(np.flatnonzero(is_open).tolist())])
            labels = ids[at].copy()
            ids[at] = tokenizer.mask_id
            found.append(Masked(group, ids, encoding.token_type_ids, at, labels))
    return found


def second_alone(row: Masked) -> Masked:
    """Return the same mask without the first stream."""
    is_second = row.types == 1
    ids = np.concatenate([row.ids[:1], row.ids[is_second]])
    return row._replace(ids=ids, types=np.zeros_like(ids), at=row.at - int((~is_second).sum()) + 1)


def by_model(folder: Path, rows: Sequence[Masked]) -> list[tuple[float, bool]]:
    """Return log probability and hit at every mask, in order."""
    loaded = filbert.load(folder, device="cpu")
    examples = [Example(n, r.ids, r.types, len(r.ids), r.at) for n, r in enumerate(rows)]
    scores = read_masks(loaded, examples, lambda logits, _: (torch.log_softmax(logits, -1),))
    return [
        (float(one[label]), int(one.argmax()) == label)
        for (logs,), row in zip(scores, rows, strict=True)
        for one, label in zip(logs, row.labels.tolist(), strict=True)
    ]


def by_chain(chain: Markov, rows: Sequence[Masked], mask_id: int) -> list[tuple[float, bool]]:
    """Return the same of a Markov chain."""
    found = []
    for row in rows:
        ids = row.ids.tolist()
        for place, label in zip(row.at.tolist(), row.labels.tolist(), strict=True):
            given = chain.probabilities(ids, place, mask_id)
            found.append((float(np.log(given[label])), int(given.argmax()) == label))
    return found


def table(results: dict[str, list[tuple[float, bool]]], rows: Sequence[Masked]) -> list[str]:
    """Return a table: accuracy and perplexity with 95 % intervals over groups of sequences."""
    groups = {group: number for number, group in enumerate(dict.fromkeys(r.group for r in rows))}
    owner = np.array([groups[row.group] for row in rows for _ in row.at])
    draws = np.random.default_rng(0).integers(0, len(groups), (RESAMPLES, len(groups)))
    size = np.bincount(owner)
    lines = [f"{len(owner):,} masks in {len(rows):,} sequences of {len(groups):,} groups", ""]
    lines += ["| model | accuracy | perplexity |", "|---|---|---|"]
    for name, values in results.items():
        cells = []
        for column, form in ((1, lambda mean: mean), (0, lambda mean: np.exp(-mean))):
            sums = np.bincount(owner, [float(value[column]) for value in values])
            low, high = np.quantile(form(sums[draws].sum(1) / size[draws].sum(1)), (0.025, 0.975))
            digits = 3 if column else 2
            mean = form(sums.sum() / size.sum())
            cells.append(f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def compare(model: Path, test: Sequence[Masked], known: Sequence[np.ndarray]) -> None:
    """Print the table of a model, which reads both streams, and of chains over the second."""
    tokenizer = Tokenizer.load(model / "model")
    size, mask_id = tokenizer.vocab_size, tokenizer.mask_id or 0
    drawn = {int(label) for ids in known for label in ids} - set(range(5))
    alone = [second_alone(row) for row in test]
    chains = {
        "unigram": Markov(known, 0, size, drawn),
        "bigram, from left to right": Bigram(known, 1, size, drawn),
        "Markov, one neighbour of each side": Markov(known, 1, size, drawn),
        "Markov, two neighbours of each side": Markov(known, 2, size, drawn),
    }
    results = {name: by_chain(chain, alone, mask_id) for name, chain in chains.items()}
    results["BERT, both streams"] = by_model(model, test)
    print("\n".join(table(results, test)), flush=True)


def matched(rows: Sequence[Streams], count: int) -> Iterator[dict[str, object]]:
    """Yield first streams with their second one, or another of the same beginning and length."""
    draw = random.Random(1)
    alike: dict[tuple[str, int], list[list[str]]] = defaultdict(list)
    for _, first, second in rows:
        alike[first[0], len(second)].append(second)
    for _, first, second in draw.sample(rows, count):
        others = [one for one in alike[first[0], len(second)] if one != second]
        is_own = not others or draw.random() < 0.5
        shown = second if is_own else draw.choice(others)
        yield {"first": first, "second": shown, "label": "own" if is_own else "other"}


def learn(out: Path, rows: Sequence[Streams], steps: int) -> None:
    """Pre-train on both streams, compare with chains, and fine-tune: do the streams belong?"""
    parts = {n: [row for row in rows if part_of(row[0]) == n] for n in ("train", "test")}
    train = parts["train"]
    write(out / "train.jsonl", ({"first": a, "second": b} for _, a, b in train))
    write(out / "all.jsonl", ({"tokens": one} for row in train for one in row[1:]))
    filbert_run(
        f"vocab {out}/all.jsonl --text-column tokens --kind symbols --size 2000 --out {out}/vocab"
    )
    columns = "--text-column first --text-pair-column second"
    filbert_run(f"corpus {out}/train.jsonl {columns} --tokenizer {out}/vocab --out {out}/streams")
    sizes = SIZES.format(steps=steps)
    filbert_run(f"pretrain --corpus {out}/streams --pair streams {sizes} --out {out}/run")
    tokenizer = Tokenizer.load(out / "vocab")
    known = [one.input_ids for one in tokenizer.encode([" ".join(row[2]) for row in train])]
    compare(out / "run", masked_rows(parts["test"], tokenizer), known)
    for name, count in (("train", 10_000), ("test", 3_000)):
        write(out / f"{name}.pairs.jsonl", matched(parts[name], count))
    rows_of = f"--train {out}/train.pairs.jsonl --dev 0.1 --test {out}/test.pairs.jsonl"
    filbert_run(
        f"finetune --task classification --model {out}/run {rows_of} {columns} --label-column label"
        f" --epochs 3 --lr 5e-4 --out {out}/matched"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("symbols", choices=("python", "words"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cmudict", type=Path)
    parser.add_argument("--steps", type=int, default=1_200)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    rows = list(statements() if options.symbols == "python" else words(options.cmudict))
    learn(options.out, rows, options.steps)


if __name__ == "__main__":
    main()
