"""The blocks of docs/interpretability.md that need a package of the extra ``interpret``."""

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "interpretability.md"


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # bertviz leaves its script open
@pytest.mark.parametrize("package", ["nnsight", "bertviz"])
def test_the_pages_lines(package, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'boosted-attention[interpret]'")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if f"from {package}" in block)
    (tmp_path / "lines.py").write_text(code)  # nnsight reads the lines of its blocks from their file
    names = runpy.run_path(str(tmp_path / "lines.py"))
    if package == "nnsight":
        assert names["correction"].shape == names["gate"].shape
        assert names["logits"].shape == (1, 16, 100)
    else:
        assert "layer 3 round 1 head 0" in str(names["heads"])
        assert names["maps"].left_out == []
