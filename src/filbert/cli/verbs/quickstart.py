"""filbert quickstart."""

from __future__ import annotations

from filbert.cli.arguments import Folder, ModelName, Overwrite
from filbert.cli.output import print_run
from filbert.errors import ConfigError


def quickstart(
    *,
    toxic: bool = False,
    search: bool = False,
    question: str | None = None,
    out: Folder = "runs/quickstart",
    model: ModelName = "minilm",
    seed: int = 42,
    steps: int | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Run an embedded example, from text to report: what does a bank's customer want?

    Fine-tunes a small model on 240 sentences with 30 intents and compares it with TF-IDF on 900
    others. It takes about a minute on a CPU and needs no network.

    Parameters
    ----------
    toxic:
        4,000 comments instead, toxic or not: real and offensive, so the report shows none of them.
    search:
        find sentences by their meaning instead, without any training.
    question:
        with --search, the sentence to search with.
    out:
        the run folder.
    seed:
        random seed for the new head, shuffling and dropout.
    steps:
        stop after this many optimizer steps, for a test.
    """
    if search:
        _search(model, question)
        return
    if question is not None:
        raise ConfigError("--question is for --search. Give both, or neither.")
    from filbert import api
    from filbert.quickstart import options_of

    options = options_of("toxic" if toxic else "intents") | {"model": model, "seed": seed}
    run = api.finetune(**options, out=out, steps=steps, overwrite=overwrite)
    print_run(run.facts)
    example = "Thank you for your help." if toxic else "I think somebody has stolen my card."
    print(f"report: {run.folder / 'report.html'}")
    print("Try next:")
    print(f"  echo '{example}' | filbert predict {run.folder / 'model'}")
    print("  filbert quickstart --search --question 'Am I short of money?'")
    print(f"  filbert serve {run.folder / 'model'}")


def _search(model: str, question: str | None) -> None:
    """Print what was found, and how often it has the intent of the question."""
    from filbert import quickstart
    from filbert.report.numbers import probability

    questions = quickstart.QUESTIONS if question is None else (question,)
    result = quickstart.search(model, questions)
    print(f"The nearest of {result.num_texts} sentences by the cosine of their vectors:")
    for asked, hits in zip(questions, result.hits, strict=True):
        print(f"\n{asked}")
        for text, cosine in hits:
            print(f"  {cosine:.2f}  {text}")
    shares = result.shares
    print(
        f"\nOf {result.num_tested} other sentences, the nearest one has the same intent for "
        f"{shares['vectors']:.1%}; by TF-IDF for {shares['TF-IDF']:.1%} (McNemar's test: "
        f"p {probability(result.test.p)})."
    )
    print("Try next:")
    print("  filbert quickstart --search --question 'Am I short of money?'")
    print(f"  echo 'Am I short of money?' | filbert embed {model} --out vector.jsonl")
    print(f"  filbert serve {model}")
