"""A read-out without stored rows: classes told apart by statistics that only add up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import linalg

from skewc._curvature import add_gram
from skewc._inputs import to_tensor
from skewc._layout import Saved
from skewc._network import Growth
from skewc._products import add_product
from skewc._rows import Rows

_BIAS = 0.3


@dataclass(frozen=True)
class Discriminant(Saved):
    """Linear discriminant of fixed random features φ(x) = max(0, x·R + r).

    The features never change, and the classes' means and the scatter within classes are
    sums over rows. So it does not matter when a row came: learned task after task it is
    what it would be had it seen all rows at once, and nothing is forgotten.

    Parameters
    ----------
    projection : ndarray of shape (n_features + 1, D), R with r as its last row
    counts : ndarray of shape (K,), the weight of the rows of each class
    means : ndarray of shape (K, D), of each class's features
    scatter : ndarray of shape (D, D), Σ s·(φ - mean)(φ - mean)ᵀ, means of their own class
    coef, intercept : ndarray of shape (D, K) and (K,), what `scores` computes with
    """

    projection: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    scatter: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray

    @staticmethod
    def begin(n_inputs: int, n_random: int, n_classes: int, rng, dtype) -> Discriminant:
        """Draw the random features; no row is learned."""
        R = rng.normal(scale=n_inputs**-0.5, size=(n_inputs, n_random))
        r = rng.normal(scale=_BIAS, size=(1, n_random))
        return Discriminant(
            projection=np.vstack([R, r]).astype(dtype),
            counts=np.zeros(n_classes),
            means=np.zeros((n_classes, n_random), dtype),
            scatter=np.zeros((n_random, n_random), dtype),
            coef=np.zeros((n_random, n_classes), dtype),
            intercept=np.zeros(n_classes, dtype),
        )

    def grow(self, growth: Growth) -> Discriminant:
        """Admit new classes, impossible while only others have rows."""
        intercept = growth.rows(self.intercept[:, None])[:, 0]
        if self.counts.any():
            intercept[growth.new_columns] = -np.inf
        return replace(
            self,
            counts=growth.rows(self.counts[:, None])[:, 0],
            means=growth.rows(self.means),
            coef=growth.rows(self.coef.T).T,
            intercept=intercept,
        )

    def add(self, rows: Rows) -> Discriminant:
        """Learn rows: their features' means join those of their classes, and their scatter."""
        counts, means, scatter = (
            torch.tensor(array, device=rows.device)
            for array in (self.counts, self.means, self.scatter)
        )
        projection = to_tensor(self.projection, rows.device)
        for index in rows.chunks(max(self.means.shape)):
            labels, weights = rows.targets(index)
            features = _features(projection, rows.inputs(index))
            members = features.new_zeros(len(features), len(counts))
            members.scatter_(1, labels, 1.0 if weights is None else weights)
            added = members.sum(dim=0, dtype=torch.float64)
            own = members.T @ features / added.clamp(min=torch.finfo(added.dtype).tiny)[:, None]
            add_gram(scatter, features - own.to(features)[labels[:, 0]], weights)
            # Two groups' scatter is that within each, and that between their means.
            both = counts + added
            share = torch.where(both > 0, added / both, 0)[:, None]
            distance = own - means
            add_gram(scatter, distance.to(means), (counts[:, None] * share).to(means))
            means = (means + share * distance).to(means)
            counts = both
        scatter = scatter.triu() + scatter.triu(1).T
        return replace(
            self,
            counts=counts.cpu().numpy(),
            means=means.cpu().numpy(),
            scatter=scatter.cpu().numpy(),
        )._solved()

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        """Logarithms (n, K) of the classes' posteriors, but for a constant of each row."""
        projection, coef, intercept = (
            to_tensor(array, x.device) for array in (self.projection, self.coef, self.intercept)
        )
        return torch.addmm(intercept, _features(projection, x), coef)

    def _solved(self) -> Discriminant:
        """Compute what `scores` needs, with the covariance S/n shrunk towards σ²·I.

        σ² is the mean variance, by which all is divided first, so that nothing overflows.
        It is at least what rounding makes of features that do not vary.
        """
        n, size, means = self.counts.sum(), len(self.scatter), self.means.astype(np.float64)
        rounding = (
            256 * np.finfo(self.scatter.dtype).eps * np.sqrt(self.counts / n)[:, None] * means
        )
        with np.errstate(over="ignore"):  # told below
            least = np.sum(rounding**2)
        variance = max(np.trace(self.scatter, dtype=np.float64) / n, least) / size or 1.0
        if not (np.isfinite(variance) and np.isfinite(self.scatter).all()):
            raise ValueError(
                "The features that readout='discriminant' makes of X overflow "
                f"{self.scatter.dtype}. Scale X (StandardScaler)."
            )
        covariance = self.scatter.astype(np.float64) / (n * variance)
        shrinkage = _shrinkage(covariance, n, self.scatter.dtype)
        covariance *= 1 - shrinkage
        covariance.flat[:: size + 1] += shrinkage
        factor = linalg.cho_factor(covariance, overwrite_a=True)
        # Measured from the centre, a class is told by its distance and not by the features'
        # size, by which scores would round.
        centre = self.counts @ means / n
        coef = linalg.cho_solve(factor, (means - centre).T / variance)
        with np.errstate(divide="ignore"):
            prior = np.log(self.counts / n)
        intercept = prior - 0.5 * np.einsum("kd,dk->k", means + centre, coef)
        dtype = self.coef.dtype
        return replace(self, coef=coef.astype(dtype), intercept=intercept.astype(dtype))


def _features(projection: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return add_product(projection[-1], x, projection[:-1]).relu_()


def _shrinkage(covariance: np.ndarray, n: float, dtype) -> float:
    """Return the share of the identity, given a covariance of mean variance at most one.

    Chen et al. (2010) derive this "oracle approximating shrinkage" from the covariance and
    the number of rows alone. It is at least what outweighs the rounding of a scatter, in
    its dtype, and of a factorization, in float64.
    """
    size = len(covariance)
    squares = np.mean(covariance**2)
    excess = (n + 1) * (squares - 1 / size)
    least = 16 * max(np.finfo(dtype).eps * size**0.5, np.finfo(np.float64).eps * size)
    return float(np.clip((squares + 1) / excess, least, 1)) if excess > 0 else 1.0
