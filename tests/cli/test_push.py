import pytest

from filbert.checkpoints import upload
from filbert.cli.verbs.models import push


def test_a_dry_run_lists_the_files_and_sends_nothing(tiny_model, capsys, monkeypatch):
    monkeypatch.setattr(upload, "push", lambda *args, **options: pytest.fail("sent"))
    push(str(tiny_model), "me/tiny", dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    size = (tiny_model / "model.safetensors").stat().st_size
    assert f"{size:>15,}  model.safetensors" in lines
    assert lines[-2].endswith(f"bytes in {len(lines) - 2} files")
    assert lines[-1] == "dry run: nothing was sent to me/tiny"
