"""Exported graphs in onnxruntime, and how they get on with torch in one process."""

import logging

import pytest
import torch

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

import filbert
from filbert.inference.onnx_session import Session, sharing_cores
from filbert.onnx_export import export_onnx

TEXTS = ["good", "the film was bad"]


def test_an_export_in_int8_says_what_it_computes_in(film_run, tmp_path, caplog):
    export_onnx(str(film_run.folder / "model"), tmp_path / "out", int8=True)
    with caplog.at_level(logging.INFO, logger="filbert.inference.onnx_session"):
        filbert.load(tmp_path / "out", backend="onnxruntime", precision="float32")
    assert "was exported in int8 and computes in it" in caplog.text


def test_torch_leaves_the_cores_to_the_session_while_it_works(film_run, tmp_path, monkeypatch):
    export_onnx(str(film_run.folder / "model"), tmp_path / "out")
    exported = filbert.load(tmp_path / "out", backend="onnxruntime")
    padded, seen = Session.padded, []

    def noted(self, batch, names):
        seen.append(torch.get_num_threads())
        return padded(self, batch, names)

    monkeypatch.setattr(Session, "padded", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        exported.predict(TEXTS)
        assert set(seen) == {1} and torch.get_num_threads() == 2
        monkeypatch.setattr(Session, "padded", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exported.predict(TEXTS)
        assert torch.get_num_threads() == 2
        with sharing_cores(exported.model, 2):
            assert exported.model.session._session.get_session_options().intra_op_num_threads == 1
        with sharing_cores(film_run.model.model):
            assert torch.get_num_threads() == 2, "torch's own models keep theirs"
    finally:
        torch.set_num_threads(before)
