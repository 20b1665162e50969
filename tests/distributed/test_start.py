"""Meeting and parting of processes, and what they tell each other."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model
from filbert.train.distributed import Parallel, start


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return Model(Encoder(EncoderConfig.of(vocab_size=9, intermediate_size=8, **sizes)))


@pytest.mark.parametrize(
    "around", [{}, {"WORLD_SIZE": "2"}, {"WORLD_SIZE": "1", "LOCAL_RANK": "0"}]
)
def test_without_torchrun_or_with_one_process_there_is_no_group(around, monkeypatch):
    for name in ("WORLD_SIZE", "LOCAL_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    with start("cpu") as parallel:
        assert parallel == Parallel(0, 1, torch.device("cpu"))
        assert parallel.is_first
        assert not dist.is_initialized()


def test_a_single_process_gets_back_what_it_gives(model):
    parallel = Parallel(0, 1, torch.device("cpu"))
    value = {"a": (1, 2)}
    assert parallel.wrap(model) is model
    assert parallel.sums([0.1]) == [0.1]
    assert parallel.any(True) and not parallel.any(False)
    assert parallel.broadcast(value) is value
    rows = torch.ones(2, 3)
    gathered, start = parallel.gather_rows(rows)
    assert gathered.data_ptr() == rows.data_ptr() and start == 0


@pytest.mark.parametrize(
    ("device", "local_rank", "message"),
    [("cuda:0", "0", "give cuda"), ("cuda", "1", "process 2 of this machine has no GPU")],
)
def test_a_process_without_a_gpu_of_its_own_is_refused(device, local_rank, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": local_rank}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message), start(device):
        raise AssertionError("it was let in")


def test_a_process_that_fails_ends_the_others_and_leaves_none_behind(
    failed,
):
    assert failed["status"] != 0
    assert "this process fails on purpose" in failed["output"]
    # torchrun itself looks for dead processes every tenth of a second.
    assert failed["seconds"] < 40
    assert failed["left"] == []
