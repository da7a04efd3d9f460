"""The callbacks of scikit-learn 1.9, as `set_callbacks` of a model or of a search around it takes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

from dlatent.engine.session import PassRecord
from dlatent.models.callbacks import Callback

if TYPE_CHECKING:
    with_callbacks: Any

    class CallbackSupportMixin:
        """That of scikit-learn."""

        def set_callbacks(self, *callbacks: Any) -> Self:
            """Set the callbacks of the next fits."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:  # before scikit-learn 1.9

        class CallbackSupportMixin:
            """Nothing, so that there is no `set_callbacks`."""


class ScikitPasses(Callback):
    """Tells the callbacks of scikit-learn of each pass, as of a task within that of the fit."""

    shows_progress = True

    def __init__(self, model: Any, context: Any) -> None:
        super().__init__()
        self._model, self._context = model, context

    def on_pass(self, record: PassRecord) -> None:
        """Tell of a task that has begun and ended."""
        task = self._context.subcontext(task_name=record.name)
        task.call_on_fit_task_begin(estimator=self._model)
        task.call_on_fit_task_end(estimator=self._model)


def with_scikit_callbacks(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A method `fit` that tells the callbacks of scikit-learn, the model's own or those of a search around it.

    How many passes there will be nobody knows before, and what a callback says of stopping is not heard.
    """
    parameters = signature(fit)

    def told(self: Any, *given: Any, **options: Any) -> Any:
        arguments = parameters.bind(self, *given, **options).arguments
        data = {"X": list(arguments.values())[1], "y": arguments.get("y")}
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, **data)
        with ScikitPasses(self, context):
            fit(self, *given, **options)
        context.call_on_fit_task_end(estimator=self, reconstruction_attributes={}, **data)
        return self

    @wraps(fit)
    def method(self: Any, *given: Any, **options: Any) -> Any:
        heard = {"_skl_callbacks", "_parent_callback_ctx"} & vars(self).keys()
        return (with_callbacks(told) if heard else fit)(self, *given, **options)

    return method
