"""Reads and writes model folders in Hugging Face's layout: config.json and model.safetensors."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint, meta_model
from filbert.checkpoints.config_json import (
    LABELLED,
    check_head,
    config_values,
    encoder_config,
    family_of,
    kind_of,
    label_names,
    named_family,
    problem_type,
    stated_causal,
    unprintable,
)
from filbert.checkpoints.families import CAUSAL_TYPE, FAMILIES, STATIC, Family
from filbert.checkpoints.sentence_transformers import (
    ModelFolder,
    opened,
    read_sentence_vectors,
    score_settings,
    write_sentence_vectors,
)
from filbert.checkpoints.weights import (
    ADAPTERS,
    Weights,
    listed,
    open_weights,
    save_tensors,
    weight_files,
)
from filbert.errors import ConfigError, FormatError, printable, unreadable_as
from filbert.files import MAX_JSON_BYTES, read_json, sha256_of, write_json
from filbert.model.config import EncoderConfig
from filbert.text.spiece import PieceOrder
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import NO_CONVENTION, Convention, read_settings

_BUFFERS = re.compile(
    r"(.*\.)?(embeddings\.(position_ids|token_type_ids)|inv_freq|h\.\d+\.attn\.(masked_)?bias)"
)
_LEGACY = {"gamma": "weight", "beta": "bias"}

# Settings that are the length of an axis of some tensor, to name them in messages.
_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings", "type_vocab_size",
    "embedding_size",
)  # fmt: skip


_TRANSPOSED = ("transposed", "outputs_by_head")
_BY_HEAD = ("outputs_by_head", "inputs_by_head")


@dataclass(frozen=True)
class Layout:
    """How files hold the tensors of one model: in parts, in a form of `Family.forms`."""

    family: Family
    config: EncoderConfig

    def rows(self, number: int, count: int) -> list[int]:
        """Return the rows of each of the `count` parts of a tensor with `number` rows."""
        heads, shared = self.config.attention.heads, self.config.attention.key_value_heads
        if count == 3 and shared is not None:
            return [each * self.config.head_size for each in (heads, shared, shared)]
        return [number // count] * count

    def join(self, ours: str, parts: list[Tensor]) -> Tensor:
        """Return filbert's tensor from its parts in a file."""
        if self.family.model_type == STATIC:
            # The row of texts without tokens, which files do not have.
            return torch.cat([parts[0], torch.zeros_like(parts[0][:1])])
        form = self.family.form(ours)
        if form in _BY_HEAD:
            parts = [part.flatten(1) for part in parts]
        if form in _TRANSPOSED:
            parts = [part.T for part in parts]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        order = self._order(form, len(whole))
        return whole.contiguous() if order is None else whole[order]

    def split(self, ours: str, tensor: Tensor, count: int) -> list[Tensor]:
        """Return the parts of filbert's tensor for a file: the inverse of `join`."""
        if self.family.model_type == STATIC:
            return [tensor[:-1]]
        form = self.family.form(ours)
        order = self._order(form, len(tensor))
        tensor = tensor if order is None else tensor[order.argsort()]
        parts = list(torch.split(tensor, self.rows(len(tensor), count)))
        if form in _TRANSPOSED:
            parts = [part.T for part in parts]
        if form in _BY_HEAD:
            parts = [part.reshape(len(part), -1, self.config.head_size) for part in parts]
        # safetensors refuses tensors that share memory, so the parts of a fused one are copied.
        return parts if count == 1 else [part.clone() for part in parts]

    def _order(self, form: str | None, rows: int) -> Tensor | None:
        """Return the file's row for each row of filbert's tensor, int64; None if it is the same."""
        if form == "halves":
            return torch.arange(rows).roll(rows // 2)
        if form != "interleaved":
            return None
        # By heads, then query, key and value, then pairs of neighbours for the first two.
        grid = torch.arange(rows).view(self.config.attention.heads, 3, -1)
        heads, _, size = grid.shape
        rotated = grid[:, :2].reshape(heads, 2, size // 2, 2).transpose(2, 3).flatten(2)
        return torch.cat((rotated, grid[:, 2:]), 1).transpose(0, 1).flatten()


def canonical_names(names: Collection[str], family: Family, path: Path) -> dict[str, str]:
    """Return the file's name for each canonical one, with prefix and LayerNorm's new names."""
    bare = family.pooler_of(None)
    encoder = [*family.modules.values(), family.layer]
    encoder += [bare.name.removeprefix(family.prefix)] if bare else []
    roots = {name.partition(".")[0] for name in encoder}
    files: dict[str, str] = {}
    for name in names:
        if _BUFFERS.fullmatch(name) or ADAPTERS.fullmatch(name):
            continue
        renamed = name
        for pattern, replacement in family.renamed:
            renamed = re.sub(pattern, replacement, renamed)
        module, _, leaf = renamed.rpartition(".")
        canonical = f"{module}.{_LEGACY.get(leaf, leaf)}"
        if canonical.partition(".")[0] in roots:
            canonical = family.prefix + canonical
        if canonical in files:
            raise FormatError(
                f"{path}: {printable(files[canonical])} and {printable(name)} are the same tensor "
                "under two names."
            )
        files[canonical] = name
    return files


def _split_tied(files: dict[str, str], tied: Mapping[str, str]) -> dict[str, str]:
    """Remove tied tensors from `files`, and return the file's names of the pairs."""
    repeats = {}
    for repeated, original in tied.items():
        if repeated in files and original in files:
            repeats[files.pop(repeated)] = files[original]
        elif repeated in files:
            files[original] = files.pop(repeated)
    return repeats


def _settle_pooler(
    raw: dict[str, Any], family: Family, kind: str | None, files: dict[str, str], notes: list[str]
) -> bool:
    """Return whether the model has a pooler, and remove tensors of one that it does not use."""
    slot, bare, adjective = family.pooler_of(kind), family.pooler_of(None), ""
    required = family.required_pooler(kind)
    if slot is not None and required is None and stated_causal(raw, family):
        # The pooler reads the first token, which attends to no other.
        slot, adjective = None, "causal "
    if bare is not None and (slot is None or slot.name != bare.name):
        unused = [name for name in files if name.rpartition(".")[0] == bare.name]
        for name in unused:
            del files[name]
        if unused:
            notes.append(
                f"pooler left out: the file's {bare.name} is not used by a "
                f"{adjective}{family.class_name(kind)}."
            )
    return required is not None or (slot is not None and f"{slot.name}.weight" in files)


def _read_tensors(
    checkpoint: Checkpoint, weights: Weights, files: Mapping[str, str], notes: list[str]
) -> dict[str, Tensor]:
    """Read tensors by filbert's names, after comparing all names and shapes with the model's.

    Biases that older files lack are zeros. Unused tensors outside the encoder are left out. Both
    add a note.

    Raises:
        FormatError: A missing or mis-shaped tensor, or an unknown one in the encoder.
    """
    family, kind = FAMILIES[checkpoint.family], checkpoint.head
    layout, num_labels = Layout(family, checkpoint.config), len(checkpoint.labels or ()) or None
    sources: dict[str, tuple[str, ...]] = {}
    wanted: dict[str, tuple[int, ...]] = {}
    zeros: dict[str, Tensor] = {}
    for ours, tensor in meta_model(checkpoint.config, kind, num_labels).state_dict().items():
        theirs = family.theirs(ours, kind)
        if theirs[0] in family.zeros and theirs[0] not in files:
            notes.append(f"{theirs[0]} is not in the file; zeros are used.")
            zeros[ours] = torch.zeros(tensor.shape)
            continue
        sources[ours] = theirs
        parts = layout.split(ours, tensor, len(theirs))
        wanted |= {name: tuple(part.shape) for name, part in zip(theirs, parts, strict=True)}
    notes += _left_out(checkpoint, weights, files, wanted)
    for name, shape in wanted.items():
        if weights.tensors[files[name]].shape != shape:
            raise _wrong_shape(checkpoint, weights, files[name], shape)
    tensors = {
        ours: layout.join(ours, [weights.read(files[name]) for name in theirs])
        for ours, theirs in sources.items()
    }
    dtype = tensors["encoder.embeddings.word.weight"].dtype
    return tensors | {ours: values.to(dtype) for ours, values in zeros.items()}


def _left_out(
    checkpoint: Checkpoint, weights: Weights, files: Mapping[str, str], wanted: Collection[str]
) -> list[str]:
    """Compare the names of tensors, and return a note on those outside the encoder, if any."""
    family = FAMILIES[checkpoint.family]
    class_name = family.class_name(checkpoint.head)
    missing = [name for name in wanted if name not in files]
    unexpected = [name for name in files if name not in wanted]
    extra = listed([files[name] for name in unexpected])
    if not missing and not any(name.startswith(family.prefix) for name in unexpected):
        number = "1 tensor" if len(unexpected) == 1 else f"{len(unexpected)} tensors"
        note = f"left out: {number} for which a {class_name} has no place ({extra})."
        return [note] if unexpected else []
    parts = [f"{len(missing)} missing ({listed(missing)})"] if missing else []
    parts += [f"{len(unexpected)} unexpected ({extra})"] if unexpected else []
    layers = f"{family.keys['num_hidden_layers'].name} {checkpoint.config.num_hidden_layers}"
    raise FormatError(
        f"{weights.path} does not hold the tensors of the {class_name} with {layers} that "
        f"config.json describes: {', '.join(parts)}."
    )


def _wrong_shape(
    checkpoint: Checkpoint, weights: Weights, name: str, wanted: tuple[int, ...]
) -> FormatError:
    """Describe a mis-shaped tensor by the settings that have the value of the differing axis."""
    actual = weights.tensors[name].shape
    sizes = [size for size, other in zip(wanted, actual, strict=False) if size != other][:1]
    if checkpoint.config.feed_forward.gated:
        sizes += [size // 2 for size in sizes]
    values, known = checkpoint.config.settings(), FAMILIES[checkpoint.family].keys
    keys = [
        f"{known[setting].name} {values[setting]}"
        for setting in _SIZES
        if setting in known and values[setting] in sizes
    ]
    if checkpoint.labels and (num_labels := len(checkpoint.labels)) in sizes:
        keys = [f"{num_labels} labels (id2label)", *keys]
    says = f"says {' or '.join(keys)}" if keys else "describes another model"
    return FormatError(
        f"{weights.path}: config.json {says}, but {printable(name)} has shape "
        f"{short(actual)} instead of {wanted}."
    )


# Entries of config.json that other tools' tokenizers need.
_TOKENIZER_KEYS = (
    "pad_token_id", "bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id",
    "mask_token_id", "tokenizer_class",
)  # fmt: skip


@unreadable_as(FormatError)
def read(place: Path | ModelFolder, *, adapter: str | None = None) -> Checkpoint:
    """Read the checkpoint in a folder.

    Names and shapes are compared with config.json before any tensor is read. `adapter` is a task of
    jina-embeddings-v3, whose low-rank adapter is added to the weights; without it they are the base
    weights alone, as in its authors' code.

    Raises:
        ConfigError: The model has no such adapter.
        FormatError: No model, a damaged or unreadable file, a file whose digest is not the one in
            filbert.json, weights that do not fit config.json, values that are not finite, or
            a setting that the encoder cannot express.
    """
    place = opened(place)
    folder = place.encoder
    config_path = folder / "config.json"
    raw = place.config
    if raw is None:
        raise FormatError(f"{folder} is no model: no config.json. Name the folder that holds one.")
    filbert = stored_record(folder)
    named_family(raw, config_path)  # refuses other models before their weights are opened
    weights = open_weights(folder)
    if adapter is not None:
        tasks = raw.get("lora_adaptations")
        if not isinstance(tasks, list) or adapter not in tasks:
            known = ", ".join(map(str, tasks)) if isinstance(tasks, list) else "no task adapters"
            raise ConfigError(
                f"{config_path} has no adapter of the task {short(adapter)}; it has {known}."
            )
        weights.adapter = (tasks.index(adapter), float(raw.get("lora_alpha", 1)))
    checkpoint = read_weights(raw, weights, config_path=config_path, filbert=filbert)
    notes = (*checkpoint.notes, *place.notes)
    if adapter is not None:
        merged = f"merged: the adapter of the task {adapter}; those of other tasks are left out."
        notes = (merged, *notes)
    return replace(checkpoint, notes=notes)


def stored_record(folder: Path) -> dict[str, Any] | None:
    """Return the content of filbert.json, whose digests fit the folder; None without the file."""
    if not (folder / "filbert.json").is_file():
        return None
    filbert = read_json(folder / "filbert.json")
    config = folder / "config.json"
    check_digests(folder, filbert, [*([config] if config.is_file() else []), *weight_files(folder)])
    return filbert


def read_weights(
    raw: dict[str, Any], weights: Weights, *, config_path: Path, filbert: dict[str, Any] | None
) -> Checkpoint:
    """Read the checkpoint that config.json and opened weights describe."""
    path, notes = weights.path, list[str]()
    family = family_of(raw, weights.tensors, config_path, notes)
    labels = label_names(raw, config_path)
    count = sum(ADAPTERS.fullmatch(name) is not None for name in weights.tensors)
    if count and weights.adapter is None:
        notes.append(
            f"left out: {count} tensors of task adapters. Vectors are those of the base weights."
        )
    files = canonical_names(weights.tensors, family, path)
    kind = kind_of(raw, family, files, config_path, notes)
    repeats = _split_tied(files, family.tied(kind))
    has_pooler = _settle_pooler(raw, family, kind, files, notes)
    config = encoder_config(raw, family, kind, has_pooler=has_pooler, path=config_path)
    if config.num_groups > len(files):  # even a model without values takes time to build
        key = family.keys["num_hidden_layers"].name
        raise FormatError(
            f"{config_path} says {key} {config.num_hidden_layers}, but {path.name} holds only "
            f"{len(files)} tensors."
        )
    if kind in LABELLED and labels is None:
        out = files.get(f"{family.heads[kind].modules['head.out']}.weight", "")
        shape = weights.shapes.get(out, ())
        count = shape[0] if len(shape) == 2 and 1 <= shape[0] <= 1_000_000 else 2
        labels = tuple(f"LABEL_{i}" for i in range(count))
        if count != 2:  # transformers' default is 2
            notes.append(f"{count} labels without names: config.json has none.")
    checkpoint = Checkpoint(
        config=config,
        family=family.model_type,
        tensors={},
        head=kind,
        labels=labels if kind in LABELLED else None,
        problem_type=problem_type(raw, config_path),
        source=path.parent,
        filbert=filbert,
        extra={key: raw[key] for key in _TOKENIZER_KEYS if key in raw},
    )
    tensors = _read_tensors(checkpoint, weights, files, notes)
    for repeated, original in repeats.items():
        if not torch.equal(weights.read(repeated), weights.read(original)):
            raise FormatError(
                f"{weights.tensors[repeated].path}: {printable(repeated, 120)} differs from "
                f"{printable(original, 120)}; filbert shares "
                "the two, as the families' own checkpoints do."
            )
    return replace(checkpoint, tensors=tensors, notes=(*notes, *_on_repeated(raw, family, config)))


def _on_repeated(raw: dict[str, Any], family: Family, config: EncoderConfig) -> Iterator[str]:
    """Yield notes on the keys of config.json whose values differ from those that serve for both."""
    settings = config.settings()
    for name, key in family.keys.items():
        if key.repeated in raw and raw[key.repeated] != settings[name]:
            main = f"{key.name} {settings[name]}"
            yield f"{key.repeated} {short(raw[key.repeated])} left out: {main} serves for both."


def write(checkpoint: Checkpoint, folder: Path) -> dict[str, str]:
    """Write config.json and model.safetensors into a folder, which is not atomic.

    Tensors keep their dtype. `read` compares digests with files[name]["sha256"] in filbert.json.

    Returns:
        SHA-256 by file name.

    Raises:
        ConfigError: The family's config.json cannot express the checkpoint.
    """
    family, kind = FAMILIES[checkpoint.family], checkpoint.head
    config, layout = config_text(checkpoint), Layout(family, checkpoint.config)
    tensors = {}
    for ours, tensor in checkpoint.tensors.items():
        theirs = family.theirs(ours, kind)
        parts = layout.split(ours, tensor, len(theirs))
        for name, part in zip(theirs, parts, strict=True):
            bare_name = name.removeprefix(family.prefix) if kind is None else name
            tensors[bare_name] = part.detach().cpu().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "config.json", folder / "model.safetensors"]
    files[0].write_text(config, encoding="utf-8")
    save_tensors(tensors, files[1])
    # safetensors creates files that only their owner can read.
    files[1].chmod(files[0].stat().st_mode)
    return {path.name: sha256_of(path) for path in files}


def config_text(checkpoint: Checkpoint) -> str:
    """Return the content of config.json for a checkpoint; errors are those of `write`."""
    family, kind = FAMILIES[checkpoint.family], checkpoint.head
    check_head(family, kind)
    checkpoint.check()
    raw = {**checkpoint.extra, **config_values(checkpoint.config, family, kind)}
    if kind in LABELLED:
        names = checkpoint.labels or [f"LABEL_{i}" for i in range(checkpoint.num_labels or 0)]
        if len(set(names)) < len(names):
            raise ConfigError("Two labels have the same name; config.json cannot hold both.")
        for name in names:
            if unprintable(name):
                raise ConfigError(f"The label {name!a} holds a control character. Rename it.")
        raw["id2label"] = {str(i): name for i, name in enumerate(names)}
        raw["label2id"] = {name: i for i, name in enumerate(names)}
    if checkpoint.problem_type is not None:
        raw["problem_type"] = checkpoint.problem_type
    dtypes = {tensor.dtype for tensor in checkpoint.tensors.values()}
    if len(dtypes) == 1:
        raw["dtype"] = str(dtypes.pop()).removeprefix("torch.")
    text = json.dumps(raw, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    if len(text.encode()) > MAX_JSON_BYTES:
        raise ConfigError(
            f"The names of {len(raw.get('id2label', ()))} labels make a config.json larger "
            f"than {MAX_JSON_BYTES // 2**20} MiB, which would not be read again. Shorten them."
        )
    return text


def check_digests(folder: Path, filbert: dict[str, Any], paths: list[Path]) -> None:
    """Raise a FormatError for a file that differs from its digest in filbert.json."""
    for path in paths:
        try:
            entry = filbert.get("files", {}).get(path.relative_to(folder).as_posix(), {})
            expected = entry.get("sha256")
        except AttributeError as error:
            raise FormatError(
                f"{folder / 'filbert.json'}: files does not list a sha256 for {path.name}."
            ) from error
        if expected is not None and sha256_of(path) != expected:
            raise FormatError(
                f"{path} is damaged or was changed: its sha256 is not the one in filbert.json. "
                "Restore it; if you changed it on purpose, remove its entry there."
            )


# Tokenizers: what the classic files (vocab.txt and the like) do not contain, as tables. Sources:
# transformers 5, models/*/tokenization_*.py and convert_slow_tokenizer.py.

_BRACKETS = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]", "unk": "[UNK]"}
_ANGLES = {"cls": "<s>", "sep": "</s>", "mask": "<mask>", "pad": "<pad>", "unk": "<unk>"}


def _unscored(*pieces: str) -> tuple[tuple[str, float], ...]:
    return tuple((piece, 0.0) for piece in pieces)


# fairseq puts special tokens before the pieces. CamemBERT's pieces include <s> and </s> again, so
# the first ones are unused and named "NOTUSED".
_FAIRSEQ = PieceOrder(
    skipped=("<unk>", "<s>", "</s>"),
    head=_unscored("<s>", "<pad>", "</s>", "<unk>"),
    tail=("<mask>",),
    unknown="<unk>",
)
_FAIRSEQ_TWICE = PieceOrder(
    skipped=("<unk>",),
    head=(*_unscored("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"), ("<unk>NOTUSED", -100.0)),
    tail=("<mask>",),
    unknown="<unk>",
)

# DeBERTa adds the mask to the file's pieces, and T5 a hundred marks, in this order.
_DEBERTA_MARKS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
_DEBERTA = PieceOrder(_DEBERTA_MARKS, _unscored(*_DEBERTA_MARKS), ("[MASK]",), "[UNK]")
_T5_MARKS = ("<pad>", "</s>", "<unk>")
_T5 = PieceOrder(
    skipped=_T5_MARKS,
    head=_unscored(*_T5_MARKS),
    tail=tuple(f"<extra_id_{number}>" for number in range(99, -1, -1)),
    unknown="<unk>",
)
_BPE_FILE = "sentencepiece.bpe.model"

# By the class in tokenizer_config.json, without "Fast".
CONVENTIONS: dict[str, Convention] = {
    convention.class_name: convention
    for convention in (
        Convention("BertTokenizer", _BRACKETS),
        Convention("DistilBertTokenizer", _BRACKETS),
        Convention("ElectraTokenizer", _BRACKETS),
        Convention("MPNetTokenizer", {**_ANGLES, "unk": "[UNK]"}, double_separator=True),
        Convention("RobertaTokenizer", _ANGLES, double_separator=True),
        Convention("AlbertTokenizer", {**_BRACKETS, "pad": "<pad>", "unk": "<unk>"}, unk_id=1),
        Convention(
            "XLMRobertaTokenizer", _ANGLES, double_separator=True, order=_FAIRSEQ, file=_BPE_FILE
        ),
        Convention(
            "CamembertTokenizer",
            _ANGLES,
            double_separator=True,
            order=_FAIRSEQ_TWICE,
            file=_BPE_FILE,
        ),
        # transformers 5 ignores the character map of the file.
        Convention(
            "DebertaV2Tokenizer", _BRACKETS, order=_DEBERTA, file="spm.model", is_exact=False
        ),
        # transformers 5 scores pieces such as "1," otherwise than XLNet's authors.
        Convention(
            "XLNetTokenizer",
            {**_ANGLES, "cls": "<cls>", "sep": "<sep>"},
            cls_last=True,
            is_exact=False,
        ),
        Convention("T5Tokenizer", {"sep": "</s>", "pad": "<pad>", "unk": "<unk>"}, order=_T5),
    )
}

# By model_type in config.json ("xlm-roberta"), for folders that name no class.
_BY_MODEL_TYPE = {
    name.removesuffix("Tokenizer").lower(): convention for name, convention in CONVENTIONS.items()
}

# Classes that preprocess texts in Python code, which no vocabulary file describes.
_PYTHON_ONLY = (
    "BertJapaneseTokenizer", "BertweetTokenizer", "PhobertTokenizer", "RoCBertTokenizer",
    "HerbertTokenizer",
)  # fmt: skip


@unreadable_as(FormatError)
def convention_of(
    folder: Path, model_type: str | None = None, config: Mapping[str, Any] | None = None
) -> Convention:
    """Return the convention of the tokenizer in a folder, or NO_CONVENTION.

    The family is `model_type`, or that of config.json, whose content is `config` if it was parsed.

    Raises:
        FormatError: A damaged file, or a tokenizer that does more than its files describe.
    """
    name = read_settings(folder / "tokenizer_config.json").get("tokenizer_class")
    name = name.removesuffix("Fast") if isinstance(name, str) else None
    if name in _PYTHON_ONLY and not (folder / "tokenizer.json").is_file():
        raise FormatError(
            f"{folder}: its {name} is not supported, because it preprocesses texts in Python code. "
            "Add its tokenizer.json if there is one, or choose another model."
        )
    if name in CONVENTIONS:
        return CONVENTIONS[name]
    raw = config if config is not None else read_settings(folder / "config.json")
    stated = model_type or raw.get("model_type")
    if not isinstance(stated, str):
        return NO_CONVENTION
    return _BY_MODEL_TYPE.get(stated.removeprefix(CAUSAL_TYPE).replace("-", ""), NO_CONVENTION)


def read_tokenizer(folder: Path, *, config: Mapping[str, Any] | None = None) -> Tokenizer:
    """Read the tokenizer in a folder by the conventions of its family."""
    return Tokenizer.load(folder, convention=convention_of(folder, config=config))


def write_tokenizer(
    tokenizer: Tokenizer, checkpoint: Checkpoint, folder: Path, max_length: int | None = None
) -> None:
    """Save a tokenizer for a model; token types are switched off if the model has none."""
    has_none = checkpoint.config.embeddings.token_types == 0
    tokenizer.save(folder, max_length=max_length, token_type_ids=False if has_none else None)


def write_folder(
    new: Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    stored: Mapping[str, Any],
    *,
    source: Path,
    prompt: str | None = None,
) -> None:
    """Write a model that was made from another one into an existing folder, without a card.

    Args:
        stored: For filbert.json; digests of the weight files are added.
        source: Folder of the original, whose sentence vectors are computed in the same way.
        prompt: Name of the prompt that goes before every text, if the original has it.
    """
    if checkpoint.head == "sequence":
        extra = {**checkpoint.extra, **score_settings(source)}
        checkpoint = replace(checkpoint, extra=extra)
    digests = write(checkpoint, new)
    length = checkpoint.config.max_tokens_per_sequence
    write_tokenizer(tokenizer, checkpoint, new, length)
    if (source / "modules.json").is_file():
        vectors = read_sentence_vectors(source, checkpoint.config.hidden_size)
        if vectors.max_length is None:
            vectors = replace(vectors, max_length=min(tokenizer.max_length or length, length))
        if prompt in vectors.prompts:
            vectors = replace(vectors, default_prompt=prompt)
        is_static = checkpoint.family == STATIC
        write_sentence_vectors(new, vectors, checkpoint.config.hidden_size, static=is_static)
    files = {name: {"sha256": digest} for name, digest in digests.items()}
    write_json(new / "filbert.json", {**stored, "files": files})
