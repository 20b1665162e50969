"""Model cards (README.md) of fine-tuned, distilled and pre-trained models.

A card contains no text of the data set and no folder name of the machine. The text is in
templates/card.md; this module computes what the template shows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from huggingface_hub.repocard_data import EvalResult, ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from filbert.errors import printable
from filbert.tasks.base import Task
from filbert.train.options import PATHS, FinetuneOptions, names_of, options_in

# Names of the tasks on the Hugging Face Hub.
_PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "span_qa": "question-answering",
    "multiple_choice": "multiple-choice",
    "embedding": "sentence-similarity",
}
# A Python call of the model, and the input row for the same call on the command line.
_ONE_TEXT = ('model.predict(["A sentence of yours."])', '{"text": "A sentence of yours."}')
_TWO_TEXTS = (
    'model.predict([("A first text.", "A second text.")])',
    '{"text": "A first text.", "text_pair": "A second text."}',
)
_EXAMPLES = {
    "tagging": (
        'model.tag("Ada lived in London.")',
        '{"tokens": ["Ada", "lived", "in", "London", "."]}',
    ),
    "span_qa": (
        'model.answer("Where did Ada live?", "Ada lived in London.")',
        '{"question": "Where did Ada live?", "context": "Ada lived in London."}',
    ),
    "multiple_choice": (
        'model.predict([{"context": "Ada went", "choices": ["home", "blue"]}])',
        '{"context": "Ada went", "choices": ["home", "blue"]}',
    ),
    "embedding": ('model.embed(["A first text.", "A second text."]).shape', ""),
}
_EMBED = "echo 'A first text.' > texts.txt\nfilbert embed . texts.txt --out vectors.npy"
_FINETUNE = (
    "filbert finetune --task classification --model . --train train.csv --dev dev.csv "
    "--out runs/mine"
)
_FILL = 'model.fill("This is a [MASK] of yours.")'
# Options that do not affect training.
_OMITTED = (*PATHS, "task", "overwrite", "resume", "show_texts", "tensorboard", "save_every",
           "license", "language")  # fmt: skip
_MOST_LABELS = 20
_FEW_ROWS = 20
# Default of distillation.
_DEFAULT_LENGTH = 128
_WORDS = {"mlm": "masked words", "replaced": "replaced words"}
# File names that the Hub accepts as names of data sets.
_DATASET = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# Number of digits of a hash that are shown.
_SHORT = 12


def model_card(task: Task, recorded: Mapping[str, Any]) -> str:
    """Return the README.md of a model for a task.

    Args:
        task: The calibrated task.
        recorded: The content of filbert.json.
    """
    name = task.spec.name.rpartition(":")[2]
    paragraphs = []
    if labels := [code(label) for label in task.spec.labels or ()]:
        more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        paragraphs.append(f"Labels: {', '.join(labels[:_MOST_LABELS])}{more}.")
    if cleaned := recorded["task"].get("clean"):
        paragraphs.append(
            f"filbert cleans texts before this model reads them ({', '.join(cleaned)}). Other "
            "tools do not: give them cleaned texts."
        )
    has_pairs = recorded["data"]["train"].get("has_pairs")
    call, row = _EXAMPLES.get(name, _TWO_TEXTS if has_pairs else _ONE_TEXT)
    predict = f"echo '{row}' > row.jsonl\nfilbert predict . row.jsonl"
    return _render(
        recorded,
        task=name.replace("_", " "),
        pipeline=_PIPELINES.get(name),
        summary=f"A {recorded['model']['family']} encoder for {name.replace('_', ' ')}, "
        f"{_origin(recorded['options'])} with filbert {recorded['filbert']}: "
        f"{recorded['model']['parameters']:,} parameters, texts of up to "
        f"{recorded['max_length']:,} tokens.",
        paragraphs=paragraphs,
        call=call,
        commands=_EMBED if name == "embedding" else predict,
        limits=_limits_of_task(task, recorded),
    )


def pretrained_card(recorded: Mapping[str, Any]) -> str:
    """Return the README.md of a pre-trained model; see `model_card`."""
    options = recorded["options"]
    fills = options["objective"] == "mlm"
    base = f"continued from {code(options['model'])}" if options.get("model") else "from scratch"
    # A discriminator cannot fill masks; the generator that is saved with it can.
    folder = "." if fills else "generator"
    return _render(
        recorded,
        task="pre-training",
        pipeline="fill-mask" if fills else None,
        summary=f"A {recorded['model']['family']} encoder pre-trained on "
        f"{_WORDS[options['objective']]}, {base}, on {recorded['data']['train']['tokens']:,} "
        f"tokens of text with filbert {recorded['filbert']}: "
        f"{recorded['model']['parameters']:,} parameters.",
        call=_FILL,
        commands=f'filbert fill {folder} "This is a [MASK] of yours."\n{_FINETUNE}',
        limits=_limits_of_text(recorded),
        folder=folder,
    )


def distilled_card(recorded: Mapping[str, Any]) -> str:
    """Return the README.md of a model that was distilled on raw text; see `model_card`."""
    options, teacher = recorded["options"], recorded["teacher"]
    fills = "metrics" in teacher
    limits = _limits_of_text(recorded)
    return _render(
        recorded,
        task="distillation",
        pipeline="fill-mask" if fills else None,
        summary=f"A {recorded['model']['family']} encoder of "
        f"{recorded['model']['parameters']:,} parameters, distilled from "
        f"{code(options['teacher'])} ({teacher['parameters']:,}) by the method "
        f"{options['method']} on {recorded['data']['train']['tokens']:,} tokens of text with "
        f"filbert {recorded['filbert']}.",
        call=_FILL if fills else 'model.embed(["A sentence of yours."]).shape',
        commands=_FINETUNE,
        limits=[*limits, "It also repeats the errors of its teacher."],
    )


def _options_of(command: str | None) -> type:
    """The class of the options of a verb."""
    if command == "pretrain":
        from filbert.train.pretrain_options import PretrainOptions

        return PretrainOptions
    if command == "distill":
        from filbert.train.distill_options import DistillOptions

        return DistillOptions
    return FinetuneOptions


def _render(
    recorded: Mapping[str, Any],
    *,
    task: str,
    pipeline: str | None,
    summary: str,
    call: str,
    commands: str,
    limits: list[str],
    paragraphs: Iterable[str] = (),
    folder: str = ".",
) -> str:
    """Return a card with what all cards have: tables, training, limits and versions."""
    environment = Environment(
        loader=PackageLoader("filbert.train"), undefined=StrictUndefined, trim_blocks=True
    )
    measured = finite(recorded["metrics"])
    names = dict.fromkeys(name for metrics in measured.values() for name in metrics)
    metric_rows = {
        name.replace("_", " "): {
            split: f"{metrics[name]:.4f}" if name in metrics else ""
            for split, metrics in measured.items()
        }
        for name in names
    }
    named = ", ".join(f"{name} {version}" for name, version in recorded["versions"].items())
    commit = f" (commit {recorded['commit'][:_SHORT]})" if recorded.get("commit") else ""
    return environment.get_template("card.md").render(
        front=metadata(recorded, task, pipeline).to_yaml(),
        name=printable(recorded["name"]),
        summary=summary,
        paragraphs=list(paragraphs),
        folder=folder,
        call=call,
        commands=commands,
        data_columns=list(recorded["data"]),
        data_rows=_data_rows(recorded["data"]),
        metric_columns=list(measured),
        metric_rows=metric_rows,
        training=_training(recorded),
        changed=_changed(recorded["options"], _options_of(recorded.get("command"))),
        limits=[*limits, *_limits_of_run(recorded)],
        versions=f"filbert {recorded['filbert']}{commit}, {named}.",
    )


def metadata(recorded: Mapping[str, Any], task: str, pipeline: str | None) -> ModelCardData:
    """Return the metadata at the top of a card. Source: huggingface.co/docs/hub/model-cards.

    Args:
        recorded: The content of filbert.json.
        task: Name of the task, also used as a tag.
        pipeline: Name of the task on the Hub, if it has one.
    """
    base, options = recorded.get("base_model") or {}, recorded["options"]
    languages = options.get("language")
    splits = {name: facts for name, facts in recorded["data"].items() if slug(facts["path"])}
    results = [
        EvalResult(
            task_type=pipeline or "feature-extraction",
            task_name=task,
            dataset_type=str(slug(splits[split]["path"])),
            dataset_name=f"{splits[split]['path']} ({split})",
            dataset_split=split,
            dataset_revision=splits[split]["sha256"][:_SHORT],
            metric_type=name,
            metric_name=name.replace("_", " "),
            metric_value=round(value, 6),
        )
        for split, metrics in finite(recorded["metrics"]).items()
        for name, value in metrics.items()
        # A decision threshold does not measure quality.
        if split in splits and "thresh" not in name
    ]
    return ModelCardData(
        license=options.get("license") or base.get("license"),
        language=list(names_of(languages)) if languages else base.get("language"),
        library_name="filbert",
        pipeline_tag=pipeline,
        base_model=base.get("hub_id"),
        base_model_relation="finetune" if base.get("hub_id") else None,
        datasets=list(dict.fromkeys(str(slug(f["path"])) for f in splits.values())) or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        tags=list(dict.fromkeys(["filbert", task.replace(" ", "-"), recorded["model"]["family"]])),
        model_name=recorded["name"] if results else None,
        eval_results=results or None,
    )


def code(text: str) -> str:
    """Return a name as a Markdown code span; characters that could end it are replaced."""
    return "`" + printable(text).replace("`", "'").replace("|", "\\|") + "`"


def finite(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the metrics that are finite numbers, by split."""
    return {
        split: {k: v for k, v in values.items() if isinstance(v, float) and math.isfinite(v)}
        for split, values in metrics.items()
    }


def slug(path: str) -> str | None:
    """Return the file name of a path if the Hub accepts it as the name of a data set."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name if _DATASET.fullmatch(name) else None


def _origin(options: Mapping[str, Any]) -> str:
    """Describe the base model, and the teacher of a student."""
    if "teacher" not in options:
        return f"fine-tuned from {code(str(options['model']))}"
    student = options.get("student")
    start = f"starting from {code(str(student))}" if student else "starting with some of its layers"
    return f"distilled from {code(str(options['teacher']))}, {start},"


def _data_rows(data: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return files, hashes and counts, by title and split."""
    rows = {
        "file": {name: code(facts["path"]) for name, facts in data.items()},
        "sha256": {name: code(facts["sha256"][:_SHORT]) for name, facts in data.items()},
    }
    for key in ("rows", "documents", "sentences", "sequences", "tokens", "truncated"):
        if any(key in facts for facts in data.values()):
            title = "rows cut for length" if key == "truncated" else key
            rows[title] = {n: f"{f[key]:,}" if key in f else "" for n, f in data.items()}
    counts = {name: facts.get("label_counts") or {} for name, facts in data.items()}
    labels = list(dict.fromkeys(label for found in counts.values() for label in found))
    for label in labels[:_MOST_LABELS]:
        rows[f"label {code(label)}"] = {n: f"{c.get(label, 0):,}" for n, c in counts.items()}
    return rows


def _training(recorded: Mapping[str, Any]) -> str:
    """Describe the training: steps, time, machine and seed."""
    device = recorded["device"]
    processes = f" in {device['processes']} processes" if device["processes"] > 1 else ""
    threads = f"{device['threads']} thread{'' if device['threads'] == 1 else 's'}"
    best = recorded.get("best") or {}
    chosen = f"; the weights are those of step {best['step']}" if best.get("step") else ""
    return (
        f"{recorded['steps']:,} steps in {recorded['seconds']:,.0f} s on "
        f"{printable(device['name'])} ({threads}{processes}), {recorded['precision']}, seed "
        f"{recorded['options'].get('seed')}{chosen}."
    )


def _changed(options: Mapping[str, Any], kind: type) -> list[str]:
    """Return the options that affect training and differ from their defaults."""
    defaults = {name: option.default for name, option in options_in(kind).items()}
    return [
        code(f"{name}={','.join(map(str, value)) if isinstance(value, list | tuple) else value}")
        for name, value in options.items()
        if name not in _OMITTED and value != defaults.get(name)
    ]


def _limits_of_task(task: Task, recorded: Mapping[str, Any]) -> list[str]:
    data = recorded["data"]
    limits = []
    if not task.spec.windows:
        cut = ", ".join(
            f"{facts['truncated']:,} of {facts['rows']:,} {name} rows"
            for name, facts in data.items()
            if facts.get("truncated")
        )
        rule = recorded["options"].get("on_overflow", "truncate")
        limits.append(
            f"Longer texts are cut at {recorded['max_length']:,} tokens, by `{rule}`"
            f"{f' ({cut})' if cut else ''}."
        )
    if "dev" not in data:
        limits.append("There were no dev rows: no best step was chosen and nothing was calibrated.")
    elif "test" not in recorded["metrics"]:
        limits.append(
            "There were no test rows. The metrics are those of dev, on which the step and the "
            "thresholds were chosen, so they are too optimistic."
        )
    else:
        limits.append("Step and thresholds were chosen on dev; only test is unseen.")
    counts = data["train"].get("label_counts") or {}
    if few := [label for label, count in counts.items() if count < _FEW_ROWS]:
        names = ", ".join(map(code, few[:_MOST_LABELS]))
        limits.append(f"Fewer than {_FEW_ROWS} training rows have: {names}.")
    fitted = recorded["task"]
    stored = [k for k in ("thresholds", "temperature", "null_threshold") if fitted.get(k)]
    if fitted.get("temperature") == 1.0:  # the value before calibration
        stored.remove("temperature")
    if stored:
        names = " and ".join(key.replace("_", " ") for key in stored)
        limits.append(
            f"`filbert.json` stores {names}. Other tools do not read it: they load the weights "
            "alone."
        )
    return limits


def _limits_of_text(recorded: Mapping[str, Any]) -> list[str]:
    """Return the limits that follow from the training text."""
    options = recorded["options"]
    longest = options.get("second_length") or options.get("max_length") or _DEFAULT_LENGTH
    limits = []
    if recorded["data"]["train"].get("inputs"):
        names = [code(entry["path"]) for entry in recorded["data"]["train"]["inputs"]]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        limits.append(f"Its text: {', '.join(names[:10])}{more}.")
    limits += [
        f"It saw {recorded.get('tokens', 0):,} tokens, repetitions included, in sequences of up "
        f"to {longest:,} tokens.",
        "It knows the language, the opinions and the errors of that text and of nothing else.",
    ]
    if "dev" not in recorded["data"]:
        limits.append("No text was held out, so nothing but the training loss was measured.")
    return limits


def _limits_of_run(recorded: Mapping[str, Any]) -> list[str]:
    base, seeds = recorded.get("base_model") or {}, recorded.get("seeds")
    limits = [
        f"This is one run with one seed ({recorded['options'].get('seed')}); others may be better "
        "or worse."
    ]
    if seeds and seeds.get("mean") is not None:
        deviation = seeds.get("deviation")
        spread = "" if deviation is None else f", deviation {deviation:.4f}"
        limits = [
            f"It is the best of {seeds['count']} runs with different seeds by dev "
            f"{seeds['metric'].replace('_', ' ')} (mean {seeds['mean']:.4f}{spread}); its own "
            "dev metrics are therefore too optimistic."
        ]
    if not (recorded["options"].get("license") or base.get("license")):
        limits.append("No license is stated here. Ask the author before you use it.")
    return limits
