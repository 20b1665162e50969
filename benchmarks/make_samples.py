"""Draws src/filbert/samples/{toxic,intents}_{train,dev,test}.csv.gz from Jigsaw and CLINC150.

    python benchmarks/make_samples.py ../shared/data

The draw depends on SEED and the sources only: the same source gives the same rows in the same
order. It prints counts and hashes, never a text.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import random
import sys
from pathlib import Path

SEED = 2018
NUM_ROWS = {"train": 4000, "dev": 1500, "test": 1500}
LABELS = {"0": "ok", "1": "toxic"}
# Rows of each intent.
NUM_EACH = {"train": 8, "dev": 6, "test": 30}
# Words that two texts may share, as a part of those that either of them has.
MOST_SHARED = 0.6
# CLINC150's domains "banking" and "credit cards" (Larson et al. 2019, table 2).
INTENTS = (
    "account_blocked",
    "balance",
    "bill_balance",
    "bill_due",
    "freeze_account",
    "interest_rate",
    "min_payment",
    "order_checks",
    "pay_bill",
    "pin_change",
    "report_fraud",
    "routing",
    "spending_history",
    "transactions",
    "transfer",
    "application_status",
    "apr",
    "card_declined",
    "credit_limit",
    "credit_limit_change",
    "credit_score",
    "damaged_card",
    "expiration_date",
    "improve_credit_score",
    "international_fees",
    "new_card",
    "redeem_rewards",
    "replacement_card_duration",
    "report_lost_card",
    "rewards_balance",
)
OUT = Path(__file__).parents[1] / "src" / "filbert" / "samples"


def same_text_key(text: str) -> str:
    """What two texts share that differ only in white space or case."""
    return " ".join(text.split()).casefold()


def distinct_rows(source: Path) -> list[tuple[str, str]]:
    """(text, label) of the source in file order, the first of every group of equal texts only."""
    csv.field_size_limit(sys.maxsize)
    seen: set[str] = set()
    rows = []
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = same_text_key(row["comment_text"])
            if key and key not in seen:
                seen.add(key)
                rows.append((row["comment_text"], LABELS[row["toxic"]]))
    return rows


def draw(rows: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Disjoint splits of NUM_ROWS, each with the class ratio of `rows`, in random order."""
    chance = random.Random(SEED)
    pools = {label: [row for row in rows if row[1] == label] for label in LABELS.values()}
    for pool in pools.values():
        chance.shuffle(pool)
    toxic_share = len(pools["toxic"]) / len(rows)
    splits = {}
    for split, num_rows in NUM_ROWS.items():
        num_toxic = round(num_rows * toxic_share)
        chosen = [pools["toxic"].pop() for _ in range(num_toxic)]
        chosen += [pools["ok"].pop() for _ in range(num_rows - num_toxic)]
        chance.shuffle(chosen)
        splits[split] = chosen
    return splits


def draw_intents(source: Path) -> dict[str, list[tuple[str, str]]]:
    """Disjoint splits with NUM_EACH rows of each intent, in random order.

    A text that shares most of its words with one that was drawn before is left out.
    """
    chance = random.Random(SEED)
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    splits: dict[str, list[tuple[str, str]]] = {split: [] for split in NUM_EACH}
    drawn: list[set[str]] = []
    for intent in INTENTS:
        texts = sorted({row["text"] for row in rows if row["label"] == intent})
        chance.shuffle(texts)
        for split, count in NUM_EACH.items():
            chosen = []
            while len(chosen) < count:
                text = texts.pop()
                words = set(text.split())
                if all(len(words & one) / len(words | one) < MOST_SHARED for one in drawn):
                    drawn.append(words)
                    chosen.append((text, intent.replace("_", " ")))
            splits[split] += chosen
    for split in splits.values():
        chance.shuffle(split)
    return splits


def csv_bytes(rows: list[tuple[str, str]]) -> bytes:
    """UTF-8 CSV with the header `text,label` and LF line ends."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["text", "label"])
    writer.writerows(rows)
    return table.getvalue().encode("utf-8")


def write_gzip(path: Path, content: bytes) -> None:
    """Gzip without name and time, so that equal content gives equal bytes."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder of shared data")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    drawn = {
        "toxic": draw(distinct_rows(options.data / "jigsaw_toxic_binary" / "train.csv.gz")),
        "intents": draw_intents(options.data / "clinc150" / "train.tsv.gz"),
    }
    for sample, splits in drawn.items():
        for split, rows in splits.items():
            content = csv_bytes(rows)
            path = options.out / f"{sample}_{split}.csv.gz"
            write_gzip(path, content)
            digest = hashlib.sha256(content).hexdigest()
            print(f"{path.name}: {len(rows)} rows, {path.stat().st_size} bytes")
            print(f"  sha256 of the unpacked content {digest}")


if __name__ == "__main__":
    main()
