"""The model card of a pre-trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from filbert.errors import printable
from filbert.train.card import code, data_table, figure_table, limits, training, versions
from filbert.train.distill_options import DistillOptions
from filbert.train.front_matter import front_matter
from filbert.train.pretrain_options import PretrainOptions

# Of a distillation where nothing was said.
_USUAL_LENGTH = 128
_WORDS = {"mlm": "masked words", "replaced": "replaced words"}


def pretrained_card(story: Mapping[str, Any]) -> str:
    """README.md of a pre-trained model.

    Args:
        story: the content of filbert.json.
    """
    options = story["options"]
    fills = options["objective"] == "mlm"
    begun = f"continued from {code(options['model'])}" if options.get("model") else "from scratch"
    # A discriminator fills nothing; its generator beside it does.
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
    """README.md of a model that was distilled over raw text.

    Args:
        story: the content of filbert.json, with "teacher" and "method".
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
    """What a reader should expect of a model that saw this text."""
    options = story["options"]
    longest = options.get("second_length") or options.get("max_length") or _USUAL_LENGTH
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
