"""XLNet's pre-training: the mask by hand, and two streams against transformers."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch
import transformers

import filbert
from filbert.batch import pack
from filbert.checkpoints.opening import find_model, read_checkpoint
from filbert.cli.main import run
from filbert.lineage.xlnet import TwoStreams, draw_order, target_loss, unseen_keys


def test_a_target_sees_the_context_and_the_targets_before_it():
    # Tokens 1 and 3 are predicted, 3 first; 0 and 2 are context.
    unseen = unseen_keys(torch.tensor([[-1, 1, -1, 0]]))[0].int().tolist()
    assert unseen == [
        [0, 1, 0, 1],  # the context sees no target
        [0, 1, 0, 0],  # second target: not itself
        [0, 1, 0, 1],
        [0, 1, 0, 1],  # first target: neither itself nor the second
    ]


def test_a_sixth_is_predicted_in_spans_and_never_a_special_token():
    is_special = [at in (28, 29) for at in range(30)]
    orders = [draw_order(is_special, random.Random(seed)) for seed in range(200)]
    for order in orders:
        assert sorted(place for place in order if place >= 0) == [0, 1, 2, 3, 4]
        assert order[28:] == [-1, -1]
    # Neighbours are targets together more often than five of 28 independent ones would be.
    pairs = sum(a >= 0 <= b for order in orders for a, b in zip(order, order[1:28], strict=False))
    assert pairs / len(orders) > 1.5 > 27 * 5 / 28 * 4 / 27


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory):
    """A random XLNet in transformers, and the same weights here."""
    folder: Path = tmp_path_factory.mktemp("xlnet")
    torch.manual_seed(0)
    config = transformers.XLNetConfig(
        vocab_size=40, d_model=24, n_layer=3, n_head=4, d_inner=36, dropout=0.0,
        pad_token_id=5, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    judge = transformers.XLNetLMHeadModel(config).eval()
    for name, weight in judge.named_parameters():
        if "norm" not in name:  # large enough for gradients of all of them
            torch.nn.init.normal_(weight, std=0.3)
    judge.save_pretrained(folder)
    ours = TwoStreams(read_checkpoint(find_model(folder)).build().encoder).eval()
    with torch.no_grad():
        ours.bias.copy_(judge.lm_loss.bias)
    return judge, ours


def test_both_streams_equal_transformers_and_so_do_gradients(both):
    judge, ours = both
    ids = torch.randint(0, 40, (2, 11))
    places = torch.full((2, 11), -1)
    targets = torch.tensor([[7, 2, 3], [0, 10, 5]])
    for row in range(2):
        places[row, targets[row]] = torch.arange(3)
    unseen = unseen_keys(places)
    mapping = torch.nn.functional.one_hot(targets, 11).float()
    theirs = judge(
        input_ids=ids, perm_mask=unseen.float(), target_mapping=mapping, use_mems=False,
        labels=ids.gather(1, targets),
    )  # fmt: skip
    logits = ours(ids, unseen, targets)
    torch.testing.assert_close(logits, theirs.logits, rtol=0, atol=1e-5)
    loss = target_loss(logits, ids, targets)
    torch.testing.assert_close(loss, theirs.loss, rtol=0, atol=1e-5)
    picked = logits.log_softmax(-1).gather(-1, ids.gather(1, targets)[..., None])
    torch.testing.assert_close(loss, -picked.sum() / 6)

    loss.backward()
    theirs.loss.backward()
    layer, other = ours.encoder.layers[1], judge.transformer.layer[1]
    pairs = {
        "start": (ours.start, judge.transformer.mask_emb),
        "words": (ours.encoder.embeddings.word.weight, judge.transformer.word_embedding.weight),
        "u": (layer.relative.content_bias, other.rel_attn.r_w_bias),
        "v": (layer.relative.position_bias, other.rel_attn.r_r_bias),
        "down": (layer.down.weight, other.ff.layer_2.weight),
    }
    for name, (mine, expected) in pairs.items():
        assert expected.grad.abs().max() > 1e-4, name
        torch.testing.assert_close(mine.grad, expected.grad, rtol=0, atol=1e-5, msg=name)


def test_a_target_does_not_depend_on_what_it_must_not_see(both):
    _, ours = both
    ids = torch.randint(0, 40, (1, 9))
    targets = torch.tensor([[4, 6]])  # in this order
    places = torch.full((1, 9), -1)
    places[0, targets[0]] = torch.arange(2)
    before = ours(ids, unseen_keys(places), targets)
    changed = ids.clone()
    changed[0, 6] = (ids[0, 6] + 1) % 40
    assert torch.equal(ours(changed, unseen_keys(places), targets), before)
    changed[0, 4] = (ids[0, 4] + 1) % 40
    after = ours(changed, unseen_keys(places), targets)
    assert torch.equal(after[0, 0], before[0, 0])
    assert not torch.allclose(after[0, 1], before[0, 1])


def test_a_small_xlnet_learns_and_its_folder_is_read_and_fine_tuned(films, tmp_path, capsys):
    text, out = tmp_path / "text.txt", tmp_path / "xlnet"
    rows = (films / "train.csv").read_text().splitlines()[1:]
    text.write_text("\n\n".join(rows) * 4)
    words = ["pretrain", "xlnet-small", "--corpus", str(text), "--out", str(out)]
    sizes = "--hidden-size 32 --intermediate-size 64 --num-hidden-layers 2 --max-length 16"
    length = "--batch-size 16 --steps 40 --lr 0.005 --dropout 0"
    assert run([*words, *sizes.split(), *length.split(), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["dev"]["loss"] == pytest.approx(math.log(metrics["dev"]["perplexity"]))
    losses = [json.loads(row)["loss"] for row in (out / "metrics.jsonl").read_text().splitlines()]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    # Other tools read the same model.
    judge = transformers.AutoModel.from_pretrained(out).eval()
    ours = filbert.load(out)
    ids = torch.tensor([ours.tokenizer.encode(["a good film"])[0].input_ids.tolist()])
    assert ids[0, -2:].tolist() == [ours.tokenizer.sep_id, ours.tokenizer.cls_id]
    types = torch.tensor([[0] * (ids.shape[1] - 1) + [2]])
    with torch.inference_mode():
        expected = judge(input_ids=ids, token_type_ids=types).last_hidden_state[0]
        batch = pack(ids.numpy(), types.numpy())
        found = ours.model.encoder(batch)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    tuned = filbert.finetune(
        task="classification", model=str(out), train=str(films / "train.csv"),
        dev=str(films / "dev.csv"), out=str(tmp_path / "run"), steps=30, lr=3e-3, baseline=False,
    )  # fmt: skip
    assert tuned.metrics["dev"]["accuracy"] > 0.6
