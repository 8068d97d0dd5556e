"""What an estimator is made of, to the last bit."""

from dataclasses import is_dataclass

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator


def leaves(value, path=""):
    """Yield each array, number and string below a value, with the way to it."""
    if isinstance(value, BaseEstimator) or is_dataclass(value):
        value = vars(value)
    elif isinstance(value, np.random.RandomState):
        value = value.get_state(legacy=False)
    elif sparse.issparse(value):
        parts = ("data", "indices", "indptr", "shape")
        value = {type(value).__name__: {name: getattr(value, name) for name in parts}}
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        yield f"{path}[]", (type(value).__name__, len(value))
        for k, part in enumerate(value):
            yield from leaves(part, f"{path}[{k}]")
    else:
        yield path, value


def bits(estimator) -> dict:
    """Return all that an estimator holds, comparable with == bit for bit."""
    return {path: _bits(value) for path, value in leaves(estimator)}


def _bits(value):
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    return type(value).__name__, repr(value)
