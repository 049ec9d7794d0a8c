"""One self-contained HTML page per run, and runs side by side."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.report.pages.comparison import Gap, Row, comparison, comparison_table
    from holdfast.report.pages.run import write_report
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["Gap", "Row", "comparison", "comparison_table", "write_report"]
