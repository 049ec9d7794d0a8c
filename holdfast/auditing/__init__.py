"""Audits of data by what any model makes of it: wrong labels, groups, near duplicates, outliers."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.auditing.arrays import ArrayAudit, audit_arrays
    from holdfast.auditing.cross_validation import out_of_sample
    from holdfast.auditing.wrong_labels import LabelQuality, label_quality
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["ArrayAudit", "LabelQuality", "audit_arrays", "label_quality", "out_of_sample"]
