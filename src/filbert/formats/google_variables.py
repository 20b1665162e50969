"""The variables of a TensorFlow checkpoint under their usual names, and what is none of a model's.

A checkpoint of a training run also holds the optimizer's slots and counters, and everything may lie
below a further prefix ("module/bert/..."), or below another name than "bert".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from filbert.errors import FormatError, printable
from filbert.formats.google_names import name_table
from filbert.formats.google_objects import (
    GRAPH,
    Variable,
    by_first_names,
    full_names,
    is_object_based,
    without_bookkeeping,
)
from filbert.formats.tensor_bundle import TensorBundle

_ROOT = re.compile(r"(?P<outer>(?:.+/)?)(?P<root>[^/]+)/embeddings/word_embeddings")
# ELECTRA's two encoders may each have tables of their own.
_ELECTRA = ("electra", "generator")
_SLOTS = ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1", "Momentum")
_COUNTERS = (
    "global_step",
    "save_counter",
    "beta1_power",
    "beta2_power",
    "learning_rate",
    "loss_scale",
    "current_loss_scale",
    "good_steps",
    "num_good_steps",
)
_GROUPS = "/encoder/transformer/group_"


@dataclass(frozen=True)
class Variables:
    """What a checkpoint holds.

    Attributes:
        family: whose names these are: bert, albert or electra.
        found: by TensorFlow 1's usual name.
        left_out: key in the file to the reason.
        prefix: what stood before the usual names, with its slash; mostly nothing.
        object_based: whether TensorFlow 2 saved it as a tree of objects.
    """

    family: str
    found: dict[str, Variable]
    left_out: dict[str, str]
    prefix: str = ""
    object_based: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """By the usual name."""
        return {name: variable.shape for name, variable in self.found.items()}


def variables_of(bundle: TensorBundle, *, is_albert: bool) -> Variables:
    """The model's variables in an opened checkpoint; no tensor is read but the object graph.

    Args:
        bundle: the checkpoint.
        is_albert: whether its configuration is ALBERT's, as the names of TensorFlow 2 do not say.

    Raises:
        FormatError: there is no encoder in it, or there are several.
    """
    index = Path(f"{bundle.prefix}.index")
    if not is_object_based(bundle.shapes):
        return _name_based(bundle.shapes, index)
    graph = full_names(bundle.read_bytes(GRAPH), index) if GRAPH in bundle.shapes else {}
    keys, left_out = without_bookkeeping(bundle.shapes)
    family = "albert" if is_albert else "bert"
    table = name_table(family)
    found = by_first_names(bundle.shapes, keys, graph, table, index)
    if table.embeddings["word"][0] not in found:
        raise _no_encoder(bundle.shapes, index)
    return Variables(family, found, left_out, object_based=True)


def _no_encoder(names: Mapping[str, object], index: Path) -> FormatError:
    listed = ", ".join(printable(name) for name in list(names)[:3]) or "nothing at all"
    return FormatError(
        f"{index} holds no BERT, ALBERT or ELECTRA: there is no table of word embeddings among its "
        f"{len(names)} tensors ({listed}{', ...' if len(names) > 3 else ''})."
    )


def _name_based(shapes: Mapping[str, tuple[int, ...]], index: Path) -> Variables:
    left_out, kept = {}, []
    for name in shapes:
        parent, _, leaf = name.rpartition("/")
        # TensorFlow 1 names a slot after its variable, and never one variable after another.
        if parent in shapes or leaf in _SLOTS:
            left_out[name] = f"optimizer slot {leaf}"
        elif leaf in _COUNTERS:
            left_out[name] = "counter"
        else:
            kept.append(name)
    matches = [match for name in kept if (match := _ROOT.fullmatch(name))]
    roots = {(match["outer"], match["root"]) for match in matches}
    outer = {prefix for prefix, _ in roots}
    if not roots:
        raise _no_encoder(shapes, index)
    if len(outer) > 1 or (len(roots) > 1 and not {root for _, root in roots} <= {*_ELECTRA}):
        listed = ", ".join(sorted(printable(f"{prefix}{root}") for prefix, root in roots))
        raise FormatError(
            f"{index} holds {len(roots)} encoders ({listed}), and which one is meant cannot be "
            "told. Save the one you need by itself."
        )
    prefix = outer.pop()
    is_electra = any(root in _ELECTRA for _, root in roots)
    root = next(iter(roots))[1]
    found: dict[str, Variable] = {}
    for name in kept:
        usual = name.removeprefix(prefix)
        if not is_electra and usual.startswith(f"{root}/"):
            usual = "bert" + usual.removeprefix(root)
        if usual in found:
            raise FormatError(
                f"{index}: {printable(found[usual].key)} and {printable(name)} are the same tensor "
                "under two names."
            )
        found[usual] = Variable(name, shapes[name])
    family = "bert"
    if is_electra:
        family = "electra"
    elif any(_GROUPS in name for name in found):
        family = "albert"
    shown = prefix if is_electra or root == "bert" else f"{prefix}{root}/"
    return Variables(family, found, left_out, shown)


def float_dtype(bundle: TensorBundle, key: str) -> str | None:
    """Why a tensor is no number of a model, None when it is one."""
    dtype = bundle.dtypes[key]
    if isinstance(dtype, str):
        return None if dtype == "bfloat16" else dtype
    return None if np.issubdtype(dtype, np.floating) else str(dtype)


def summary(left_out: Mapping[str, str]) -> list[str]:
    """One sentence on all that was left out, by reason and count; none where there is nothing."""
    if not left_out:
        return []
    counts = Counter(left_out.values())
    parts = []
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        names = [name for name, why in left_out.items() if why == reason]
        shown = ", ".join(printable(name, 80) for name in names[:2])
        parts.append(f"{count} x {reason} ({shown}{', ...' if count > 2 else ''})")
    return [f"left out of the checkpoint: {'; '.join(parts)}."]
