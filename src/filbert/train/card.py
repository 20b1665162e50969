"""Model cards (README.md) of fine-tuned, distilled and pre-trained models.

A card contains no text of the data set and no folder name of the machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from huggingface_hub.repocard_data import CardData

from filbert.errors import printable
from filbert.tasks.base import Task
from filbert.train.distill_options import DistillOptions
from filbert.train.options import PATHS, FinetuneOptions, names_of, options_in
from filbert.train.pretrain_options import PretrainOptions

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
# Options that do not affect training.
_OMITTED = (*PATHS, "task", "overwrite", "resume", "show_texts", "tensorboard", "save_every",
           "license", "language", "dry_run")  # fmt: skip
_MOST_LABELS = 20
_FEW_ROWS = 20
# Default of distillation.
_DEFAULT_LENGTH = 128
_WORDS = {"mlm": "masked words", "replaced": "replaced words"}
# File names that the Hub accepts as names of data sets.
_DATASET = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# Number of digits of a hash that are shown.
SHORT = 12


def model_card(task: Task, story: Mapping[str, Any]) -> str:
    """Return the README.md of a model for a task.

    Args:
        task: The calibrated task.
        story: The content of filbert.json.
    """
    name = task.spec.name.rpartition(":")[2]
    is_student = story.get("command") == "distill"
    labels = [code(label) for label in task.spec.labels or ()]
    lines = [
        front_matter(story, name.replace("_", " "), _PIPELINES.get(name)),
        "",
        f"# {printable(story['name'])}",
        "",
        f"A {story['model']['family']} encoder for {name.replace('_', ' ')}, "
        f"{_origin(story['options'])} with filbert {story['filbert']}: "
        f"{story['model']['parameters']:,} parameters, texts of up to {story['max_length']:,} "
        "tokens.",
        "",
    ]
    if labels:
        more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        lines += [f"Labels: {', '.join(labels[:_MOST_LABELS])}{more}.", ""]
    if cleaned := story["task"].get("clean"):
        lines += [
            f"filbert cleans texts before this model reads them ({', '.join(cleaned)}). Other "
            "tools do not: hand them cleaned texts.",
            "",
        ]
    lines += [*_use(name, story), *data_table(story["data"]), *figure_table(story)]
    kind = DistillOptions if is_student else FinetuneOptions
    lines += [*training(story, kind), *_limits(task, story), *versions(story)]
    return "\n".join(lines)


def _origin(options: Mapping[str, Any]) -> str:
    """Describe the base model, and the teacher of a student."""
    if "teacher" not in options:
        return f"fine-tuned from {code(str(options['model']))}"
    student = options.get("student")
    begun = f"starting as {code(str(student))}" if student else "starting with some of its layers"
    return f"distilled from {code(str(options['teacher']))}, {begun},"


def code(text: str) -> str:
    """Return a name as a Markdown code span; characters that could end it are replaced."""
    return "`" + printable(text).replace("`", "'").replace("|", "\\|") + "`"


def _use(name: str, story: Mapping[str, Any]) -> list[str]:
    pairs = story["data"]["train"].get("has_pairs")
    call, row = _EXAMPLES.get(name, _TWO_TEXTS if pairs else _ONE_TEXT)
    ask = f"echo '{row}' > row.jsonl\nfilbert predict . row.jsonl"
    if name == "embedding":
        ask = "echo 'A first text.' > texts.txt\nfilbert embed . texts.txt --out vectors.npy"
    return [
        "## Use",
        "",
        "```python",
        "import filbert",
        "",
        'model = filbert.load(".")  # this folder, or the name of its repository on the Hub',
        f"print({call})",
        "```",
        "",
        "```bash",
        *ask.split("\n"),
        "```",
        "",
    ]


def data_table(data: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table of files, hashes and counts with one column per split."""
    rows = {
        "file": {name: code(facts["path"]) for name, facts in data.items()},
        "sha256": {name: code(facts["sha256"][:SHORT]) for name, facts in data.items()},
    }
    for key in ("rows", "documents", "sentences", "sequences", "tokens", "truncated"):
        heading = "rows cut for length" if key == "truncated" else key
        rows[heading] = {n: f"{facts[key]:,}" for n, facts in data.items() if key in facts}
    counts = {name: facts.get("label_counts") or {} for name, facts in data.items()}
    for label in list(dict.fromkeys(label for found in counts.values() for label in found))[
        :_MOST_LABELS
    ]:
        cells = {name: f"{found.get(label, 0):,}" for name, found in counts.items()}
        rows[f"label {code(label)}"] = cells
    return ["## Data", "", *table(list(data), {k: v for k, v in rows.items() if v})]


def figure_table(story: Mapping[str, Any]) -> list[str]:
    """Return a table of the metrics with one column per split."""
    measured = figures(story["metrics"])
    if not any(measured.values()):
        return []
    names = dict.fromkeys(name for found in measured.values() for name in found)
    rows = {
        name.replace("_", " "): {s: f"{f[name]:.4f}" for s, f in measured.items() if name in f}
        for name in names
    }
    return ["## Figures", "", *table(list(measured), rows)]


def table(columns: list[str], rows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    head = ["| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    body = [
        f"| {name} | " + " | ".join(cells.get(column, "") for column in columns) + " |"
        for name, cells in rows.items()
    ]
    return [*head, *body, ""]


def training(story: Mapping[str, Any], kind: type) -> list[str]:
    """Describe the training: steps, time, machine, and options that differ from the defaults."""
    device = story["device"]
    processes = f" in {device['processes']} processes" if device["processes"] > 1 else ""
    threads = f"{device['threads']} thread{'' if device['threads'] == 1 else 's'}"
    best = story.get("best") or {}
    chosen = f"; the weights are those of step {best['step']}" if best.get("step") else ""
    lines = [
        "## Training",
        "",
        f"{story['steps']:,} steps in {story['seconds']:,.0f} s on "
        f"{printable(device['name'])} ({threads}{processes}), {story['precision']}, seed "
        f"{story['options'].get('seed')}{chosen}.",
        "",
    ]
    defaults = {name: option.default for name, option in options_in(kind).items()}
    told = {
        name: value
        for name, value in story["options"].items()
        if name not in _OMITTED and value != defaults.get(name)
    }
    if told:
        lines += ["Options that differ from the defaults: "]
        lines[-1] += ", ".join(code(f"{name}={_plain(v)}") for name, v in told.items()) + "."
        lines.append("")
    return lines


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _limits(task: Task, story: Mapping[str, Any]) -> list[str]:
    data, metrics = story["data"], story["metrics"]
    found = [] if task.spec.windows else _cut(story)
    if "dev" not in data:
        found.append("There were no dev rows: no best step was chosen and nothing was calibrated.")
    elif "test" not in metrics:
        found.append(
            "There were no test rows. The figures are those of dev, on which the step and the "
            "thresholds were chosen, so they flatter."
        )
    else:
        found.append("Step and thresholds were chosen on dev; only test is unseen.")
    few = [
        label
        for label, count in (data["train"].get("label_counts") or {}).items()
        if count < _FEW_ROWS
    ]
    if few:
        names = ", ".join(map(code, few[:_MOST_LABELS]))
        found.append(f"Fewer than {_FEW_ROWS} training rows have: {names}.")
    fitted = story["task"]
    stored = [key for key in ("thresholds", "temperature", "null_threshold") if fitted.get(key)]
    if fitted.get("temperature") == 1.0:  # the value before calibration
        stored.remove("temperature")
    if stored:
        names = " and ".join(key.replace("_", " ") for key in stored)
        stand = "stand" if len(stored) > 1 or names.endswith("s") else "stands"
        found.append(
            f"Its {names} {stand} in `filbert.json`, which other tools do not read: they load "
            "the weights alone."
        )
    return limits(story, found)


def _cut(story: Mapping[str, Any]) -> list[str]:
    way = story["options"].get("on_overflow", "truncate")
    shares = [
        f"{facts['truncated']:,} of {facts['rows']:,} {name} rows"
        for name, facts in story["data"].items()
        if facts.get("truncated")
    ]
    counted = f" ({', '.join(shares)})" if shares else ""
    return [f"Longer texts are cut at {story['max_length']:,} tokens, by `{way}`{counted}."]


def limits(story: Mapping[str, Any], found: list[str]) -> list[str]:
    """Return the section on limits: the sentences in `found`, and those of every run."""
    base = story.get("base_model") or {}
    seeds = story.get("seeds")
    if seeds and seeds.get("mean") is not None:
        deviation = seeds.get("deviation")
        spread = "" if deviation is None else f", deviation {deviation:.4f}"
        found = [
            *found,
            f"It is the best of {seeds['count']} runs with different seeds by dev "
            f"{seeds['metric'].replace('_', ' ')} (mean {seeds['mean']:.4f}{spread}); being chosen "
            "flatters it.",
        ]
    else:
        found = [
            *found,
            f"This is one run with one seed ({story['options'].get('seed')}); others may come out "
            f"better or worse.",
        ]
    if not (story["options"].get("license") or base.get("license")):
        found.append("No license is stated here. Ask the author before you use it.")
    return ["## Limits", "", *(f"- {sentence}" for sentence in found), ""]


def versions(story: Mapping[str, Any]) -> list[str]:
    """Return the section on the versions of code and libraries."""
    named = ", ".join(f"{name} {version}" for name, version in story["versions"].items())
    commit = f" (commit {story['commit'][:SHORT]})" if story.get("commit") else ""
    return [
        "## Versions",
        "",
        f"filbert {story['filbert']}{commit}, {named}. `filbert.json` holds every option and hash; "
        "`filbert replay` runs it again and compares.",
        "",
    ]


def pretrained_card(story: Mapping[str, Any]) -> str:
    """Return the README.md of a pre-trained model.

    Args:
        story: The content of filbert.json.
    """
    options = story["options"]
    fills = options["objective"] == "mlm"
    begun = f"continued from {code(options['model'])}" if options.get("model") else "from scratch"
    # A discriminator cannot fill masks; the generator that is saved with it can.
    tag = "fill-mask" if fills else None
    folder = "." if fills else "generator"
    task = "pre-training"
    lines = [
        front_matter(story, task, tag),
        "",
        f"# {printable(story['name'])}",
        "",
        f"A {story['model']['family']} encoder pre-trained on {_WORDS[options['objective']]}, "
        f"{begun}, on {story['data']['train']['tokens']:,} tokens of text with filbert "
        f"{story['filbert']}: {story['model']['parameters']:,} parameters.",
        "",
        "## Use",
        "",
        "```python",
        "import filbert",
        "",
        f'model = filbert.load("{folder}")  # this folder, or its repository on the Hub',
        'print(model.fill("This is a [MASK] of yours."))',
        "```",
        "",
        "```bash",
        f'filbert fill {folder} "This is a [MASK] of yours."',
        "filbert finetune --task classification --model . --train train.csv --dev dev.csv "
        "--out runs/mine",
        "```",
        "",
        *data_table(story["data"]),
        *figure_table(story),
        *training(story, PretrainOptions),
    ]
    return "\n".join([*lines, *limits(story, _known(story)), *versions(story)])


def distilled_card(story: Mapping[str, Any]) -> str:
    """Return the README.md of a model that was distilled on raw text.

    Args:
        story: The content of filbert.json, with "teacher" and "method".
    """
    options, teacher = story["options"], story["teacher"]
    fills = "metrics" in teacher
    sizes = [story["model"]["parameters"], teacher["parameters"]]
    use = (
        'print(model.fill("This is a [MASK] of yours."))'
        if fills
        else 'print(model.embed(["A sentence of yours."]).shape)'
    )
    lines = [
        front_matter(story, "distillation", "fill-mask" if fills else None),
        "",
        f"# {printable(story['name'])}",
        "",
        f"A {story['model']['family']} encoder of {sizes[0]:,} parameters, distilled from "
        f"{code(options['teacher'])} ({sizes[1]:,}) by the method {options['method']} on "
        f"{story['data']['train']['tokens']:,} tokens of text with filbert {story['filbert']}.",
        "",
        "## Use",
        "",
        "```python",
        "import filbert",
        "",
        'model = filbert.load(".")  # this folder, or its repository on the Hub',
        use,
        "```",
        "",
        "```bash",
        "filbert finetune --task classification --model . --train train.csv --dev dev.csv "
        "--out runs/mine",
        "```",
        "",
        *data_table(story["data"]),
        *figure_table(story),
        *training(story, DistillOptions),
    ]
    found = [*_known(story), "What its teacher got wrong it was taught too."]
    return "\n".join([*lines, *limits(story, found), *versions(story)])


def _known(story: Mapping[str, Any]) -> list[str]:
    """Return the limits that follow from the training text."""
    options = story["options"]
    longest = options.get("second_length") or options.get("max_length") or _DEFAULT_LENGTH
    found = [
        f"It saw {story.get('tokens', 0):,} tokens, repetitions included, in sequences of up to "
        f"{longest:,} tokens.",
        "It knows the language, the opinions and the errors of that text and of nothing else.",
    ]
    if "dev" not in story["data"]:
        found.append("No text was held out, so nothing but the training loss was measured.")
    if story["data"]["train"].get("inputs"):
        names = [code(entry["path"]) for entry in story["data"]["train"]["inputs"]]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        found.insert(0, f"Its text: {', '.join(names[:10])}{more}.")
    return found


def front_matter(story: Mapping[str, Any], task: str, pipeline: str | None) -> str:
    """Return the YAML metadata at the top of a model card, with its `---` lines.

    Source: huggingface.co/docs/hub/model-cards.

    Args:
        story: The content of filbert.json.
        task: Name of the task, also used as a tag.
        pipeline: Name of the task on the Hub, if it has one.
    """
    base = story.get("base_model") or {}
    options = story["options"]
    languages = options.get("language")
    splits = {name: facts for name, facts in story["data"].items() if slug(facts["path"])}
    # A decision threshold does not measure quality.
    measured = {
        split: {name: value for name, value in found.items() if "thresh" not in name}
        for split, found in figures(story["metrics"]).items()
    }
    content: dict[str, Any] = {
        "license": options.get("license") or base.get("license"),
        "language": list(names_of(languages)) if languages else base.get("language"),
        "library_name": "filbert",
        "pipeline_tag": pipeline,
        "base_model": base.get("hub_id"),
        "base_model_relation": "finetune" if base.get("hub_id") else None,
        "datasets": list(dict.fromkeys(slug(facts["path"]) for facts in splits.values())),
        "metrics": list(dict.fromkeys(name for found in measured.values() for name in found)),
        "tags": list(dict.fromkeys(["filbert", task.replace(" ", "-"), story["model"]["family"]])),
    }
    results = [
        {
            "task": {"type": pipeline or "feature-extraction", "name": task},
            "dataset": {
                "name": f"{splits[split]['path']} ({split})",
                "type": slug(splits[split]["path"]),
                "split": split,
                "revision": splits[split]["sha256"][:SHORT],
            },
            "metrics": [
                {"type": name, "name": name.replace("_", " "), "value": round(value, 6)}
                for name, value in found.items()
            ],
        }
        for split, found in measured.items()
        if found and split in splits
    ]
    if results:
        content["model-index"] = [{"name": story["name"], "results": results}]
    kept = {key: value for key, value in content.items() if value not in (None, [])}
    return f"---\n{CardData(**kept).to_yaml()}\n---"


def figures(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the metrics that are finite numbers, by split."""
    return {
        split: {
            name: value
            for name, value in found.items()
            if isinstance(value, float) and math.isfinite(value)
        }
        for split, found in metrics.items()
    }


def slug(path: str) -> str | None:
    """Return the file name of a path if the Hub accepts it as the name of a data set."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name if _DATASET.fullmatch(name) else None
