"""Settling the precision and the device."""

import pytest
import torch

from filbert.errors import ConfigError
from filbert.model import precision
from filbert.model.precision import choose_device, choose_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(("gain", "name"), [(1.2, "float32"), (3.0, "bf16")])
def test_auto_takes_bf16_only_where_it_is_measured_to_be_worth_it(gain, name, monkeypatch):
    monkeypatch.setattr(precision, "gain", lambda _: gain)
    chosen = choose_precision("auto", CPU)
    assert chosen.name == name
    assert f"{gain:.1f} times" in chosen.reason


def test_a_cpu_without_fast_bf16_gets_float32_and_no_ratio(monkeypatch, caplog):
    monkeypatch.setattr(precision, "gain", lambda _: 0.04)
    assert choose_precision("auto", CPU) == ("float32", "this CPU has no fast bf16")
    assert choose_precision("bf16", CPU).name == "bf16"
    assert "This CPU has no fast bf16" in caplog.text and "times" not in caplog.text


@pytest.mark.parametrize(("has_units", "name"), [(False, "float32"), (True, "bf16")])
def test_on_a_gpu_auto_takes_bf16_where_it_is_not_emulated(has_units, name, monkeypatch):
    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or has_units

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert choose_precision("auto", torch.device("cuda")).name == name


def test_what_is_asked_for_is_taken_and_nonsense_is_refused():
    assert choose_precision("float32", CPU).dtype == torch.float32
    assert choose_precision("bf16", CPU).dtype == torch.bfloat16
    with pytest.raises(ConfigError, match="precision 'fp8' is not one of"):
        choose_precision("fp8", CPU)


def test_autocast_turns_products_to_bf16_and_nothing_else():
    left = torch.ones(4, 4)
    with choose_precision("bf16", CPU).autocast(CPU):
        assert (left @ left).dtype == torch.bfloat16
        assert torch.nn.functional.layer_norm(left, (4,)).dtype == torch.float32
    with choose_precision("float32", CPU).autocast(CPU):
        assert (left @ left).dtype == torch.float32


def test_a_device_that_is_not_here_is_refused_with_those_that_are():
    assert choose_device("cpu") == CPU
    with pytest.raises(ConfigError, match="No device 'tpu' was found. Available: cpu"):
        choose_device("tpu")


@pytest.mark.parametrize("has_units", [False, True])
def test_int8_without_integer_products_is_said_to_be_slow(has_units, monkeypatch, caplog):
    monkeypatch.setattr(precision, "gain", lambda _: 2.0 * has_units)
    assert choose_precision("int8", CPU, ("int8",)).name == "int8"
    assert ("int8 is slower than float32" in caplog.text) == (not has_units)
