"""The Transformer of 2017 beside torch.nn.Transformer, values by hand and exhaustive search."""

from __future__ import annotations

import itertools
import json
import math
import random
import re

import pytest
import torch

from against.translation import TorchTransformer
from filbert.batch import pack
from filbert.cli.main import run
from filbert.errors import FilbertError, FormatError
from filbert.inspect.page import Inspection
from filbert.lineage.three_attentions import inspect
from filbert.lineage.transformer import Transformer, beam_search, load, sinusoids
from filbert.lineage.translation import (
    batches,
    learning_rate,
    measure,
    new_translator,
    pretrain,
    smoothed_loss,
    splits,
)
from filbert.train.pretrain_options import PretrainOptions

SMALL = {
    "vocab_size": 40, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 12,
}  # fmt: skip


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    model = Transformer(**SMALL).eval()
    for weights in model.parameters():
        if weights.requires_grad:  # biases and norms too, which begin at 0 and 1
            torch.nn.init.normal_(weights, std=0.7)
    return model


def test_logits_are_those_of_torchs_modules(model):
    source = pack([[5, 6, 7, 8, 2], [9, 2], [3, 4, 2]])
    target = pack([[0, 11, 12], [0, 13, 14, 15, 16], [0]])
    other = TorchTransformer(model).eval()
    with torch.no_grad():
        found, wanted = model(source, target), other(source, target)
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_torchs_modules(model):
    source, target = pack([[5, 6, 7, 2], [9, 2]]), pack([[0, 11, 12], [0, 13, 14, 15]])
    other, labels = TorchTransformer(model).eval(), torch.arange(7)
    for one in (model, other):
        smoothed_loss(one(source, target), labels).backward()
    found = model.encoder.embeddings.word.weight.grad
    torch.testing.assert_close(found, other.word.grad, rtol=1e-5, atol=1e-6)


def test_a_token_of_the_target_sees_no_later_one(model):
    source = pack([[5, 6, 2]])
    with torch.no_grad():
        short, long = model(source, pack([[0, 11]])), model(source, pack([[0, 11, 12, 13]]))
        other = model(pack([[5, 7, 2]]), pack([[0, 11]]))
    torch.testing.assert_close(short, long[:2], rtol=1e-5, atol=1e-6)
    assert (short - other).abs().max() > 1e-3  # but it sees the source


def test_positions_are_the_papers_sines_and_cosines():
    table = sinusoids(4, 6)
    for place, i in itertools.product(range(4), range(3)):
        angle = place / 10_000 ** (2 * i / 6)
        wanted = torch.tensor([math.sin(angle), math.cos(angle)])
        torch.testing.assert_close(table[place, 2 * i : 2 * i + 2], wanted)


def test_the_rate_rises_over_the_warm_up_and_then_falls_with_the_root():
    # 512 ** -0.5 = 0.0441942; 4000 ** -1.5 = 3.95285e-6; 4000 ** -0.5 = 0.0158114.
    rates = {1: 1.74693e-7, 2000: 3.49386e-4, 4000: 6.98771e-4, 16_000: 3.49386e-4}
    for step, wanted in rates.items():
        found = learning_rate(step, width=512, warmup=4000)
        assert found == pytest.approx(wanted, rel=1e-5)


def test_a_smoothed_label_has_a_tenth_spread_over_all_entries():
    logits = torch.tensor([[2.0, 0.0, -1.0, 0.5]])
    total = math.log(sum(math.exp(value) for value in (2.0, 0.0, -1.0, 0.5)))
    wanted = total - 0.9 * 0.0 - 0.1 * (2.0 + 0.0 - 1.0 + 0.5) / 4
    assert float(smoothed_loss(logits, torch.tensor([1]))) == pytest.approx(wanted, rel=1e-6)


def test_batches_hold_every_row_once_within_the_budget():
    sizes = [random.Random(0).randint(1, 30) for _ in range(200)] + [80]
    found = batches(sizes, 64, random.Random(3))
    assert sorted(row for batch in found for row in batch) == list(range(201))
    padded = [max(sizes[row] for row in batch) * len(batch) for batch in found]
    assert max(padded) == 80 and sorted(padded)[-2] <= 64
    assert sorted(padded)[len(padded) // 2] > 48  # similar sizes, so batches are nearly full
    assert found != batches(sizes, 64, random.Random(4))


def test_the_page_shows_the_weights_of_torchs_modules(tmp_path):
    rows = [(f"{n} a b c", f"c b a {n}") for n in range(30)]
    options = options_of(tmp_path, num_hidden_layers=2, hidden_size=16, num_attention_heads=2)
    translator = new_translator(rows, options)
    other = TorchTransformer(translator.model.eval()).eval()
    weights = []

    def recorded(forward):
        def forward_with_weights(*given, **options):
            wanted = {"need_weights": True, "average_attn_weights": False}
            mixed, maps = forward(*given, **options | wanted)
            weights.append(maps[0].detach())
            return mixed, maps

        return forward_with_weights

    for part in other.modules():
        if isinstance(part, torch.nn.MultiheadAttention):
            part.forward = recorded(part.forward)
    source, target = translator.ids("7 a b")[1:], translator.ids("b a c c")[:-1]
    other(pack([source]), pack([target]))
    first, second, own, cross, own_2, cross_2 = weights  # in the order of the computation
    view = inspect(translator, "7 a b", "b a c c").views[0]
    assert view.tokens == ("7", "a", "b", "</s>", "<s>", "b", "a", "c", "c")
    assert view.sequence.tolist() == [0, 0, 0, -1, -1, 1, 1, 1, 1]
    wanted = torch.zeros(6, 2, 9, 9)
    wanted[:2, :, :4, :4] = torch.stack((first, second))
    wanted[2:4, :, 4:, 4:] = torch.stack((own, own_2))
    wanted[4:, :, 4:, :4] = torch.stack((cross, cross_2))
    torch.testing.assert_close(torch.from_numpy(view.maps), wanted, rtol=1e-5, atol=1e-6)
    assert "decoder to source" in Inspection((view,)).html


# Beam search: a table of random log-probabilities, of 5 tokens after every prefix.
START, END, MOST = 0, 1, 4


def log_probability(source: int, prefix: tuple[int, ...]) -> list[float]:
    draw = random.Random(f"{source} {prefix}")
    weights = torch.tensor([draw.gauss(0, 2) for _ in range(5)])
    return weights.log_softmax(0).tolist()


def scores_of_all_texts(source: int, alpha: float) -> dict[tuple[int, ...], float]:
    """All texts of up to MOST tokens with their end, by the formula of Wu et al."""
    found = {}
    for length in range(MOST):
        for text in itertools.product((0, 2, 3, 4), repeat=length):
            whole = (START, *text, END)
            total = sum(log_probability(source, whole[:n])[whole[n]] for n in range(1, len(whole)))
            found[text] = total / ((5 + length + 1) / 6) ** alpha
    return found


def next_token(ids, numbers):
    rows = zip(numbers.tolist(), ids.tolist(), strict=True)
    return torch.tensor([log_probability(number, tuple(prefix)) for number, prefix in rows])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_what_exhaustive_search_finds(alpha):
    found = beam_search(next_token, 20, start=START, end=END, most=MOST, beam=4**MOST, alpha=alpha)
    for source, text in enumerate(found):
        scores = scores_of_all_texts(source, alpha)
        assert tuple(text) == max(scores, key=scores.__getitem__)


def test_a_beam_of_one_is_greedy_until_a_text_with_its_end_is_better():
    found = beam_search(next_token, 20, start=START, end=END, most=MOST, beam=1, alpha=0.0)
    for source, text in enumerate(found):
        greedy, prefixes = (START,), []
        for _ in range(MOST):
            prefixes.append(greedy[1:])
            row = log_probability(source, greedy)
            greedy += (max((0, 2, 3, 4), key=row.__getitem__),)
        scores = scores_of_all_texts(source, 0.0)
        assert tuple(text) == max(prefixes, key=scores.__getitem__)


# From pairs to translations


@pytest.fixture
def pairs(tmp_path):
    draw = random.Random(0)
    texts = {" ".join(draw.choices("abcdefgh", k=draw.randint(2, 4))) for _ in range(4000)}
    path = tmp_path / "pairs.tsv"
    rows = "".join(f"{text}\t{text[::-1]}\n" for text in sorted(texts))
    path.write_text(f"text\treversed\n{rows}", encoding="utf-8")
    return path


def test_the_command_writes_a_folder_that_translates_as_it_was_measured(pairs, tmp_path, capsys):
    arguments = ["--steps=3", "--dev-rows=20", "--hidden-size=32", f"--out={tmp_path / 'out'}"]
    assert run(["pretrain", "transformer-small", "--corpus", str(pairs), *arguments]) == 0
    assert "exact_match" in capsys.readouterr().out
    lines = (tmp_path / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
    facts = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    translator = load(tmp_path / "out")
    _, dev = splits(options_of(pairs, dev_rows=20))
    assert measure(translator, dev) == facts["metrics"]["dev"]


def test_a_small_model_learns_to_reverse(pairs):
    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4}
    rates = {"lr": 0.35, "warmup": 0.3, "beta2": 0.98, "eps": 1e-9, "dropout": 0.0}
    lengths = {"steps": 250, "max_tokens": 1024, "max_length": 16, "dev_rows": 100}
    facts = pretrain(options_of(pairs, **sizes, **rates, **lengths))
    assert facts["metrics"]["dev"]["exact_match"] >= 0.95
    assert load(pairs.with_name("out")).translate(["g e c a"]) == ["a c e g"]


def test_pairs_that_are_held_out_share_no_text_with_those_that_are_trained_on(tmp_path):
    path = tmp_path / "pairs.tsv"
    rows = "".join(f"{n}\t{n // 2}\n" for n in range(100))
    path.write_text(f"text\ttranslation\n{rows}", encoding="utf-8")
    train, dev = splits(options_of(path))
    assert len(dev) == 10 and 80 <= len(train) < 90
    assert not {target for _, target in dev} & {target for _, target in train}


@pytest.mark.parametrize(
    ("rows", "given", "said"),
    [
        ("a\tb\n" * 20, {"mask_rate": 0.2}, "mask_rate is not an option of this recipe"),
        ("a\t\n" * 20, {}, "pairs.tsv:2: the first two columns"),
        ("a\tb\n" * 20, {}, "too few pairs"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(tmp_path, rows, given, said):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"text\ttranslation\n{rows}", encoding="utf-8")
    with pytest.raises(FilbertError, match=re.escape(said)):
        pretrain(options_of(path, **given))


def test_another_folder_is_refused(tiny_model):
    with pytest.raises(FormatError, match="no Transformer of 2017"):
        load(tiny_model)


def options_of(path, **given):
    chosen = {"objective": "translation", "corpus": path, "out": path.with_name("out")}
    return PretrainOptions.from_keywords(chosen | given)
