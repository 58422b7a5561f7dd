"""Named parts of a step."""

from __future__ import annotations

import functools

from . import _native

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

    class _Opened(Protocol):
        def __enter__(self) -> Any: ...
        def __exit__(self, *exception: Any) -> Any: ...

    class Steps(Protocol):
        """A profile whose steps are the executions of a range."""

        name: str
        def begin(self) -> bool: ...  # False: this execution is not a step
        def end(self) -> None: ...


_steps: Steps | None = None
# Opens ranges if torch.profiler records; None: the core opens them.
_elsewhere: Callable[[str], _Opened] | None = None


class range:  # noqa: A001 - stepscope.range
    """`with stepscope.range("augment"): ...`, or `@stepscope.range("augment")` above a function.

    Costs about 0.1 us while nothing is recorded. Use `kind` "phase" for the names data, forward, backward, optimizer and
    validate, for which reports have a column. A range must end on the thread that started it.
    """

    __slots__ = ("_kind", "_name", "_number", "_other", "_step")

    def __init__(self, name: str, kind: str = "user") -> None:
        if kind not in _native.RANGE_KINDS:
            raise ValueError(f"a range is of kind {', '.join(_native.RANGE_KINDS)}, not {kind!r}")
        self._name = str(name)
        self._kind = _native.RANGE_KINDS[kind]
        self._number = 0
        self._other: _Opened | None = None
        self._step: Steps | None = None

    def __enter__(self) -> range:
        steps = _steps
        if steps is not None and steps.name == self._name and steps.begin():
            self._step = steps
        core = _native._core  # if it is not loaded, nothing records
        if core is not None and core.window.value:
            self._number = core.range_open(self._kind, self._name.encode("utf-8", "replace"))
        elif _elsewhere is not None:
            self._other = _elsewhere(self._name)
            self._other.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._number:
            core = _native._core
            if core is not None:
                core.range_close(self._number)
            self._number = 0
        elif self._other is not None:
            other, self._other = self._other, None
            other.__exit__(*exception)
        if self._step is not None:
            step, self._step = self._step, None
            step.end()

    def __call__(self, function: _Function) -> _Function:
        kind = next(name for name, number in _native.RANGE_KINDS.items() if number == self._kind)

        @functools.wraps(function)
        def named(*arguments: Any, **keywords: Any) -> Any:
            with range(self._name, kind):
                return function(*arguments, **keywords)

        return named  # type: ignore[return-value]
