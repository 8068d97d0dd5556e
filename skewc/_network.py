"""The multilayer perceptron: layout of its weights, forward pass, backpropagation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from skewc._products import add_product, product

_ACTIVATE = {
    "identity": lambda z: z,
    "logistic": torch.Tensor.sigmoid_,
    "tanh": torch.Tensor.tanh_,
    "relu": torch.Tensor.relu_,
}
# Multiply δ, in place, by the derivative written in the activation's own output h, so that
# no input need be kept. One operation each: small batches cost by their number.
_aten = torch.ops.aten
BACKWARD = {
    "identity": lambda d, h: d,
    "logistic": lambda d, h: _aten.sigmoid_backward.grad_input(d, h, grad_input=d),
    "tanh": lambda d, h: _aten.tanh_backward.grad_input(d, h, grad_input=d),
    "relu": lambda d, h: _aten.threshold_backward.grad_input(d, h, 0, grad_input=d),
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

    def stack(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Copy each layer into one matrix (in + 1, out), the intercepts as last row."""
        return [torch.cat([w, b[None]]) for w, b in zip(*self.split(weights), strict=True)]

    def unstack(self, blocks) -> torch.Tensor:
        """Copy matrices as `stack` makes them into one flat vector."""
        return torch.cat([*(w[:-1].ravel() for w in blocks), *(w[-1] for w in blocks)])

    def initialise(self, rng: np.random.RandomState, dtype) -> np.ndarray:
        """Draw weights as Glorot & Bengio (2010), in scikit-learn's order of draws."""
        factor = 2.0 if self.activation == "logistic" else 6.0
        coefs, intercepts = [], []
        for n_in, n_out in zip(self.sizes, self.sizes[1:], strict=False):
            bound = np.sqrt(factor / (n_in + n_out))
            coefs.append(rng.uniform(-bound, bound, (n_in, n_out)))
            intercepts.append(rng.uniform(-bound, bound, n_out))
        return self.join(coefs, intercepts).astype(dtype)

    def grow(self, columns: np.ndarray, n_outputs: int) -> Growth:
        """Widen the output layer to `n_outputs`; the old outputs become `columns` of it."""
        wider = replace(self, sizes=(*self.sizes[:-1], n_outputs))
        coefs, intercepts = wider.split(np.arange(wider.n_weights))
        coefs[-1], intercepts[-1] = coefs[-1][:, columns], intercepts[-1][columns]
        return Growth(wider, columns, self.join(coefs, intercepts))

    def coordinates(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the weights, which are their own coordinates here."""
        return weights

    def displaced(self, weights, start, end) -> torch.Tensor:
        """Return the weights after their coordinates went from `start` to `end`."""
        return end

    def prepared(self, rows):
        """Return `rows` with the inputs that `forward` takes."""
        return rows

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
        activations, activate = [x], _ACTIVATE[self.activation]
        *hidden, (coef, intercept) = zip(coefs, intercepts, strict=True)
        for w, b in hidden:
            activations.append(activate(add_product(b, activations[-1], w)))
        return [*activations, add_product(intercept, activations[-1], coef)]

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
                delta = BACKWARD[self.activation](delta @ coefs[layer].T, activations[layer])

    @staticmethod
    def write_gradient(gradients, layers, alpha: float, layer: int, a, d: torch.Tensor) -> None:
        """Reduce a pair of `backpropagate` to the gradient of its layer, in place.

        alpha times the layer's coefficients, and no intercepts, come on top.
        """
        coefs, intercepts = gradients
        add_product(layers[0][layer], a.T, d, beta=alpha, out=coefs[layer])
        torch.sum(d, dim=0, out=intercepts[layer])

    def squared_norm(self, weights: torch.Tensor) -> torch.Tensor:
        """Return ‖W‖², the coefficients' sum of squares, a 0-d tensor."""
        coefs = weights[: self.n_coefs]
        return torch.dot(coefs, coefs).double()


@dataclass(frozen=True)
class RotatedNetwork:
    """A network in the coordinates Uᵀ·W̃·V of each layer, U and V orthogonal.

    W̃ (in + 1, out) are the layer's coefficients with its intercepts as last row. Where U
    and V hold the eigenvectors of A and G, the quadratic tr(D̃ᵀ·A·D̃·G) is diagonal in
    these coordinates: a proximal step on it is exact and costs one pass over the weights.
    Gradients need small products more per layer and batch: of U with the layer's inputs or
    its weights, whichever are fewer, and of V with its outputs. The gradient of the
    quadratic in the weights' own coordinates would need A·D̃·G. The rows' own inputs are
    rotated once for all epochs.

    The flat vector holds the blocks (in + 1, out) of all layers.
    """

    network: Network
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of each layer."""
        return self.network.sizes

    @property
    def n_coefs(self) -> int:
        """Number of coefficients."""
        return self.network.n_coefs

    def split(self, vector) -> tuple[list]:
        """View a flat vector as the list of blocks (in + 1, out)."""
        return ([*_blocks(self.sizes, vector)],)

    def coordinates(self, weights: torch.Tensor) -> torch.Tensor:
        """Rotate the network's flat vector into these coordinates."""
        blocks = self.network.stack(weights)
        return torch.cat(
            [
                (u.T @ block @ v).ravel()
                for u, block, v in zip(self.inputs, blocks, self.outputs, strict=True)
            ]
        )

    def displaced(self, weights, start, end) -> torch.Tensor:
        """Return the weights after their coordinates went from `start` to `end`.

        Only the displacement is rotated, so weights that did not move keep every bit.
        """
        (blocks,) = self.split(end - start)
        moved = [
            u @ block @ v.T for u, block, v in zip(self.inputs, blocks, self.outputs, strict=True)
        ]
        return weights + self.network.unstack(moved)

    def prepared(self, rows):
        """Return `rows` with their inputs, and a trailing 1, rotated."""
        return rows.rotated(self.inputs[0])

    def forward(self, blocks, x: torch.Tensor) -> list:
        """Return what `backpropagate` needs of each layer, and the logits last.

        That is the layer's input, plain and rotated. Where a layer has fewer outputs than
        there are rows, its block is rotated back instead, and kept in the third place.
        """
        kept = [(None, x, None)]
        activate = _ACTIVATE[self.network.activation]
        for layer, (block, v) in enumerate(zip(blocks, self.outputs, strict=True)):
            h, rotated, turned = kept[-1]
            z = (
                product(rotated, block)
                if turned is None
                else add_product(turned[-1], h, turned[:-1])
            )
            z = z @ v.T
            if layer == len(blocks) - 1:
                return [*kept, z]
            h, u, following = activate(z), self.inputs[layer + 1], blocks[layer + 1]
            if following.shape[1] < len(h):
                kept.append((h, None, product(u, following)))
            else:
                kept.append((h, torch.addmm(u[-1], h, u[:-1]), None))

    def backpropagate(self, blocks, kept, delta: torch.Tensor) -> Iterator[tuple]:
        """Send vectors (n, K) at the logits back: yield (layer, kept, delta), last first."""
        for layer in reversed(range(len(blocks))):
            h, _, turned = kept[layer]
            delta = delta @ self.outputs[layer]
            yield layer, kept[layer], delta
            if layer:
                if turned is None:
                    delta = delta @ blocks[layer].T @ self.inputs[layer][:-1].T
                else:
                    delta = delta @ turned[:-1].T
                delta = BACKWARD[self.network.activation](delta, h)

    def write_gradient(self, gradients, layers, alpha: float, layer: int, kept, d) -> None:
        """Reduce what `backpropagate` yields to the gradient of its layer, in place.

        alpha times the layer's coefficients, and no intercepts, come on top.
        """
        h, rotated, _ = kept
        block, gradient, u = layers[0][layer], gradients[0][layer], self.inputs[layer]
        if rotated is not None:
            add_product(block, rotated.T, d, beta=alpha, out=gradient)
        else:
            plain = torch.cat([product(h.T, d), d.sum(dim=0, keepdim=True)])
            add_product(block, u.T, plain, beta=alpha, out=gradient)
        gradient.addr_(u[-1], u[-1] @ block, alpha=-alpha)

    def squared_norm(self, weights: torch.Tensor) -> torch.Tensor:
        """Return ‖W‖², the coefficients' sum of squares, a 0-d tensor."""
        (blocks,) = self.split(weights)
        intercepts = [u[-1] @ block for u, block in zip(self.inputs, blocks, strict=True)]
        return torch.dot(weights, weights).double() - sum(b.dot(b).double() for b in intercepts)


@dataclass(frozen=True)
class Growth:
    """Where every number kept for an old weight goes as the output layer widens.

    `network` is the wider one, `columns` its outputs that are old, and `index` says where
    in its flat vector the old weights are. What is new is zero.
    """

    network: Network
    columns: np.ndarray
    index: np.ndarray

    @property
    def new_columns(self) -> np.ndarray:
        """Outputs that are new."""
        return np.setdiff1d(np.arange(self.network.sizes[-1]), self.columns)

    def vector(self, old: np.ndarray) -> np.ndarray:
        """Move a flat vector."""
        new = np.zeros(self.network.n_weights, old.dtype)
        new[self.index] = old
        return new

    def rows(self, old: np.ndarray) -> np.ndarray:
        """Move the rows, one for each output, of a matrix."""
        new = np.zeros((self.network.sizes[-1], old.shape[1]), old.dtype)
        new[self.columns] = old
        return new

    def rotated(self, old: np.ndarray) -> np.ndarray:
        """Move a flat vector in rotated coordinates, where new outputs come last."""
        n_in, n_out = self.network.sizes[-2:]
        n_old = (n_in + 1) * len(self.columns)
        last = old[-n_old:].reshape(n_in + 1, -1)
        last = np.pad(last, ((0, 0), (0, n_out - len(self.columns))))
        return np.concatenate([old[:-n_old], last.ravel()])


def _blocks(sizes, vector) -> Iterator:
    """View a flat vector as one block (in + 1, out) for each layer."""
    start = 0
    for n_in, n_out in zip(sizes, sizes[1:], strict=False):
        end = start + (n_in + 1) * n_out
        yield vector[start:end].reshape(n_in + 1, n_out)
        start = end
