"""Pages and figures: a reproduction, or the analysis of one run, as one HTML file and as PNG and SVG files."""

from boosted_attention.report.files import write_figures
from boosted_attention.report.inside import inside_figures
from boosted_attention.report.page import analysis_page, report_page, reproduction_figures, write_report

__all__ = ["analysis_page", "inside_figures", "report_page", "reproduction_figures", "write_figures", "write_report"]
