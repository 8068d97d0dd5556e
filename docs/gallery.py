"""How the gallery is ordered, and what each example starts from."""

import warnings

import sklearn

EXAMPLES = [
    "split_digits", "lambda_path", "restoring_force", "importance_digits", "curvature",
    "new_classes", "drifting_table", "grid_search", "compare_estimators", "export",
]  # fmt: skip


class Order:
    """Sort by the list above, which an example that is not in it fails."""

    def __init__(self, folder):
        pass

    def __call__(self, filename):
        """Return the place of an example."""
        return EXAMPLES.index(filename.removeprefix("plot_").removesuffix(".py"))


def reset(gallery_conf, name):
    """Let no example see what another one has set."""
    sklearn.set_config(enable_metadata_routing=False)
    warnings.simplefilter("error")
