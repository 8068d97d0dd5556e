"""EWCClassifier: parameters, validation, and the bookkeeping of tasks and classes."""

from __future__ import annotations

import copy
import warnings
import weakref
from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from skewc._callbacks import Report
from skewc._compat import (
    CallbackSupportMixin,
    Interval,
    Options,
    StrOptions,
    _fit_context,
    with_callbacks,
)
from skewc._inputs import to_tensor
from skewc._layout import stamped, unstamped
from skewc._learning import consolidation, learn_task
from skewc._losses import class_mask, log_softmax, softmax
from skewc._network import ACTIVATION_MODULES, Network
from skewc._readout import Discriminant
from skewc._rows import Rows
from skewc._stream import Stream
from skewc._training import History
from skewc._validation import (
    check_classes,
    check_closed,
    check_device,
    check_hidden_layer_sizes,
    check_labels,
    check_labels_known,
    check_targets,
    merge_classes,
    row_weights,
    split_by_task,
    validated,
)

CONFUSING = (
    "The tasks have different classes, and no task_id says which task is meant. Outputs of "
    "different tasks were never trained side by side, so expect rows of earlier tasks to be "
    "taken for classes of later ones. Three ways out: readout='discriminant', which keeps "
    "statistics of the classes but no rows; memory_size=200 or more, which keeps that many rows; "
    "or task_id=..., where the task is known when predicting."
)
# Estimators that warned of it; not part of their state, which predicting must not change.
_warned = weakref.WeakSet()


def _learned(read):
    """Make an attribute of the stream; read once, since another thread may commit meanwhile."""

    def get(self):
        check_is_fitted(self)
        return read(self._stream)

    return property(get)


class EWCClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Multi-layer perceptron that learns task after task without forgetting.

    The network and its training are those of :class:`sklearn.neural_network.MLPClassifier`.
    On top, Elastic Weight Consolidation (EWC) holds the weights that earlier tasks
    need: learning a task with rows x of weight s_x, N = Σ s_x, minimises ::

        J(w) = (1/N)·[ Σ_x s_x·NLL(x; w) + (λ/2)·Ω(w) + (α/2)·‖W‖² ]

    where λ is `ewc_lambda`, α is `alpha`, W are the coefficients without the intercepts
    and Ω is a quadratic around earlier weights w*, weighted by the Fisher information F
    of each earlier task k, a sum over its rows::

        running sum   Ω(w) = Σ_k ω_k·(w - w*_latest)ᵀ F_k (w - w*_latest)
        per task      Ω(w) = Σ_k ω_k·(w - w*_k)ᵀ F_k (w - w*_k)

    The first is that of [2]_ and [3]_, the second of [1]_. Both are kept as one quadratic,
    so the estimator is as large after a hundred tasks as after two, and it keeps no row of
    data. F is its diagonal, or a Kronecker product for each layer (`curvature`).

    Read more in the :ref:`user guide <guide>`.

    Parameters
    ----------
    hidden_layer_sizes : array-like of shape (n_layers - 2,), default=(100,)
        The number of units of each hidden layer. An empty tuple gives multinomial
        logistic regression.

    activation : {'identity', 'logistic', 'tanh', 'relu'}, default='relu'
        Activation function of the hidden layers.

    ewc_lambda : float, default=10.0
        Strength λ >= 0 of the penalty on moving away from what earlier tasks need. 0 is
        plain fine-tuning. With ``fisher_scale='sum'`` and no smoothing, 1 is the Bayesian
        value: an old row counts as much as a new one. The default is a compromise over
        six streams (see the user guide); search it with
        :class:`~sklearn.model_selection.GridSearchCV` where you can. λ does not carry
        over from other libraries, whose Fisher differs.

    penalty : {'running_sum', 'per_task'}, default='running_sum'
        Where the quadratic of an earlier task is centred: on the weights after the latest
        task [2]_, or on the weights after that task itself [1]_.

    curvature : {'diagonal', 'kronecker'}, default='diagonal'
        The form of the Fisher information that is kept. 'diagonal': one importance for
        each weight. 'kronecker': for each layer, the products of its inputs' and of its
        outputs' second moments [6]_, which hold the couplings between weights too. It
        forgets far less, but keeps (in + 1)² + out² numbers for each layer, twice, and
        takes longer to train (see the user guide). Above 1 GiB it is refused.

    fisher : {'exact', 'sample', 'empirical'}, default='exact'
        The labels at which per-row gradients are squared: all labels, weighted by the
        model's probability of each ('exact'); one label drawn from the model ('sample');
        the row's own label ('empirical'). Only the first two estimate the Fisher
        information; see [5]_. For the diagonal of up to one hidden layer, 'exact' costs
        about as much as 'sample' whatever the number of classes; in deeper networks and
        for Kronecker factors its cost grows in proportion to it, so sample from about a
        hundred classes on.

    fisher_samples : int, default=None
        Number of rows, drawn without replacement at each call, from which the importance
        is estimated; the sum is scaled up to stand for all. None takes every row.

    fisher_smoothing : float in [0, 1], default=0.1
        Share ε by which the labels of 'exact' and 'sample' are drawn uniformly among the
        active classes instead of from the model. A network that is sure of its answers
        has a Fisher information near zero; ε > 0 keeps it from being left unprotected.
        Not used by 'empirical'.

    fisher_scale : {'sum', 'mean'}, default='sum'
        'sum' adds the Fisher over rows. 'mean' divides each task's by the weight of its
        rows and lets the penalty stand beside the mean loss, the form of [1]_; a task
        then counts alike whatever its number of rows.

    fisher_decay : float in [0, 1], default=1.0
        Factor γ on the importance of all older tasks each time a task joins them [3]_.
        Below 1 the oldest tasks are forgotten gracefully.

    task_weights : dict, default=None
        Relative weight ω >= 0 of a task's importance, ``{task_id: weight}``; tasks not
        named weigh 1. Read when the task is consolidated, that is when the next opens.

    active_classes : {'task', 'seen', 'all'}, default='task'
        The classes among which the softmax chooses while learning: those of the task, so
        that it does not push down the outputs of other tasks; all seen so far; or all in
        `classes_`. Where that is a single class, which has no loss, the next wider choice
        takes its place. A first task of a single class can teach only if `classes` was
        declared.

    memory_size : int, default=0
        Largest number of rows to keep of earlier tasks ("exemplars"), balanced over the
        classes seen and, in a class, over the tasks. Later tasks replay them: they are
        mixed into the batches, and weighted so that every class seen counts alike, as
        does every task within a class. The softmax then spans the memory's classes too.
        0 keeps no row.

    memory_selection : {'herding', 'random'}, default='herding'
        Which rows to keep: those whose mean in the last hidden layer is nearest to the
        mean of their class in the task [7]_; or a random sample.

    readout : {'softmax', 'discriminant'}, default='softmax'
        What tells classes apart where no `task_id` is given when predicting. 'softmax':
        the outputs of the network. 'discriminant': a linear discriminant of fixed random
        features of the inputs [8]_ [9]_. It keeps each class's mean and one scatter
        matrix, sums over rows that no later task disturbs, and no row; so it is the
        choice for streams that bring new classes (see the user guide). Standardise the
        inputs, or scale them to [0, 1].

    readout_features : int, default=2000
        Number D of the random features max(0, x·R + r) of 'discriminant'. It keeps D²
        numbers, and D for each input and twice for each class.

    solver : {'lbfgs', 'sgd', 'adam'}, default='adam'
        'sgd' and 'adam' follow each step on the loss by the penalty's proximal step,
        which no `ewc_lambda` makes diverge. 'lbfgs' minimises all of J at once.

    alpha : float, default=1e-4
        Strength of the L2 regularisation of the coefficients, divided by the weight of
        the task's rows. MLPClassifier divides by the rows of the batch instead, so that
        its regularisation grows as batches shrink.

    batch_size : int, default='auto'
        Rows in a batch of 'sgd' and 'adam'. 'auto' is ``min(200, n_samples)``.

    learning_rate : {'constant', 'invscaling', 'adaptive'}, default='constant'
        Schedule of the learning rate of 'sgd': constant; ``learning_rate_init /
        t_**power_t``; or divided by 5 each time training stops improving. Each task
        starts at `learning_rate_init`.

    learning_rate_init : float, default=0.001
        Initial learning rate of 'sgd' and 'adam'.

    power_t : float, default=0.5
        Exponent of the 'invscaling' schedule.

    max_iter : int, default=200
        Maximum number of epochs for each task ('lbfgs': of iterations), in `fit` and in
        `partial_fit`. EWC expects each task to be learned to the end; 1 gives one pass.

    shuffle : bool, default=True
        Whether to shuffle the rows in each epoch.

    random_state : int, RandomState instance or None, default=None
        Drives initial weights, shuffling, the rows held out by `early_stopping` and
        what `fisher` draws. An int makes a stream of calls reproducible: `fit`, or the
        first `partial_fit`, seeds the generator, and later calls go on with it. None
        takes a seed from the operating system; numpy's global generator is never used.

    tol : float, default=1e-4
        Training stops when the loss (or the validation score) has not improved by `tol`
        for more than `n_iter_no_change` epochs; for 'lbfgs', when no component of the
        gradient exceeds it.

    verbose : bool, default=False
        Whether to print the loss of each epoch. Nothing is printed by 'lbfgs'.

    warm_start : bool, default=False
        Whether `fit` starts from the weights it has instead of new ones. It forgets the
        tasks and what was protected all the same.

    momentum : float in [0, 1], default=0.9
        Momentum of 'sgd'.

    nesterovs_momentum : bool, default=True
        Whether momentum is Nesterov's.

    early_stopping : bool, default=False
        Whether to hold out `validation_fraction` of each task's rows, stop when their
        accuracy no longer improves and keep the best weights. Works in `partial_fit`
        too. Not used by 'lbfgs'.

    validation_fraction : float in [0, 1), default=0.1
        Share of rows held out by `early_stopping`, stratified by class.

    beta_1, beta_2 : float in [0, 1), default=0.9 and 0.999
        Decay rates of the moments of 'adam'.

    epsilon : float, default=1e-8
        Term for numerical stability of 'adam'.

    n_iter_no_change : int, default=10
        Number of epochs without improvement after which training stops.

    max_fun : int, default=15000
        Maximum number of evaluations of J by 'lbfgs'.

    class_weight : dict or 'balanced', default=None
        Weights of classes, ``{label: weight}``, which multiply `sample_weight`; classes
        not named weigh 1. 'balanced' gives the classes in the rows of each call the same
        total weight: over all tasks in one `fit`, over each alone in a stream of
        `partial_fit`, so that the two differ.

    device : str, default='cpu'
        Where torch computes: 'cpu' or 'cuda'. The fitted state stays in numpy arrays.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        All class labels known, sorted.

    task_ids_ : list
        Ids of the tasks in the order first learned; None for calls without a `task_id`.

    task_classes_ : list of ndarray
        For each of `task_ids_`, the classes its rows had, sorted.

    coefs_ : list of ndarray of shape (n_units, n_units of the next layer)
        Coefficients of each layer.

    intercepts_ : list of ndarray of shape (n_units,)
        Intercepts of each layer.

    coef_importances_, intercept_importances_ : list of ndarray
        Importance of each weight for all tasks learned, the last one included, shaped
        like `coefs_` and `intercepts_`: Σ_k γ^(T-k)·ω_k·F_k for tasks 1 to T, before λ.
        With ``curvature='kronecker'`` it is the diagonal of the Kronecker product: the mean
        square of a weight's input times the sum of squares at its output, so that
        standardised features look all alike.
        It is what the next task's training is held by, but for the floor under silent
        units (see the user guide).

    loss_ : float
        J at the end of the latest training run, with the data term averaged over its
        last epoch. Its penalty has the floor under silent units (see the user guide),
        which `penalty_value` leaves out. A run learns one task in one call; the next six
        describe it too.

    best_loss_ : float or None
        The lowest of `loss_curve_`; None with `early_stopping`.

    loss_curve_ : list of float
        J after each epoch (or iteration of 'lbfgs').

    validation_scores_ : list of float or None
        Accuracy on the rows held out, after each epoch.

    best_validation_score_ : float or None
        The highest of `validation_scores_`, whose weights were kept.

    n_iter_ : int
        Number of epochs (or iterations).

    t_ : int
        Number of rows the solver has passed since it began with the latest task.

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features; only where `X` had names that are all strings.

    n_layers_, n_outputs_ : int
        Number of layers, input and output included; number of outputs, one per class.

    out_activation_ : str
        'softmax', for any number of classes.

    See Also
    --------
    sklearn.neural_network.MLPClassifier : The same network without protection.

    Notes
    -----
    A `task_id` where predicting makes a stream task-incremental; without it, the stream is
    domain-incremental if the tasks share their classes, else class-incremental [4]_. EWC
    alone fails in a class-incremental stream: the first prediction of an estimator that
    has neither a memory nor the discriminant warns of it.

    The Fisher information is that of single rows. Squaring the gradient of a batch's
    mean, a common mistake, underestimates it by about the batch size.

    A call that fails, or is interrupted, leaves the estimator as it was. It can be saved and
    loaded at any moment (see :ref:`saving`).

    With scikit-learn 1.9 or newer, ``set_callbacks`` takes its callbacks, which follow the
    tasks and epochs of `fit` and `partial_fit` (see the user guide).

    References
    ----------
    .. [1] Kirkpatrick et al. (2017). Overcoming catastrophic forgetting in neural
       networks. PNAS 114(13).
    .. [2] Huszár (2018). Note on the quadratic penalties in elastic weight
       consolidation. PNAS 115(11). :arxiv:`1712.03847`
    .. [3] Schwarz et al. (2018). Progress & Compress. ICML. :arxiv:`1805.06370`
    .. [4] van de Ven & Tolias (2019). Three scenarios for continual learning.
       :arxiv:`1904.07734`
    .. [5] van de Ven (2025). On the computation of the Fisher information in continual
       learning. :arxiv:`2502.11756`
    .. [6] Martens & Grosse (2015). Optimizing neural networks with Kronecker-factored
       approximate curvature. ICML. :arxiv:`1503.05671`. As a penalty: Ritter, Botev &
       Barber (2018). Online structured Laplace approximations for overcoming
       catastrophic forgetting. NeurIPS. :arxiv:`1805.07810`
    .. [7] Rebuffi et al. (2017). iCaRL: incremental classifier and representation
       learning. CVPR. :arxiv:`1611.07725`
    .. [8] Hayes & Kanan (2020). Lifelong machine learning with deep streaming linear
       discriminant analysis. CVPR Workshops. :arxiv:`1909.01520`
    .. [9] McDonnell et al. (2023). RanPAC: random projections and pre-trained models for
       continual learning. NeurIPS. :arxiv:`2307.02251`. The covariance is shrunk as by
       Chen et al. (2010). Shrinkage algorithms for MMSE covariance estimation. IEEE
       Transactions on Signal Processing 58(10).

    Examples
    --------
    Two tasks, each a permutation of the pixels of the same digits. Without protection
    the second drives out the first.

    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from skewc import EWCClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 16
    >>> permuted = X[:, np.random.RandomState(0).permutation(64)]
    >>> for ewc_lambda in (0, 10):
    ...     clf = EWCClassifier(ewc_lambda=ewc_lambda, max_iter=30, batch_size=32, random_state=0)
    ...     clf = clf.partial_fit(X, y, task_id="plain")
    ...     clf = clf.partial_fit(permuted, y, task_id="permuted")
    ...     print(f"plain {clf.score(X, y):.3f}, permuted {clf.score(permuted, y):.3f}")
    plain 0.5..., permuted 0.9...
    plain 0.9..., permuted 0.9...
    """

    __metadata_request__fit = {"task_id": True}
    __metadata_request__partial_fit = {"task_id": True}
    __metadata_request__predict = {"task_id": True}
    __metadata_request__predict_proba = {"task_id": True}
    __metadata_request__predict_log_proba = {"task_id": True}
    __metadata_request__decision_function = {"task_id": True}
    __metadata_request__score = {"task_id": True}

    _parameter_constraints: dict = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions({"identity", "logistic", "tanh", "relu"})],
        "ewc_lambda": [Interval(Real, 0, None, closed="left")],
        "penalty": [StrOptions({"running_sum", "per_task"})],
        "curvature": [StrOptions({"diagonal", "kronecker"})],
        "fisher": [StrOptions({"exact", "sample", "empirical"})],
        "fisher_samples": [Interval(Integral, 1, None, closed="left"), None],
        "fisher_smoothing": [Interval(Real, 0, 1, closed="both")],
        "fisher_scale": [StrOptions({"sum", "mean"})],
        "fisher_decay": [Interval(Real, 0, 1, closed="both")],
        "task_weights": [dict, None],
        "active_classes": [StrOptions({"task", "seen", "all"})],
        "memory_size": [Interval(Integral, 0, None, closed="left")],
        "memory_selection": [StrOptions({"random", "herding"})],
        "readout": [StrOptions({"softmax", "discriminant"})],
        "readout_features": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions({"lbfgs", "sgd", "adam"})],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions({"constant", "invscaling", "adaptive"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "power_t": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "momentum": [Interval(Real, 0, 1, closed="both")],
        "nesterovs_momentum": ["boolean"],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "beta_1": [Interval(Real, 0, 1, closed="left")],
        "beta_2": [Interval(Real, 0, 1, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "n_iter_no_change": [
            Interval(Integral, 1, None, closed="left"),
            Options(Real, {np.inf}),
        ],
        "max_fun": [Interval(Integral, 1, None, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "device": [str],
    }

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="relu",
        *,
        ewc_lambda=10.0,
        penalty="running_sum",
        curvature="diagonal",
        fisher="exact",
        fisher_samples=None,
        fisher_smoothing=0.1,
        fisher_scale="sum",
        fisher_decay=1.0,
        task_weights=None,
        active_classes="task",
        memory_size=0,
        memory_selection="herding",
        readout="softmax",
        readout_features=2000,
        solver="adam",
        alpha=1e-4,
        batch_size="auto",
        learning_rate="constant",
        learning_rate_init=1e-3,
        power_t=0.5,
        max_iter=200,
        shuffle=True,
        random_state=None,
        tol=1e-4,
        verbose=False,
        warm_start=False,
        momentum=0.9,
        nesterovs_momentum=True,
        early_stopping=False,
        validation_fraction=0.1,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-8,
        n_iter_no_change=10,
        max_fun=15000,
        class_weight=None,
        device="cpu",
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.ewc_lambda = ewc_lambda
        self.penalty = penalty
        self.curvature = curvature
        self.fisher = fisher
        self.fisher_samples = fisher_samples
        self.fisher_smoothing = fisher_smoothing
        self.fisher_scale = fisher_scale
        self.fisher_decay = fisher_decay
        self.task_weights = task_weights
        self.active_classes = active_classes
        self.memory_size = memory_size
        self.memory_selection = memory_selection
        self.readout = readout
        self.readout_features = readout_features
        self.solver = solver
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.power_t = power_t
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state
        self.tol = tol
        self.verbose = verbose
        self.warm_start = warm_start
        self.momentum = momentum
        self.nesterovs_momentum = nesterovs_momentum
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.n_iter_no_change = n_iter_no_change
        self.max_fun = max_fun
        self.class_weight = class_weight
        self.device = device

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self):
        return stamped(super().__getstate__())

    def __setstate__(self, state):
        super().__setstate__(unstamped(state))

    # Learning

    def fit(self, X, y, sample_weight=None, task_id=None):
        """Learn from scratch; the next `partial_fit` protects what was learned.

        All that was learned before is dropped; with `warm_start`, the weights stay.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows. float32 is computed in float32, all else in float64. Sparse
            rows are made dense one batch at a time.

        y : array-like of shape (n_samples,)
            Class labels, numbers or strings.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0 of the rows, in the loss and in the importance: a row of weight
            2 is two rows, one of weight 0 is none.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each. With several, each task's rows are learned
            in the sorted order of the ids (an ordered pandas Categorical keeps its own
            order), as if by `partial_fit`. So a search over a stream can call `fit`.

        Returns
        -------
        EWCClassifier
            The estimator itself, fitted.

        Raises
        ------
        ValueError
            If X, y, weights or ids are malformed, if no row has weight, or if training
            diverged. The estimator is then what it was before.

        See Also
        --------
        partial_fit : Learn one more task, or go on with one.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> clf.score(X, y) > 0.95
        True
        """
        return self._commit(X, y, task_id, sample_weight)

    def partial_fit(
        self, X, y, task_id=None, *, classes=None, sample_weight=None, consolidate=True
    ):
        """Learn one more task, or another chunk of the latest one, without forgetting.

        A `task_id` other than that of the latest task opens a new one: the latest is
        consolidated, which adds its importance to the penalty. The same id continues the
        task: the penalty leaves out the task's own rows, the solver's moments go on and
        importance adds up over the rows. Each call trains to convergence or for
        `max_iter` epochs; unlike `fit`, it does not warn when these run out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows, converted to the float type of the first call.

        y : array-like of shape (n_samples,)
            Class labels, of the kind (numbers or strings) of the first call.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each, as in `fit`. Without it, the call is a task
            of its own. An id learned before the latest opens a new task all the same: its
            importance is added once more, its classes are joined.

        classes : array-like of shape (n_classes,), default=None
            In the first call, all classes that may ever come; another label is then an
            error. Without it, new labels extend the output layer as they come, and
            leave old outputs as they are.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as in `fit`.

        consolidate : bool, default=True
            Whether these rows count into the task's importance, the memory and the
            statistics of `readout`. Pass False on all passes but the last when passing
            several times over a task in chunks. A task of which
            no row counts adds no importance and applies no `fisher_decay`; the running
            sum is centred on the weights after it all the same.

        Returns
        -------
        EWCClassifier
            The estimator itself, fitted.

        Raises
        ------
        ValueError
            As in `fit`, and for labels outside a declared `classes`.

        See Also
        --------
        fit : Learn from scratch.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0)
        >>> clf = clf.partial_fit(X, y, task_id="garden")
        >>> clf = clf.partial_fit(X + 1, y, task_id="meadow")
        >>> clf.task_ids_
        ['garden', 'meadow']
        """
        return self._commit(
            X, y, task_id, sample_weight, goes_on=True, classes=classes, consolidate=consolidate
        )

    # On this method and not on those above: it would not validate in the partial_fit of a
    # fitted estimator, though set_params may have erred since.
    @_fit_context(prefer_skip_nested_validation=True)
    def _commit(self, X, y, task_id, sample_weight, *, goes_on=False, **options):
        """Let a copy of the estimator learn, and become it only if all went well.

        One assignment makes the change, so another thread sees the old state or the new.
        """
        fitted = hasattr(self, "_stream")
        generator = self._generator if fitted and goes_on else _new_generator(self.random_state)
        draft = copy.copy(self)
        draft._generator = copy.deepcopy(generator)
        draft._learn(
            X, y, task_id, sample_weight,
            first=not (fitted and (goes_on or self.warm_start)), goes_on=goes_on, **options,
        )  # fmt: skip
        before, after = (g.get_state(legacy=False) for g in (generator, draft._generator))
        draft._generator = generator
        try:
            generator.set_state(after)
            self.__dict__ = draft.__dict__
        except BaseException:  # an interrupt between the two
            generator.set_state(before)
            raise
        return self

    # Callbacks see the copy that learns, and are torn down before it is committed.
    @with_callbacks
    def _learn(
        self, X, y, task_id, sample_weight, *, first, goes_on=False, classes=None, consolidate=True
    ):
        """Learn the tasks of one call, one after another."""
        check_device(self.device)
        check_labels_known(y)
        dtype = [np.float64, np.float32] if first else self._stream.weights.dtype
        X, y = validated(self, X, y=y, dtype=dtype, reset=first)
        check_targets(y)
        tasks = list(split_by_task(task_id, len(y)))
        weights = row_weights(sample_weight, self.class_weight, X, y)
        if first:
            self._start(check_labels(y), classes, X)
        else:
            self._admit(check_labels(y), classes, goes_on)
        codes = np.searchsorted(self.classes_, y)
        if weights is not None:
            tasks = [(name, rows[weights[rows] > 0]) for name, rows in tasks]
        tasks = [(name, rows) for name, rows in tasks if len(rows)]
        method = "partial_fit" if goes_on else "fit"
        report = Report.of_call(self, method, len(tasks), X, y, sample_weight)
        for name, rows in tasks:
            of_task = Rows(
                X if len(rows) == len(y) else X[rows],
                codes[rows],
                None if weights is None else weights[rows],
                device=self.device,
            )
            part = report.of_task(name, self.max_iter, rows)
            self._learn_task(name, of_task, codes[rows], consolidate, not goes_on, part)
            if part.end():
                break
        report.end()

    def _start(self, found, classes, X):
        """Begin a stream: set the classes and draw the weights."""
        declared = found if classes is None else check_classes(classes)
        merge_classes(declared, found)  # refuses labels of another kind
        check_closed(found, declared)
        hidden = check_hidden_layer_sizes(self.hidden_layer_sizes)
        network = Network((X.shape[1], *hidden, len(declared)), self.activation)
        weights = network.initialise(self._generator, X.dtype)
        self._stream = Stream.begin(
            declared, classes is not None, network, weights, self.curvature,
            self._readout(network, X.dtype),
        )  # fmt: skip

    def _readout(self, network, dtype):
        """Return what tells classes apart beside the network, or None."""
        if self.readout == "softmax":
            return None
        n_inputs, n_classes = network.sizes[0], network.sizes[-1]
        return Discriminant.begin(
            n_inputs, self.readout_features, n_classes, self._generator, dtype
        )

    def _admit(self, found, classes, goes_on):
        """Check the labels of a later call; let the output layer grow for new ones."""
        stream = self._stream
        hidden = check_hidden_layer_sizes(self.hidden_layer_sizes)
        begun = {"hidden_layer_sizes": stream.network.sizes[1:-1]}
        begun["activation"] = stream.network.activation
        now = {"hidden_layer_sizes": hidden, "activation": self.activation}
        if goes_on:  # a new start drops all importance and statistics
            begun |= {"curvature": stream.curvature, **stream.readout_parameters}
            now |= {name: getattr(self, name) for name in begun if name not in now}
        if now != begun:
            raise ValueError(
                f"{', '.join(begun)} cannot change while learning goes on: they were {begun} "
                f"and are now {now}."
            )
        if not goes_on:
            if not np.array_equal(found, stream.classes):
                raise ValueError(
                    "warm_start can only be used where `y` has the same classes as in the "
                    f"previous call to fit. Previously got {stream.classes}, `y` has {found}"
                )
            stream = Stream.begin(
                stream.classes, False, stream.network, stream.weights, self.curvature,
                self._readout(stream.network, stream.weights.dtype),
            )  # fmt: skip
        if classes is not None and not np.array_equal(check_classes(classes), stream.classes):
            raise ValueError(
                f"`classes={classes!r}` is not the same as on last call to partial_fit, was: "
                f"{stream.classes!r}. Declare all classes in the first call, or none at all: "
                "then new labels extend the output layer as they come."
            )
        if stream.closed:
            check_closed(found, stream.classes)
        merged = merge_classes(stream.classes, found)
        if len(merged) > len(stream.classes):
            stream = stream.grow(merged, self._generator)
        self._stream = stream

    def _learn_task(self, task_id, rows, codes, consolidate, warn, report):
        """Learn rows of one task, and say how it went."""
        history = History(t_=self.t_ if self._stream.is_open(task_id) else 0)
        self._stream = learn_task(
            self, self._stream.open(task_id, consolidation(self)).meet(codes), history, rows, codes,
            rng=self._generator, consolidate=consolidate, warn=warn, report=report,
        )  # fmt: skip
        vars(self).update(vars(history))

    # What was learned

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_stream")

    classes_ = _learned(lambda stream: stream.classes)
    task_ids_ = _learned(lambda stream: [*stream.task_ids])
    task_classes_ = _learned(lambda stream: [*stream.task_classes])
    coefs_ = _learned(lambda stream: stream.network.split(stream.weights)[0])
    intercepts_ = _learned(lambda stream: stream.network.split(stream.weights)[1])
    n_layers_ = _learned(lambda stream: len(stream.network.sizes))
    n_outputs_ = _learned(lambda stream: len(stream.classes))
    out_activation_ = _learned(lambda stream: "softmax")

    @property
    def coef_importances_(self):
        return self._importances()[0]

    @property
    def intercept_importances_(self):
        return self._importances()[1]

    def _importances(self):
        check_is_fitted(self)
        stream = self._stream
        return stream.network.split(stream.importances(consolidation(self)).numpy())

    def penalty_value(self):
        """Compute (λ/2)·Ω at the present weights.

        It is what the quadratics say that the earlier tasks have lost, times λ.

        Returns
        -------
        float
            In nats, summed over rows (with ``fisher_scale='mean'``, per row). 0 after
            the first task.

        Raises
        ------
        NotFittedError
            If nothing has been learned yet.

        See Also
        --------
        skewc.metrics.RestoringForceDisplay : The force of the same penalty on single weights.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> clf.penalty_value()
        0.0
        >>> clf.partial_fit(-X, y).penalty_value() > 0
        True
        """
        check_is_fitted(self)
        stream = self._stream
        weights = torch.tensor(stream.weights, device="cpu")
        network, penalty = stream.protection().diagonal_in(stream.network)
        return self.ewc_lambda * float(penalty.value(network.coordinates(weights)))

    def to_torch(self):
        """Copy the fitted network to torch.

        It takes the weights and activations along, and nothing else: no penalty, memory or
        discriminant, and no task.

        Returns
        -------
        torch.nn.Sequential
            Takes a tensor (n, n_features) of the dtype of `coefs_` and returns logits
            (n, n_classes) for `classes_`, classes never seen included.

        Raises
        ------
        NotFittedError
            If nothing has been learned yet.

        See Also
        --------
        decision_function : The same logits without torch.

        Examples
        --------
        >>> import torch
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> logits = clf.to_torch()(torch.from_numpy(X[:2]))
        >>> logits.argmax(dim=1)
        tensor([0, 0])
        """
        check_is_fitted(self)
        modules, stream = [], self._stream
        network = stream.network
        weights = network.split(torch.tensor(stream.weights, device="cpu"))
        for coef, intercept in zip(*weights, strict=True):
            linear = torch.nn.utils.skip_init(torch.nn.Linear, *coef.shape, dtype=coef.dtype)
            with torch.no_grad():
                linear.weight.copy_(coef.T)
                linear.bias.copy_(intercept)
            modules += [linear, ACTIVATION_MODULES[network.activation]()]
        return torch.nn.Sequential(*modules[:-1])

    # Prediction

    def _logits(self, X, task_id):
        """Logits (n, K), -inf for classes never seen or not of the row's task, and `classes_`."""
        check_is_fitted(self)
        now = object.__new__(type(self))  # since another thread may commit meanwhile
        vars(now).update(vars(self))
        stream, device = now._stream, check_device(now.device)
        dtype = stream.weights.dtype
        X = validated(now, X, dtype=dtype, reset=False)
        rows = Rows(X, device=device)
        if stream.readout is not None and task_id is None:
            widest, logits_of = len(stream.readout.scatter), stream.readout.scores
        else:
            if task_id is None and stream.is_confusing:
                self._warn_confusing()
            network = stream.network
            layers = network.split(to_tensor(stream.weights, device))
            widest, logits_of = max(network.sizes), partial(network.logits, *layers)

        logits = torch.cat([logits_of(rows.inputs(index)) for index in rows.chunks(widest)])
        allowed = np.empty((rows.n, len(stream.classes)), dtype=bool)
        for name, of_task in split_by_task(task_id, rows.n):
            allowed[of_task] = stream.allowed(name)
        mask = class_mask(allowed, like=logits)
        logits = logits if mask is None else logits + mask
        largest = logits.amax(dim=1)
        if bool((largest - largest).any()):  # infinite or NaN
            raise ValueError(
                f"The outputs for X overflow {dtype}: X holds numbers far larger than those "
                "learned. Scale the inputs (StandardScaler)."
            )
        return logits, stream.classes

    def _warn_confusing(self):
        if self not in _warned:
            _warned.add(self)
            warnings.warn(CONFUSING, UserWarning, stacklevel=4)

    def decision_function(self, X, task_id=None):
        """Compute the logits of the classes.

        Where a task is given, classes of other tasks are out of the question.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to predict.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each, where it is known (task-incremental): the
            classes are then those of the task only.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes the logit of ``classes_[1]`` minus that of ``classes_[0]``,
            else a column for each class; -inf for classes never seen, or not of the task.
            With ``readout='discriminant'`` and no `task_id`, the logarithms of the
            posteriors but for a constant of each row.

        Raises
        ------
        ValueError
            If a `task_id` was never learned, or X is malformed or so large that the
            outputs overflow.

        See Also
        --------
        predict_proba : Their softmax.
        to_torch : The network that computes them.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> clf.decision_function(X[:2]).shape
        (2, 3)
        """
        logits = self._logits(X, task_id)[0]
        return (logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits).cpu().numpy()

    def predict_proba(self, X, task_id=None):
        """Compute the probabilities of the classes.

        They are the softmax of the logits, over the classes of the task where one is given.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to predict.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each, where it is known (task-incremental): the
            classes are then those of the task only.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; 0 for classes never seen, or not of the
            task.

        Raises
        ------
        ValueError
            If a `task_id` was never learned, or X is malformed or so large that the
            outputs overflow.

        See Also
        --------
        predict : The likeliest class.
        predict_log_proba : Their logarithms.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> clf.predict_proba(X[:1]).round(2)
        array([[1., 0., 0.]])
        """
        return softmax(self._logits(X, task_id)[0]).contiguous().cpu().numpy()

    def predict_log_proba(self, X, task_id=None):
        """Compute the logarithms of the probabilities of the classes.

        They stay exact where probabilities are too small to tell apart.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to predict.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each, where it is known (task-incremental): the
            classes are then those of the task only.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            As `predict_proba`; -inf where the probability is 0.

        Raises
        ------
        ValueError
            If a `task_id` was never learned, or X is malformed or so large that the
            outputs overflow.

        See Also
        --------
        predict_proba : The probabilities themselves.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> clf.predict_log_proba(X[:2]).argmax(axis=1)
        array([0, 0])
        """
        logits, _ = self._logits(X, task_id)
        log_p = log_softmax(logits).contiguous()
        # Kept for probabilities that underflow, the logarithm would contradict them.
        return log_p.masked_fill_(softmax(logits) == 0, -torch.inf).cpu().numpy()

    def predict(self, X, task_id=None):
        """Predict the likeliest class of each row.

        Without a `task_id` it is any of the classes seen so far.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to predict.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each, where it is known (task-incremental): the
            classes are then those of the task only.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.

        Raises
        ------
        ValueError
            If a `task_id` was never learned, or X is malformed or so large that the
            outputs overflow.

        See Also
        --------
        predict_proba : The probabilities of all classes.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> clf.predict(X[:2])
        array([0, 0])
        """
        logits, classes = self._logits(X, task_id)
        return classes[logits.argmax(dim=1).cpu().numpy()]

    def score(self, X, y, sample_weight=None, task_id=None):
        """Compute the accuracy of the predicted classes.

        Where a task is given, `predict` is told it too.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Test rows.

        y : array-like of shape (n_samples,)
            True labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of the rows where it is known, as in `predict`.

        Returns
        -------
        float
            Weighted share of rows predicted right, in [0, 1].

        Raises
        ------
        ValueError
            If a `task_id` was never learned, X is malformed, or the arguments differ in length.

        See Also
        --------
        skewc.metrics.average_task_accuracy : The mean of the tasks' accuracies.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> clf.score(X, y) > 0.95
        True
        """
        return accuracy_score(y, self.predict(X, task_id=task_id), sample_weight=sample_weight)


def _new_generator(random_state):
    """Seed a stream; None asks the operating system, not numpy's global generator."""
    if isinstance(random_state, np.random.RandomState):
        return random_state
    return np.random.RandomState(random_state)
