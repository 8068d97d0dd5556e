import numpy as np
import pytest
from sklearn.datasets import load_digits


@pytest.fixture(params=[0, 1])
def seed(request):
    return request.param


@pytest.fixture
def rng(seed):
    return np.random.RandomState(seed)


@pytest.fixture(scope="session")
def digits():
    """Train and test rows of load_digits, in [0, 1]."""
    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(X))
    X, y = X[order] / 16, y[order]
    return X[:1200], y[:1200], X[1200:], y[1200:]
