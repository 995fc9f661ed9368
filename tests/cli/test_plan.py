"""``boosted-attention plan`` as a user meets it."""

import pytest

from boosted_attention.cli.main import main


def test_from_the_command_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["plan", "mini", "--tokens", "1000000", "--devices", "2"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for part in ("422,272", "round 1", "gates", "K/V cache per token", "sent per step, fsdp", "device-hours"):
        assert part in said
    assert said.count("torchrun --nproc-per-node 2") == 4
    for options, line in (
        (["mimi"], "RECIPE_OR_CONFIG mimi is not one of 'mini', "),
        (["mini", "--devices", "3"], "--devices 3 does not divide the batch of 32 rows"),
        (["mini", "--tokens", "0"], "--tokens 0 must be at least 1"),
        (["mini", "--device-tflops", "0"], "--device-tflops 0 must be positive"),
        (["mini", "--device-memory", "inf"], "--device-memory inf must be positive"),
        (["mini", "--devices", "16", "--devices-per-node", "5"], "--devices 16 does not fill nodes"),
        ([str(tmp_path)], "is not one of 'mini'"),
        ([], "is missing"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["plan", *options])
        assert stop.value.code == 2
        said = capsys.readouterr().err
        assert line in said
        assert said.count("\n") == 1
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["plan", str(tmp_path)])
    assert "is not the config.json of a run" in capsys.readouterr().err
