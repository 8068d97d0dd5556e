"""
How do I take the network elsewhere?
====================================

`to_torch` copies the fitted network into a plain `torch.nn.Sequential` that knows nothing of
skewc. From there it goes wherever torch can take it: into a file of torch's own, or to ONNX.
"""

import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from skewc import EWCClassifier

# A fixed number of epochs is the budget here, not a failure to converge.
warnings.simplefilter("ignore", ConvergenceWarning)
# torch's exporter warns of its own code.
warnings.simplefilter("ignore", FutureWarning)

# %%
# Learn, and copy
# ---------------
# Rows in float32 give a network in float32, which is what most runtimes expect.

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
permuted = X[:, np.random.RandomState(0).permutation(64)]
clf = EWCClassifier(curvature="kronecker", max_iter=30, batch_size=32, random_state=0)
clf.partial_fit(X, y, task_id="plain").partial_fit(permuted, y, task_id="permuted")
network = clf.to_torch().eval()
print(network)

# %%
# It returns logits, in the order of `classes_`:

with torch.no_grad():
    logits = network(torch.from_numpy(X)).numpy()
assert np.allclose(logits, clf.decision_function(X), atol=1e-4)
assert np.array_equal(clf.classes_[logits.argmax(axis=1)], clf.predict(X))

# %%
# As a program of torch
# ---------------------
# `torch.export` traces the network for any number of rows. The file needs torch, but not skewc.

folder = Path(tempfile.mkdtemp())
rows = torch.export.Dim("rows")
program = torch.export.export(network, (torch.from_numpy(X[:2]),), dynamic_shapes=({0: rows},))
torch.export.save(program, folder / "digits.pt2")
loaded = torch.export.load(folder / "digits.pt2").module()
with torch.no_grad():
    assert np.allclose(loaded(torch.from_numpy(X)).numpy(), logits, atol=1e-4)
print(f"digits.pt2: {(folder / 'digits.pt2').stat().st_size / 1000:.0f} kB")

# %%
# To ONNX
# -------
# torch writes ONNX where `onnx` and `onnxscript` are installed. Here the file is run by ONNX's own
# reference implementation, which is plain numpy.

if find_spec("onnx") and find_spec("onnxscript"):
    import onnx
    from onnx.reference import ReferenceEvaluator

    torch.onnx.export(
        network, (torch.from_numpy(X[:2]),), folder / "digits.onnx",
        input_names=["pixels"], output_names=["logits"],
        dynamic_shapes=({0: rows},), dynamo=True, verbose=False,
    )  # fmt: skip
    model = onnx.load(folder / "digits.onnx")
    print([node.op_type for node in model.graph.node])
    (elsewhere,) = ReferenceEvaluator(model).run(None, {"pixels": X})
    assert np.allclose(elsewhere, logits, atol=1e-4)
else:
    print("onnx or onnxscript is not installed")
    elsewhere = logits

# %%
# The answers
# -----------
# What the exported network says of the first digits, plain and permuted by turns. It keeps the
# weights only: with ``readout="discriminant"``, the discriminant stays behind.

shown = np.where(np.arange(10)[:, None] % 2, permuted[:10], X[:10])
with torch.no_grad():
    answers = loaded(torch.from_numpy(shown)).argmax(dim=1).numpy()
figure, axes = plt.subplots(1, 10, figsize=(10, 1.6), layout="constrained")
for ax, image, answer, label in zip(axes, shown, answers, y, strict=False):
    ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])
    ax.set_title(clf.classes_[answer], color="tab:blue" if answer == label else "tab:red")
plt.show()
