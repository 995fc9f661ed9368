"""Messages of the library in the words of each command, and tyro's complaints on one line."""

import importlib
import subprocess
import sys

import pytest

from boosted_attention.cli.complaint import one_line
from boosted_attention.cli.main import COMMANDS, main, reworded
from boosted_attention.cli.wording import Wording, plain
from boosted_attention.lab.presets import PRESETS
from boosted_attention.train.settings import write_settings
from tests.cli.test_train import refused

# Of each command: bad input that reaches the library, and the words that must be in the one line.
BAD = {
    "reproduce": [["--seeds", "0"], "--seeds 0"],
    "experiments": [["--preset", "smok"], "smok"],
    "claims": [["--json", "--markdown"], "--json and --markdown exclude each other"],
    "report": [["nowhere"], "nowhere is not a folder of results"],
    "results": [["nowhere"], "nowhere"],
    "data": [["--tokenizer", "bp"], "--tokenizer bp is not one of 'bpe'"],
    "train": [["--batch-size", "6", "--accumulate", "4"], "--accumulate 4 must divide --batch-size 6"],
    "evaluate": [["nowhere", "--split", "tst"], "--split tst is not one of 'train'"],
    "generate": [["nowhere", "--top-p", "2"], "--top-p 2.0"],
    "analyze": [["nowhere", "--sequences", "0"], "--sequences 0 must be at least 1"],
    "explore": [["nowhere", "--port", "70000"], "--port 70000 must lie between 0 and 65535"],
    "plan": [["mini", "--tokens", "0"], "--tokens 0 must be at least 1"],
    "boost": [["nowhere", "out"], "nowhere is not a folder of a model"],
    "export": [["nowhere", "file"], "OUT file is not an empty folder"],
    "finetune": [["nowhere", "--held-out", "2"], "--held-out 2.0 must lie between 0 and 1"],
    "check": [["--device", "two words"], "--device 'two words' cannot be used"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_in_its_own_options(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    args, expected = BAD[command]
    assert expected in refused([command, *args], capsys)


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        (
            "train",
            "folder='runs/x' holds a run; resume=True continues it",
            "--out runs/x holds a run; --resume continues it",
        ),
        ("train", "folder='my runs' is in use", "--out 'my runs' is in use"),
        ("train", "a smaller lr= or a longer warmup= may help", "a smaller --lr or a longer --warmup may help"),
        ("train", "batch_size=3 is not divisible (n_heads=2)", "--batch-size 3 is not divisible (--n-heads 2)"),
        ("train", "strategy='x' is not one of 'ddp', 'fsdp'", "--parallel x is not one of 'ddp', 'fsdp'"),
        ("train", "tie_weights=False, seed=-1; lr=0.5.", "--no-tie-weights, --seed -1; --lr 0.5."),
        ("train", "corpus=text:PATH needs a path; corpus=''", "--corpus text:PATH needs a path; --corpus ''"),
        ("train", "boosted_layers=[0, 9]: indices go from 0", "--boosted-layers [0, 9]: indices go from 0"),
        ("train", "halting=True with n_rounds=1: none", "halting=True with n_rounds=1: none"),  # the layer's
        ("train", "halting='soon' is not one of 'none'", "--halting soon is not one of 'none'"),  # the model's
        ("train", "gate='x' is an option of the layer", "gate='x' is an option of the layer"),
        ("train", "attention_options: halting='act'", "--attention-options: halting='act'"),  # the layer's
        ("train", "seed=-1; attention_options: n_kv_heads=3", "--seed -1; --attention-options: n_kv_heads=3"),
        ("generate", "attention_options: seed=3", "attention_options: seed=3"),
        ("train", "training.lr=1 and --lr=1 stay", "training.lr=1 and --lr=1 stay"),
        ("evaluate", "stride=99 must lie in 1 to max_len=16", "--stride 99 must lie in 1 to max_len=16"),
        ("evaluate", "which='bst' is not one of 'best', 'last'", "--checkpoint bst is not one of 'best', 'last'"),
        ("boost", "out='a' is a file; n_rounds=1 is few", "OUT a is a file; --n-rounds 1 is few"),
    ],
)
def test_arguments_become_options(command, message, expected):
    assert reworded(importlib.import_module(f"boosted_attention.cli.{command}"), message) == expected


def test_values_keep_what_tells_them_apart():
    assert [plain(value) for value in ("'word'", "'two words'", "''", '"it\'s"', "3", "[1, 2]")] == [
        "word",
        "'two words'",
        "''",
        "'it'\"'\"'s'",
        "3",
        "[1, 2]",
    ]


def test_options_of_functions_without_dataclasses():
    def run(place: str, /, *, n_steps: int = 1, loud: bool = False) -> int: ...

    assert Wording(run)("place='x', n_steps=2, loud=False, other=3") == "PLACE x, --n-steps 2, --no-loud, other=3"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["check", "--devce", "cuda"], "Unrecognized options: --devce, cuda; did you mean --device?"),
        (["train", "--no-resum"], "Unrecognized options: --no-resum; did you mean --resume?"),
        (["train", "stray"], "Unrecognized options: stray"),
        (["check", "--length", "abc"], "Error parsing --length: invalid literal for int() with base 10: 'abc'"),
        (["check", "--device"], "Missing value for argument '--device'. Expected 1 values."),
        (["boost", "here"], "Missing from boosted-attention boost: PATH folder for the boosted model. (required)"),
        (["train", "--steps", "0"], "--steps 0 must be an integer of at least 1"),
    ],
)
def test_every_shape_of_complaint(args, expected, capsys):
    """Of options, values and missing input by tyro itself, and by a configuration that it builds."""
    assert refused(args, capsys) == f"boosted-attention: {expected}\n"


def test_complaints_without_a_box():
    assert one_line("plain text\nof two lines\n") == "plain text of two lines"
    assert one_line("") == "the command line could not be understood"
    ascii_box = "+- Title -----+\n| first words |\n| and more    |\n| ----------- |\n| For help    |\n+-------------+\n"
    assert one_line(ascii_box) == "first words and more"
    open_box = "Title\n-----\nfirst words\n-----\nFor help\n"
    assert one_line(open_box) == "first words"


def test_help_of_every_command(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        assert "Example:" in capsys.readouterr().out


def test_the_help_of_reproduce_lists_every_preset(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert [name for name in PRESETS if f"{name} (" not in shown] == []


def test_a_finetuned_run_needs_its_package_in_python(tmp_path):
    (tmp_path / "tokenizer.json").touch()
    write_settings(tmp_path, {"model": {"kind": "pretrained"}, "training": {}, "data": {}})
    script = (
        "import sys; from boosted_attention.train.folder import load_run\n"
        "try: load_run(sys.argv[1])\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("known after `import boosted_attention.pretrained`\n")
    assert done.stdout.count("\n") == 1
