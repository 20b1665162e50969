"""BERT over symbols that are no language, against unigrams and Markov chains on the same masks.

    python benchmarks/symbols.py python --out runs/python
    python benchmarks/symbols.py words --out runs/words --cmudict cmudict.dict

`python`: the tokens of the modules of Python's standard library (PSF licence) that runs this.
 `words`: spelling and pronunciation of English words as two streams, from the CMU
Pronouncing Dictionary (BSD licence; the package `cmudict` has the file). Everything is learned from
nine tenths of the modules or words, and measured on symbols of the others. An interval is that of
2,000 bootstrap resamples of the modules or words.
"""

from __future__ import annotations

import argparse
import json
import random
import sysconfig
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import filbert
from filbert.cli.main import run
from filbert.data.examples import Example
from filbert.inference.fill import read_masks
from filbert.text.tokenizer import Tokenizer

SIZES = "--num-hidden-layers 4 --hidden-size 128 --num-attention-heads 4 --batch-size {rows}"
SIZES += " --max-position-embeddings 128 --max-length {length} --steps {steps} --lr 1e-3 --seed 0"
MASKED = 0.15
RESAMPLES = 2_000
LEFT_OUT = ("test", "tests", "idlelib", "site-packages", "encodings", "__pycache__", "lib2to3")


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


def module_tokens(path: Path) -> list[str]:
    """Return names, keywords and operators of a module; texts and numbers are one symbol each."""
    kept = {tokenize.NAME, tokenize.OP}
    symbols = []
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            kind = tokenize.tok_name[token.type].lower()
            if token.type in kept:
                symbols.append(token.string)
            elif kind not in ("comment", "nl", "encoding", "endmarker"):
                symbols.append(f"<{kind}>")
    return symbols


def modules() -> Iterator[tuple[str, list[str]]]:
    """Yield the modules of the standard library: name and symbols."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if not set(place.parts) & set(LEFT_OUT):
            yield str(place), module_tokens(path)


def words(file: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each word with its letters and the phonemes of its first pronunciation."""
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


def masked_rows(
    rows: Iterable[tuple[str, list[str], list[str] | None]], tokenizer: Tokenizer
) -> list[Masked]:
    """Mask known symbols: of one stream 15 %, of the second of two streams one symbol."""
    draw, found = random.Random(0), []
    for group, first, second in rows:
        text = " ".join(first)
        encoding = tokenizer.encode([text if second is None else (text, " ".join(second))])[0]
        ids, specials = encoding.input_ids.copy(), {tokenizer.cls_id, tokenizer.sep_id}
        open_to = [
            place
            for place in range(len(ids))
            if ids[place] not in specials | {tokenizer.unk_id}
            and (second is None or encoding.token_type_ids[place] == 1)
        ]
        if not open_to:
            continue
        count = max(1, round(MASKED * len(open_to))) if second is None else 1
        at = np.array(sorted(draw.sample(open_to, count)))
        labels = ids[at].copy()
        ids[at] = tokenizer.mask_id
        found.append(Masked(group, ids, encoding.token_type_ids, at, labels))
    return found


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


def compare(
    models: dict[str, Path],
    rows: Sequence[Masked],
    known: Sequence[np.ndarray],
    tokenizer: Tokenizer,
    masked: dict[str, Sequence[Masked]] | None = None,
) -> None:
    """Print the table of models and chains; `masked` are the masks as other models see them."""
    size = tokenizer.vocab_size
    drawn = {int(label) for ids in known for label in ids} - set(range(5))
    chains = {
        "unigram": Markov(known, 0, size, drawn),
        "bigram, from left to right": Bigram(known, 1, size, drawn),
        "Markov, one neighbour of each side": Markov(known, 1, size, drawn),
        "Markov, two neighbours of each side": Markov(known, 2, size, drawn),
    }
    results = {name: by_chain(one, rows, tokenizer.mask_id or 0) for name, one in chains.items()}
    results |= {
        name: by_model(path, (masked or {}).get(name, rows)) for name, path in models.items()
    }
    print("\n".join(table(results, rows)), flush=True)


# The two sets


def python(out: Path, steps: int) -> None:
    """Tokens of Python's standard library."""
    rows = list(modules())
    for part in ("train", "test"):
        write(out / f"{part}.jsonl", ({"tokens": t} for n, t in rows if part_of(n) == part and t))
    common = "--text-column tokens"
    filbert_run(f"vocab {out}/train.jsonl {common} --kind symbols --size 2000 --out {out}/vocab")
    for part in ("train", "test"):
        place = f"--out {out}/{part}"
        filbert_run(f"corpus {out}/{part}.jsonl {common} --tokenizer {out}/vocab {place}")
    sizes = SIZES.format(rows=32, length=64, steps=steps)
    data = f"--corpus {out}/train --dev {out}/test"
    filbert_run(f"pretrain {data} {sizes} --out {out}/run")
    tokenizer = Tokenizer.load(out / "vocab")
    cut = [(n, t[i : i + 62], None) for n, t in rows for i in range(0, len(t), 62)]
    test = masked_rows((row for row in cut if part_of(row[0]) == "test"), tokenizer)
    known = [
        one.input_ids
        for one in tokenizer.encode([" ".join(t) for n, t in rows if part_of(n) == "train"])
    ]
    compare({"BERT, 4 layers of 128": out / "run"}, test, known, tokenizer)


def spoken(out: Path, file: Path, steps: int) -> None:
    """Letters and phonemes of English words, and whether a pronunciation belongs to a spelling."""
    rows = list(words(file))
    for part in ("train", "test"):
        some = [row for row in rows if part_of(row[0]) == part]
        write(out / f"{part}.jsonl", ({"letters": a, "phonemes": b} for _, a, b in some))
        write(out / f"{part}.pairs.jsonl", matched(some, {"train": 10_000, "test": 3_000}[part]))
    both = out / "both.jsonl"
    known_rows = [row for row in rows if part_of(row[0]) == "train"]
    write(both, ({"tokens": one} for row in known_rows for one in row[1:]))
    filbert_run(f"vocab {both} --text-column tokens --kind symbols --size 200 --out {out}/vocab")
    for name, columns in {
        "streams": "--text-column letters --text-pair-column phonemes",
        "phonemes": "--text-column phonemes",
    }.items():
        place = f"--tokenizer {out}/vocab --out {out}/{name}"
        filbert_run(f"corpus {out}/train.jsonl {columns} {place}")
    sizes = SIZES.format(rows=128, length=48, steps=steps)
    filbert_run(f"pretrain --corpus {out}/streams --pair streams {sizes} --out {out}/run")
    filbert_run(f"pretrain --corpus {out}/phonemes {sizes} --out {out}/alone")
    tokenizer = Tokenizer.load(out / "vocab")
    test = masked_rows((row for row in rows if part_of(row[0]) == "test"), tokenizer)
    # The same masks without the letters.
    bare = [
        row._replace(
            ids=np.concatenate([row.ids[:1], row.ids[row.types == 1]]),
            types=np.zeros(1 + int(row.types.sum()), dtype=np.uint8),
            at=row.at - int((row.types == 0).sum()) + 1,
        )
        for row in test
    ]
    known = [one.input_ids for one in tokenizer.encode([" ".join(row[2]) for row in known_rows])]
    names = ("BERT, phonemes alone", "BERT, letters and phonemes")
    models = dict(zip(names, (out / "alone", out / "run"), strict=True))
    compare(models, bare, known, tokenizer, {names[1]: test})
    columns = "--text-column letters --text-pair-column phonemes"
    rows_of = f"--train {out}/train.pairs.jsonl --dev 0.1 --test {out}/test.pairs.jsonl"
    filbert_run(
        f"finetune --task classification --model {out}/run {rows_of} {columns} --label-column label"
        f" --epochs 6 --lr 5e-4 --out {out}/matched"
    )


def matched(
    rows: Sequence[tuple[str, list[str], list[str]]], count: int
) -> Iterator[dict[str, object]]:
    """Yield spellings with their pronunciation, or another of the same first letter and length."""
    draw = random.Random(1)
    alike: dict[tuple[str, int], list[list[str]]] = defaultdict(list)
    for word, _, phonemes in rows:
        alike[word[0], len(phonemes)].append(phonemes)
    for word, letters, phonemes in draw.sample(rows, count):
        others = [one for one in alike[word[0], len(phonemes)] if one != phonemes]
        is_own = not others or draw.random() < 0.5
        heard = phonemes if is_own else draw.choice(others)
        yield {"letters": letters, "phonemes": heard, "label": "own" if is_own else "other"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("symbols", choices=("python", "words"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cmudict", type=Path)
    parser.add_argument("--steps", type=int, default=2_000)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    if options.symbols == "python":
        python(options.out, options.steps)
    else:
        spoken(options.out, options.cmudict, options.steps)


if __name__ == "__main__":
    main()
