"""Compares filbert with transformers on the most downloaded encoders of the Hub, one by one.

Each model is downloaded, read by both sides, compared and deleted: the tokens of a few texts, then
the logits of its head, or without one the last hidden states. filbert reads all texts in one
packed batch, transformers each text alone. One line a model says

    same      tokens and logits are equal, up to rounding
    differs   they are not
    refused   filbert does not read it, with its reason
    alone     filbert reads it, transformers does not (it would run code of the repository)
    failed    it could not be downloaded, or something broke

and is appended to a file of JSON lines, from which a later run goes on; models that failed are
tried again. The exit status is 1 if a model differs or failed, or was refused without a "refused"
after its name in the list. No code of a repository is run.

    python benchmarks/hub_check.py [--list benchmarks/hub_models.txt] [--out hub_check.jsonl]
        [--only TEXT] [--keep FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, snapshot_download

import filbert
from filbert.batch import pack
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.hub import to_fetch
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.errors import FilbertError

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Zażółć gęślą jaźń: naïve façade, 東京の天気 и погода, 25 % of 1,299.50 €.",
    "a",
    "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer. " * 8,
)
# Of float32 and up to 48 layers, relative to the largest number; a wrong setting is off by 1e-2.
TOLERANCE = 1e-3
_LONGEST = 400


def models_of(path: Path) -> dict[str, str]:
    """Return the models of a list by id: what is expected, "same" or "refused"."""
    lines = (line.partition("#")[0].split() for line in path.read_text("utf-8").splitlines())
    return {line[0]: (line[1:] or ["same"])[0] for line in lines if line}


def downloaded(name: str, folder: Path) -> Path:
    """Download what filbert reads of a repository, and the files of its tokenizer."""
    files = [file.rfilename for file in HfApi().model_info(name).siblings or ()]
    chosen = to_fetch(files)
    small = (".json", ".txt", ".model")
    # The remaining files of the top folder are for the tokenizer of transformers.
    chosen += [file for file in files if "/" not in file and file.endswith(small)]
    return Path(snapshot_download(name, allow_patterns=chosen, local_dir=folder))


def theirs_of(folder: Path, class_name: str) -> Any:
    """Return the tokenizer and the model of transformers, float32."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    make = getattr(transformers, class_name, transformers.AutoModel)
    model = make.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False
    )
    return tokenizer, model.eval()


def their_output(model: Any, encoded: Any) -> torch.Tensor:
    """Return the logits of one text, or the last hidden states, as rows."""
    out = model(**encoded)
    if "start_logits" in out:
        return torch.stack([out.start_logits[0], out.end_logits[0]], -1)
    for key in ("logits", "prediction_logits", "last_hidden_state"):
        if key in out:
            rows = out[key]
            return rows[0] if rows.dim() > 2 else rows.reshape(-1, rows.shape[-1])
    raise ValueError(f"transformers gave {', '.join(out.keys())}")


@torch.no_grad()
def compared(folder: Path) -> dict[str, Any]:
    """Read a folder with both sides and compare them."""
    checkpoint, tokenizer = read_checkpoint(folder), read_tokenizer(folder)
    config = checkpoint.config
    tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, folder)
    facts: dict[str, Any] = {"family": checkpoint.family, "head": checkpoint.head}
    facts["notes"] = list(checkpoint.notes)
    limit = min(_LONGEST, config.max_tokens_per_sequence)
    ours = tokenizer.encode(TEXTS, max_length=limit)
    batch = pack([e.input_ids for e in ours], [e.token_type_ids for e in ours])
    found = checkpoint.build()(batch)
    found = found[0] if isinstance(found, tuple) else found
    try:
        class_name = FAMILIES[checkpoint.family].class_name(checkpoint.head)
        judge, model = theirs_of(folder, class_name)
    except Exception as error:
        return facts | {"status": "alone", "why": str(error).strip().splitlines()[0][:200]}
    wanted = []
    for text, encoding in zip(TEXTS, ours, strict=True):
        encoded = judge(text, truncation=True, max_length=limit, return_tensors="pt")
        ids = encoded["input_ids"][0].tolist()
        if ids != encoding.input_ids.tolist():
            return facts | {"status": "differs", "why": f"the tokens of {text[:40]!r}"}
        wanted.append(their_output(model, encoded))
    exact = torch.cat(wanted).float()
    found = found.reshape(exact.shape)
    facts["difference"] = float((found - exact).abs().max() / exact.abs().max().clamp(min=1))
    same = facts["difference"] <= TOLERANCE
    return facts | {"status": "same" if same else "differs"}


def checked(name: str, keep: Path | None) -> dict[str, Any]:
    """Download and compare one model."""
    begun = time.monotonic()
    facts: dict[str, Any]
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            folder = downloaded(name, Path(place) if keep is None else keep / name)
            facts = compared(folder)
        except FilbertError as error:
            facts = {"status": "refused", "why": str(error).replace(f"{place}/", "")}
        except Exception as error:
            facts = {"status": "failed", "why": f"{type(error).__name__}: {error}"[:300]}
    return {"model": name, **facts, "seconds": round(time.monotonic() - begun, 1)}


def line_of(facts: dict[str, Any]) -> str:
    """Return the line that is printed for a model."""
    what = f"{facts.get('family') or ''} {facts.get('head') or ''}".strip()
    number = f"{facts['difference']:.1e}" if "difference" in facts else ""
    why = f"  ({facts['why']})" if "why" in facts else ""
    return f"{facts['status']:8} {number:8} {what:24} {facts['model']}{why}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", type=Path, default=Path(__file__).with_name("hub_models.txt"))
    parser.add_argument("--out", type=Path, default=Path("hub_check.jsonl"))
    parser.add_argument("--only", default="", help="models with this text in their name")
    parser.add_argument("--keep", type=Path, help="keep the downloaded models in this folder")
    parser.add_argument("--json", action="store_true", help="print the counts and results as JSON")
    options = parser.parse_args(arguments)
    expected = {n: e for n, e in models_of(options.list).items() if options.only in n}
    done: dict[str, dict[str, Any]] = {}
    if options.out.is_file():
        lines = map(json.loads, options.out.read_text("utf-8").splitlines())
        done = {facts["model"]: facts for facts in lines if facts["status"] != "failed"}
    results = []
    for name in expected:
        facts = done.get(name)
        if facts is None:
            facts = checked(name, options.keep)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(facts, ensure_ascii=False) + "\n")
        results.append(facts)
        print(line_of(facts), file=sys.stderr if options.json else sys.stdout, flush=True)
    wrong = [
        facts["model"]
        for facts in results
        if facts["status"] in ("differs", "failed")
        or (facts["status"] == "refused" and expected[facts["model"]] != "refused")
    ]
    counts = dict(Counter(facts["status"] for facts in results))
    if options.json:
        summary = {"filbert": filbert.__version__, "counts": counts, "wrong": wrong}
        print(json.dumps({**summary, "models": results}, indent=2, ensure_ascii=False))
    else:
        print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
