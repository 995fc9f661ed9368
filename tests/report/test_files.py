"""Figures as files."""

from boosted_attention.lab.reproduce import reread, stored_preset
from boosted_attention.report.files import write_figures
from boosted_attention.report.page import reproduction_figures


def test_figures_are_files_too(made_report, tmp_path):
    preset = stored_preset(made_report)
    groups = reproduction_figures(reread(preset, made_report), preset)
    figures = {figure.name: figure for group in groups for figure in group}
    kept = {path.name for path in (made_report / "figures").iterdir()}
    assert kept == {f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")}
    assert len(figures) >= 13
    for path in write_figures([figures["examples"], figures["rounds"]], tmp_path):
        assert path.read_bytes() == (made_report / "figures" / path.name).read_bytes()
