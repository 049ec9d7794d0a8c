"""One self-contained HTML page per run, and runs side by side."""

from holdfast.report.pages.comparison import Gap, Row, comparison, comparison_table
from holdfast.report.pages.run import write_report

__all__ = ["Gap", "Row", "comparison", "comparison_table", "write_report"]
