"""One self-contained HTML page per run, and runs side by side."""

from holdfast.report.compare import Gap, Row, comparison, comparison_table
from holdfast.report.report import write_report

__all__ = ["Gap", "Row", "comparison", "comparison_table", "write_report"]
