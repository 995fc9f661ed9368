"""lm-eval, offline, with a task of one's own: on a boosted model and on ours. Its scores are the model's own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

import boosted_attention.pretrained  # noqa: F401  makes the Auto classes know both
from boosted_attention import LanguageModelConfig, boost
from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.pretrained.folders import quietly
from boosted_attention.pretrained.native import to_transformers, tokenizer_to_transformers
from tests.pretrained.families import disturb, tiny
from tests.processes import environment

QUESTIONS = [
    ("the cat sat on the", ["mat", "sky"], 0),
    ("two and two is", ["five", "four"], 1),
    ("up and", ["x", "y"], 0),
]
TASK = """
task: choose
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_to_transformers(Tokenizer(byte_tokenizer(), "bytes"), 64)


@pytest.fixture
def task_folder(tmp_path, monkeypatch):
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = [dict(zip(("question", "choices", "answer"), row, strict=True)) for row in QUESTIONS]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "choose.yaml").write_text(TASK.format(rows=folder / "rows.jsonl"))
    return folder


def boosted(vocab_size):
    model = boost(tiny("llama", vocab_size=vocab_size))
    disturb(model)
    return model


def ours(vocab_size):
    config = LanguageModelConfig(vocab_size=vocab_size, d_model=32, n_heads=4, n_layers=2, max_len=64)
    return to_transformers(config.build().eval())


@pytest.fixture
def lm_eval():
    return pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'boosted-attention[eval]'")


def saved(model, tokenizer, folder):
    with quietly():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("lm_eval")
@pytest.mark.parametrize("build", [boosted, ours])
def test_scores(build, tokenizer, task_folder, tmp_path):
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    model = build(len(tokenizer))
    saved(model, tokenizer, tmp_path / "model")
    found = simple_evaluate(
        HFLM(str(tmp_path / "model"), device="cpu", max_length=64, dtype="float32"),
        tasks=["choose"],
        task_manager=TaskManager(include_path=str(task_folder), include_defaults=False),
        bootstrap_iters=0,
    )
    samples = sorted(found["samples"]["choose"], key=lambda sample: sample["doc_id"])
    right = 0
    for (question, choices, answer), sample in zip(QUESTIONS, samples, strict=True):
        expected = [log_probability(model, tokenizer, question, f" {choice}") for choice in choices]
        assert [score[0] for score in sample["filtered_resps"]] == pytest.approx(expected, rel=1e-4)
        right += max(range(len(choices)), key=expected.__getitem__) == answer
    assert found["results"]["choose"]["acc,none"] == pytest.approx(right / len(QUESTIONS))
    assert os.environ["HF_HUB_OFFLINE"] == "1"


@pytest.mark.usefixtures("lm_eval")
def test_its_command_takes_a_boosted_folder_without_our_import(tokenizer, task_folder, tmp_path, full):
    """The folder names its code, which --trust_remote_code lets it load; scores are those of the model at hand."""
    if not full:
        pytest.skip("in make test-full")
    model = boosted(len(tokenizer))
    saved(model, tokenizer, tmp_path / "model")
    options = {
        "--model": "hf",
        "--model_args": f"pretrained={tmp_path / 'model'},dtype=float32,max_length=64",
        "--tasks": "choose",
        "--include_path": task_folder,
        "--device": "cpu",
        "--output_path": tmp_path / "out",
    }
    command = [sys.executable, "-m", "lm_eval", *(str(word) for option in options.items() for word in option)]
    done = subprocess.run(
        [*command, "--trust_remote_code", "--log_samples"],
        capture_output=True,
        text=True,
        env=environment(HF_MODULES_CACHE=str(tmp_path / "modules")),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (written,) = (tmp_path / "out").rglob("samples_choose_*.jsonl")
    samples = sorted(map(json.loads, written.read_text().splitlines()), key=lambda sample: sample["doc_id"])
    for (question, choices, _), sample in zip(QUESTIONS, samples, strict=True):
        expected = [log_probability(model, tokenizer, question, f" {choice}") for choice in choices]
        assert [float(score[0]) for score in sample["filtered_resps"]] == pytest.approx(expected, rel=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("lm_eval")
def test_the_readmes_lines(tokenizer, task_folder, monkeypatch):
    page = (Path(__file__).parent.parent.parent / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "lm_eval" in block)
    monkeypatch.chdir(task_folder.parent)
    saved(boosted(len(tokenizer)), tokenizer, Path("boosted/SmolLM2-135M-Instruct"))
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert 0 <= names["scores"]["results"]["choose"]["acc,none"] <= 1


@torch.no_grad()
def log_probability(model: transformers.PreTrainedModel, tokenizer, question: str, answer: str) -> float:
    ids = torch.tensor([tokenizer(question + answer).input_ids])
    start = len(tokenizer(question).input_ids)
    scores = model(ids).logits.log_softmax(-1)[0, start - 1 : -1]
    return scores.gather(1, ids[0, start:, None]).sum().item()
