"""Add Avalanche's EWC to the notes of ``forgetting.py``: same data, network and optimiser.

Run in an environment of its own, which needs skewc's checkout on the path for the streams:

    python -m venv .venv-avalanche
    .venv-avalanche/bin/pip install torch==2.14.1 torchvision==0.29.1 avalanche-lib
    PYTHONPATH=. .venv-avalanche/bin/python benchmarks/avalanche_ewc.py [seeds]

then run ``forgetting.py``, which writes the table. The first seed runs all λ, the others the
best of it. Where the task is known, the softmax is
over the task's classes, in training too; elsewhere over all.
"""

import json
import sys
import warnings

import numpy as np
import torch
from avalanche.benchmarks import benchmark_from_datasets, task_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.models import MultiTaskModule
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import EWC
from forgetting import NETWORK, RESULTS, read, streams, wanted

LAMBDAS = [10**k for k in range(1, 10)]
MODES = {"separate": {}, "online": {"decay_factor": 1.0}}


class Perceptron(torch.nn.Module):
    """Two layers, initialised as skewc does it."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        (n_hidden,) = NETWORK["hidden_layer_sizes"]
        self.hidden = torch.nn.Linear(n_features, n_hidden)
        self.classifier = torch.nn.Linear(n_hidden, n_classes)
        for layer in (self.hidden, self.classifier):
            bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
            for parameter in layer.parameters():
                torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x):
        """Return the logits."""
        return self.classifier(self.hidden(x).relu())


class KnownTask(MultiTaskModule):
    """Leave to a network the classes of the task at hand."""

    def __init__(self, network, masks):
        super().__init__()
        self.network, self.masks = network, masks

    def adaptation(self, experience):
        """Do nothing: no unit joins."""

    def forward(self, x, task_labels):
        """Return the logits, -inf for classes of other tasks."""
        return self.network(x) + self.masks[task_labels]


def rows(task):
    """Return the training rows as Avalanche takes them."""
    X, y = torch.from_numpy(task.X_train), torch.from_numpy(task.y_train.astype(np.int64))
    dataset = torch.utils.data.TensorDataset(X, y)
    dataset.targets = y.tolist()
    return as_classification_dataset(dataset)


def learn(mode, value, tasks, known, seed):
    """Average test accuracy over all tasks after learning them in order."""
    torch.manual_seed(seed)
    n_classes = 1 + max(int(task.y_train.max()) for task in tasks)
    model = Perceptron(tasks[0].X_train.shape[1], n_classes)
    benchmark = benchmark_from_datasets(train=[rows(task) for task in tasks])
    if known:
        masks = torch.full((len(tasks), n_classes), -torch.inf)
        for mask, task in zip(masks, tasks, strict=True):
            mask[np.unique(task.y_train).astype(np.int64)] = 0
        model, benchmark = KnownTask(model, masks), task_incremental_benchmark(benchmark)
    strategy = EWC(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        criterion=torch.nn.CrossEntropyLoss(),
        ewc_lambda=value,
        mode=mode,
        train_mb_size=NETWORK["batch_size"],
        train_epochs=NETWORK["max_iter"],
        evaluator=EvaluationPlugin(),
        **MODES[mode],
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    model.eval()

    def predict(k, X):
        x = torch.from_numpy(X)
        with torch.no_grad():
            logits = model(x, torch.full((len(x),), k)) if known else model(x)
        return logits.argmax(dim=1).numpy()

    return float(np.mean([np.mean(predict(k, t.X_test) == t.y_test) for k, t in enumerate(tasks)]))


def main(seeds=5):
    """Run what is not yet noted."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = RESULTS / "forgetting.jsonl"
    noted = read(path)
    for seed in range(seeds):
        for scenarios, tasks in streams(seed):
            for scenario in scenarios:
                for mode in MODES:
                    for value in LAMBDAS:
                        name = f"Avalanche EWC, {mode}"
                        if not wanted(noted, [scenario], name, value, seed):
                            continue
                        known = scenario == "split, task known"
                        score = learn(mode, value, tasks, known, seed)
                        line = [scenario, name, value, seed, score]
                        noted[*line[:4]] = score
                        with path.open("a", encoding="utf-8") as notes:
                            notes.write(json.dumps(line) + "\n")
                        print(*line, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
