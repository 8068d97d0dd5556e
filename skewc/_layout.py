"""What a saved estimator looks like, and the stamp that says which version wrote it."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from skewc import __version__

# Raised by one with every change of what a saved estimator holds: a parameter, or anything
# below `_stream`. States of lower layouts are then brought up to date in `unstamped`.
LAYOUT = 1
_STAMP = "_skewc_layout", "_skewc_version"


def stamped(state: dict) -> dict:
    """Return the state with the layout it has and the version that saves it."""
    return {**state, **dict(zip(_STAMP, (LAYOUT, __version__), strict=True))}


def unstamped(state: dict) -> dict:
    """Return the state without its stamp; refuse one that this version cannot read."""
    layout, version = map(state.get, _STAMP)
    if layout == LAYOUT:
        return {name: value for name, value in state.items() if name not in _STAMP}
    here = f"skewc {__version__}, which is installed here, reads layout {LAYOUT}"
    if layout is None:
        raise ValueError(
            f"This estimator was saved without a version stamp, by a skewc before 0.1.0; {here}. "
            "Let a new one learn the tasks again."
        )
    raise ValueError(
        f"This estimator was saved by skewc {version} in layout {layout}; {here}. Load it with "
        f"skewc {version}: pip install 'skewc=={version}'."
    )


class Saved:
    """What a saved estimator holds: written and read as arrays and plain Python alone.

    A CSR matrix is written as its arrays, so that a reader need trust no class of scipy.
    Arrays of a memory-mapped file are read as such, but no longer call themselves memmap,
    which skops writes and cannot read.
    """

    def __getstate__(self):
        return {name: _written(value) for name, value in vars(self).items()}

    def __setstate__(self, state):
        vars(self).update({name: _read(value) for name, value in state.items()})


def _written(value):
    if not sparse.issparse(value):
        return value
    kind = "csr_array" if isinstance(value, sparse.sparray) else "csr_matrix"
    return {kind: [value.data, value.indices, value.indptr], "shape": [*value.shape]}


def _read(value):
    if isinstance(value, np.memmap):
        return np.asarray(value)
    if isinstance(value, dict):
        for kind in (sparse.csr_array, sparse.csr_matrix):
            if kind.__name__ in value:
                return kind(tuple(map(_read, value[kind.__name__])), shape=tuple(value["shape"]))
        return {name: _read(part) for name, part in value.items()}
    return type(value)(map(_read, value)) if isinstance(value, list | tuple) else value
