"""Audits of data by what any model makes of it: wrong labels, groups, near duplicates, outliers."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.auditing.arrays import ArrayAudit, audit_arrays
    from holdfast.auditing.label_quality import LabelQuality, label_quality
    from holdfast.auditing.out_of_sample import out_of_sample
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["ArrayAudit", "LabelQuality", "audit_arrays", "label_quality", "out_of_sample"]
