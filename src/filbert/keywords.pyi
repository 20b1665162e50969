"""Keyword arguments of `filbert.api`; docs/figures/signatures.py writes them."""

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from typing_extensions import Required

from filbert.api import PathLike
from filbert.data.tables import Rows

class FinetuneKeywords(TypedDict, total=False):
    task: Required[str]
    model: Required[PathLike]
    out: Required[PathLike]
    labels: str | Iterable[Any] | None
    positive: str | None
    multilabel: bool
    class_weights: str | int | Sequence[Any] | None
    on_overflow: str
    stride: int
    clean: str | int | Sequence[Any] | None
    max_question_length: int
    max_answer_length: int
    n_best: int
    repair_tags: bool
    loss: str
    scale: float
    pooling: str
    causal: bool
    keep_layers: str | int | Sequence[Any] | None
    reinit_layers: int
    new_head: bool
    lora: int | None
    embeddings: PathLike | None
    data: Rows | None
    train: Rows | None
    dev: Rows | float | None
    test: Rows | float | None
    group_column: str | None
    split_seed: int | None
    folds: int
    fold: int | None
    max_length: int | None
    hide_texts: bool
    text_column: str
    text_pair_column: str | None
    label_column: str | None
    label_columns: str | Iterable[Any] | None
    merge_labels: str | Iterable[Any] | None
    merge_as: str | None
    tokens_column: str | None
    tags_column: str | None
    spans_column: str | None
    id_column: str | None
    question_column: str | None
    context_column: str | None
    answers_column: str | None
    choices_column: str | None
    choice_columns: str | Iterable[Any] | None
    separator: str | None
    encoding: str | None
    batch_size: int | None
    max_tokens: int | None
    lr: float | None
    epochs: float | None
    steps: int | None
    time: str | None
    optimizer: str
    schedule: str
    warmup: float
    weight_decay: float
    beta1: float
    beta2: float
    eps: float | None
    clip: float
    layer_decay: float | None
    freeze: str | None
    dropout: float | None
    eval_every: int | None
    patience: int
    metric: str | None
    overwrite: bool
    resume: bool
    seed: int
    seeds: int
    precision: str
    device: str | None
    save_every: int | None
    keep_states: bool
    baseline: bool
    tensorboard: bool
    license: str | None
    language: str | None
    contrast: float | None
    text: str
    label: str | None

class PretrainKeywords(TypedDict, total=False):
    out: Required[PathLike]
    model: PathLike | None
    objective: str
    embeddings: PathLike | None
    generator_share: float
    family: str
    num_hidden_layers: int | None
    hidden_size: int | None
    num_attention_heads: int | None
    intermediate_size: int | None
    embedding_size: int | None
    hidden_act: str | None
    max_position_embeddings: int | None
    corpus: str | Iterable[Any] | None
    dev: Rows | float | None
    dev_rows: int
    dev_mask_rate: float
    tokenizer: PathLike | None
    masking: str
    mask_rate: float
    mask_style: str
    mask_rarity: float
    max_predictions: int | None
    duplicates: int | None
    pair: str
    short_rate: float
    max_length: int
    second_length: int | None
    second_share: float
    second_batch_size: int | None
    batch_size: int | None
    max_tokens: int | None
    lr: float | None
    epochs: float | None
    steps: int | None
    time: str | None
    optimizer: str
    schedule: str
    warmup: float
    weight_decay: float
    beta1: float
    beta2: float
    eps: float | None
    clip: float
    layer_decay: float | None
    freeze: str | None
    dropout: float | None
    eval_every: int | None
    patience: int
    metric: str | None
    overwrite: bool
    resume: bool
    seed: int
    seeds: int
    precision: str
    device: str | None
    save_every: int | None
    keep_states: bool
    baseline: bool
    tensorboard: bool
    license: str | None
    language: str | None

class DistillKeywords(TypedDict, total=False):
    teacher: Required[PathLike]
    out: Required[PathLike]
    task: str | None
    student: PathLike | None
    keep_layers: str | int | Sequence[Any] | None
    layers: int | None
    hidden_size: int | None
    heads: int | None
    intermediate_size: int | None
    method: str
    temperature: float | None
    alpha: float | None
    beta: float
    layer_map: str | int | Sequence[Any] | None
    hidden_share: float
    hidden_lr: float | None
    hidden_schedule: str | None
    soft_weight: float
    mlm_weight: float
    cosine_weight: float
    soft_on: str
    teacher_layer: int | None
    relation_heads: int | None
    train: Rows | None
    corpus: str | Iterable[Any] | None
    dev: Rows | float | None
    test: Rows | float | None
    max_length: int | None
    hide_texts: bool
    dev_rows: int
    text_column: str
    text_pair_column: str | None
    label_column: str | None
    label_columns: str | Iterable[Any] | None
    merge_labels: str | Iterable[Any] | None
    merge_as: str | None
    tokens_column: str | None
    tags_column: str | None
    spans_column: str | None
    id_column: str | None
    question_column: str | None
    context_column: str | None
    answers_column: str | None
    choices_column: str | None
    choice_columns: str | Iterable[Any] | None
    separator: str | None
    encoding: str | None
    masking: str
    mask_rate: float
    mask_style: str
    mask_rarity: float
    max_predictions: int | None
    duplicates: int | None
    batch_size: int | None
    max_tokens: int | None
    lr: float | None
    epochs: float | None
    steps: int | None
    time: str | None
    optimizer: str
    schedule: str
    warmup: float
    weight_decay: float
    beta1: float
    beta2: float
    eps: float | None
    clip: float
    layer_decay: float | None
    freeze: str | None
    dropout: float | None
    eval_every: int | None
    patience: int
    metric: str | None
    overwrite: bool
    resume: bool
    seed: int
    seeds: int
    precision: str
    device: str | None
    save_every: int | None
    keep_states: bool
    baseline: bool
    tensorboard: bool
    license: str | None
    language: str | None
    text: str
    label: str | None

class StudyKeywords(TypedDict, total=False):
    data: Rows | None
    train: Rows | None
    dev: Rows | float | None
    test: Rows | float | None
    text_column: str | None
    text_pair_column: str | None
    label_column: str | None
    separator: str | None
    merge_labels: str | Iterable[Any] | None
    merge_as: str | None
    positive: str | None
    split: str | Iterable[Any] | None
    slice_column: str | None
    max_length: int | None
    batch_size: int | None
    max_tokens: int | None
    epochs: float | None
    steps: int | None
    save_every: int | None
    precision: str | None
    device: str | None
    seed: int | None
    seeds: int | None
    cleaning: str | None
    resamples: int | None
    name: str | None
    hide_texts: bool | None
    text: str | None
    label: str | None

class LabelledFileKeywords(TypedDict, total=False):
    text_column: str
    text_pair_column: str | None
    label_column: str | None
    label_columns: str | Iterable[Any] | None
    merge_labels: str | Iterable[Any] | None
    merge_as: str | None
    tokens_column: str | None
    tags_column: str | None
    spans_column: str | None
    id_column: str | None
    question_column: str | None
    context_column: str | None
    answers_column: str | None
    choices_column: str | None
    choice_columns: str | Iterable[Any] | None
    separator: str | None
    encoding: str | None
    labels: str | Iterable[Any] | None
    positive: str | None
    multilabel: bool
    class_weights: str | int | Sequence[Any] | None
    on_overflow: str
    stride: int
    clean: str | int | Sequence[Any] | None
    max_question_length: int
    max_answer_length: int
    n_best: int
    repair_tags: bool
    loss: str
    scale: float
    pooling: str
    text: str
    label: str | None

class CorpusKeywords(TypedDict, total=False):
    sentences: str
    text_column: str
    text_pair_column: str | None
    text: str

class ColumnNamesKeywords(TypedDict, total=False):
    text_column: str
    text_pair_column: str | None
    label_column: str | None
    label_columns: str | Iterable[Any] | None
    merge_labels: str | Iterable[Any] | None
    merge_as: str | None
    tokens_column: str | None
    tags_column: str | None
    spans_column: str | None
    id_column: str | None
    question_column: str | None
    context_column: str | None
    answers_column: str | None
    choices_column: str | None
    choice_columns: str | Iterable[Any] | None
    separator: str | None
    encoding: str | None
    text: str
    label: str | None
