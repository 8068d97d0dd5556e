"""The multilayer perceptron: layout of its weights, forward pass, backpropagation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

_ACTIVATE = {
    "identity": lambda z: z,
    "logistic": torch.Tensor.sigmoid_,
    "tanh": torch.Tensor.tanh_,
    "relu": torch.Tensor.relu_,
}
# Derivatives written in the activation's own output h, so that no input need be kept.
_DERIVATIVE = {
    "logistic": lambda h: h * (1 - h),
    "tanh": lambda h: 1 - h * h,
    "relu": lambda h: h > 0,
}
ACTIVATION_MODULES = {
    "identity": torch.nn.Identity,
    "logistic": torch.nn.Sigmoid,
    "tanh": torch.nn.Tanh,
    "relu": torch.nn.ReLU,
}


@dataclass(frozen=True)
class Network:
    """Layers of `sizes` units with `activation` between them; logits come out.

    All weights live in one flat vector: the coefficients of every layer, each of shape
    (in, out) in C order, then the intercepts of every layer. So the coefficients are
    one slice, which is all that L2 regularization touches.
    """

    sizes: tuple[int, ...]
    activation: str

    @property
    def n_coefs(self) -> int:
        """Length of the slice of coefficients."""
        return sum(i * o for i, o in zip(self.sizes, self.sizes[1:], strict=False))

    @property
    def n_weights(self) -> int:
        """Length of the flat vector."""
        return self.n_coefs + sum(self.sizes[1:])

    def split(self, vector):
        """View a flat vector (numpy or torch) as lists of coefficients and intercepts."""
        coefs, intercepts, start = [], [], 0
        for n_in, n_out in zip(self.sizes, self.sizes[1:], strict=False):
            coefs.append(vector[start : start + n_in * n_out].reshape(n_in, n_out))
            start += n_in * n_out
        for n_out in self.sizes[1:]:
            intercepts.append(vector[start : start + n_out])
            start += n_out
        return coefs, intercepts

    @staticmethod
    def join(coefs, intercepts) -> np.ndarray:
        """Copy lists of coefficients and intercepts into one flat vector."""
        return np.concatenate([w.ravel() for w in [*coefs, *intercepts]])

    def initialise(self, rng: np.random.RandomState, dtype) -> np.ndarray:
        """Draw weights as Glorot & Bengio (2010), in scikit-learn's order of draws."""
        factor = 2.0 if self.activation == "logistic" else 6.0
        coefs, intercepts = [], []
        for n_in, n_out in zip(self.sizes, self.sizes[1:], strict=False):
            bound = np.sqrt(factor / (n_in + n_out))
            coefs.append(rng.uniform(-bound, bound, (n_in, n_out)))
            intercepts.append(rng.uniform(-bound, bound, n_out))
        return self.join(coefs, intercepts).astype(dtype)

    def grow(self, columns: np.ndarray, n_outputs: int) -> tuple[Network, np.ndarray]:
        """Widen the output layer to `n_outputs`; the old outputs become `columns` of it.

        Returns the wider network, and where in its flat vector each old weight goes.
        """
        wider = replace(self, sizes=(*self.sizes[:-1], n_outputs))
        coefs, intercepts = wider.split(np.arange(wider.n_weights))
        coefs[-1], intercepts[-1] = coefs[-1][:, columns], intercepts[-1][columns]
        return wider, self.join(coefs, intercepts)

    @staticmethod
    def pad_outputs(coefs, intercepts):
        """Widen the output layer by zeros to whole blocks of 64 columns.

        Matrix products round a column differently as the number of columns changes, but
        not within whole blocks; so old logits keep every bit while classes join.
        """
        missing = 4 + -(len(intercepts[-1]) + 4) % 64  # the last four round otherwise
        pad = torch.nn.functional.pad
        return (
            [*coefs[:-1], pad(coefs[-1], (0, missing))],
            [*intercepts[:-1], pad(intercepts[-1], (0, missing))],
        )

    def forward(self, coefs, intercepts, x: torch.Tensor) -> list[torch.Tensor]:
        """Activations of every layer: the input (n, in) first, the logits (n, K) last."""
        activations, last = [x], len(coefs) - 1
        activate = _ACTIVATE[self.activation]
        for layer, (coef, intercept) in enumerate(zip(coefs, intercepts, strict=True)):
            z = torch.addmm(intercept, activations[-1], coef)
            activations.append(z if layer == last else activate(z))
        return activations

    def backpropagate(
        self, coefs, activations, delta: torch.Tensor
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Send vectors at the logits back: yield (layer, input, delta), last layer first.

        `delta` is (n, K), or (C, n, K) for C vectors per row. Gradients, the Fisher's
        diagonal and its Kronecker factors are all reductions of what comes out.
        """
        for layer in reversed(range(len(coefs))):
            yield layer, activations[layer], delta
            if layer:
                delta = delta @ coefs[layer].T
                if self.activation != "identity":
                    delta *= _DERIVATIVE[self.activation](activations[layer])
