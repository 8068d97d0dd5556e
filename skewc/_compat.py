"""What scikit-learn keeps private or has only in part of its versions 1.6 and newer."""

from sklearn.base import _fit_context
from sklearn.pipeline import _name_estimators
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import _check_sample_weight

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:
        """No callbacks can be set."""

    def with_callbacks(method):
        """No callbacks need to be torn down."""
        return method


__all__ = [
    "CallbackSupportMixin",
    "Interval",
    "Options",
    "StrOptions",
    "_check_sample_weight",
    "_fit_context",
    "_name_estimators",
    "_safe_indexing",
    "with_callbacks",
]
