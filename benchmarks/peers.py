"""What users pick instead of skewc, as ``speed.py`` runs it; no peer is imported unless run."""

import copy
import importlib
from time import perf_counter

import numpy as np
import torch

RATE, ALPHA = 1e-3, 1e-4


def mlp(sizes):
    """Build a network with skewc's layers."""
    modules = []
    for n_in, n_out in zip(sizes, sizes[1:], strict=False):
        modules += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


def skorch_epochs(X, y, hidden, batch, epochs):
    """Seconds of an epoch of skorch."""
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(
        mlp((X.shape[1], *hidden, 10)),
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        optimizer__weight_decay=ALPHA / len(y),
        lr=RATE,
        max_epochs=epochs,
        batch_size=batch,
        train_split=None,
        iterator_train__shuffle=True,
        verbose=0,
    )
    start = perf_counter()
    net.fit(X, y)
    return (perf_counter() - start) / epochs


def torch_loop(X, y, hidden, batch, epochs):
    """Seconds of an epoch of a loop as one writes it by hand, without a DataLoader."""
    x, y = torch.from_numpy(X), torch.from_numpy(y)
    model = mlp((X.shape[1], *hidden, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=ALPHA / len(y))
    start = perf_counter()
    for _ in range(epochs):
        for index in torch.randperm(len(y)).split(batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
    return (perf_counter() - start) / epochs


def backpack_diagonal(kind, model, x, y):
    """Sum of all rows at once: BackPACK's DiagGGNExact or SumGradSquared."""
    from backpack import backpack, extend
    from backpack.extensions import DiagGGNExact, SumGradSquared

    extension = DiagGGNExact() if kind == "exact" else SumGradSquared()
    model = extend(copy.deepcopy(model))
    loss = extend(torch.nn.CrossEntropyLoss(reduction="sum"))(model(x), y)
    with backpack(extension):
        loss.backward()
    return [getattr(p, extension.savefield) for p in model.parameters()]


def rows_one_by_one(kind, model, x, y):
    """Square the gradient of every row (exact: and class) by autograd."""
    parameters = list(model.parameters())
    sums = [torch.zeros_like(p) for p in parameters]
    for row, label in zip(x, y, strict=True):
        log_p = torch.log_softmax(model(row), dim=0)
        for c in range(len(log_p)) if kind == "exact" else [label]:
            gradients = torch.autograd.grad(log_p[c], parameters, retain_graph=kind == "exact")
            weight = float(log_p[c].detach().exp()) if kind == "exact" else 1.0
            for total, gradient in zip(sums, gradients, strict=True):
                total.addcmul_(gradient, gradient, value=weight)
    return sums


def curvlinops_diagonal(kind, model, x, y, n_products=10):
    """Estimate the GGN's diagonal: curvlinops has no exact one but through all columns."""
    from curvlinops import GGNLinearOperator, hutchinson_diag

    torch.manual_seed(0)
    parameters = list(model.parameters())
    loss = torch.nn.CrossEntropyLoss(reduction="sum")
    ggn = GGNLinearOperator(model, loss, parameters, [(x, y)], check_deterministic=False)
    flat = hutchinson_diag(ggn, n_products)
    parts = flat.split([p.numel() for p in parameters])
    return [part.reshape(p.shape) for part, p in zip(parts, parameters, strict=True)]


def laplace_diagonal(kind, model, x, y, backend="backpack.BackPackGGN"):
    """Fit laplace-torch's DiagLaplace; its backend for curvlinops takes minutes."""
    from laplace import Laplace

    module, name = backend.split(".")
    backend = getattr(importlib.import_module(f"laplace.curvature.{module}"), name)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))
    model = copy.deepcopy(model)
    fitted = Laplace(
        model,
        "classification",
        subset_of_weights="all",
        hessian_structure="diag",
        backend=backend,
    )
    fitted.fit(loader)
    parts = fitted.H.split([p.numel() for p in model.parameters()])
    return [part.reshape(p.shape) for part, p in zip(parts, model.parameters(), strict=True)]


def avalanche_rows(x, y):
    """Return rows as Avalanche takes them."""
    from avalanche.benchmarks.utils import as_classification_dataset

    dataset = torch.utils.data.TensorDataset(x, y)
    dataset.targets = y.tolist()
    return as_classification_dataset(dataset)


def avalanche_importance(kind, model, x, y):
    """Sum over rows of what Avalanche's EWC computes with batches of one row, a mean."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.training.plugins import EWCPlugin

    (experience,) = benchmark_from_datasets(train=[avalanche_rows(x, y)]).train_stream
    optimizer = torch.optim.Adam(model.parameters())
    found = EWCPlugin(1.0).compute_importances(
        model, torch.nn.CrossEntropyLoss(), optimizer, experience.dataset, "cpu", 1
    )
    return [found[name].data * len(x) for name, _ in model.named_parameters()]


def avalanche_stream(tasks, epochs):
    """Seconds of Avalanche's EWC on a stream, its Fisher of batch gradients included."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import EWC

    sets = [
        avalanche_rows(torch.from_numpy(t.X_train), torch.from_numpy(t.y_train.astype(np.int64)))
        for t in tasks
    ]
    model = mlp((tasks[0].X_train.shape[1], 100, 10))
    strategy = EWC(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=RATE),
        criterion=torch.nn.CrossEntropyLoss(),
        ewc_lambda=1.0,
        mode="online",
        decay_factor=1.0,
        train_mb_size=32,
        train_epochs=epochs,
        evaluator=EvaluationPlugin(),
    )
    stream = benchmark_from_datasets(train=sets).train_stream
    start = perf_counter()
    for experience in stream:
        strategy.train(experience)
    return perf_counter() - start
