"""What the callbacks of training frameworks share: one profile per training."""

from __future__ import annotations

import weakref
from typing import Any

from . import profile

_started: weakref.WeakSet[profile] = weakref.WeakSet()


class ProfiledTraining:
    """Holds the profile of a callback's current or last training, made with the arguments of stepscope.profile."""

    def __init__(self, **options: Any) -> None:
        profile(**options)  # wrong arguments must raise here, and not when training begins
        self._options = options
        self._profile: profile | None = None

    @property
    def report(self) -> Any:
        return self._profile.report if self._profile is not None and self._profile._texts else None

    def _start(self) -> None:
        # A framework may not tell callbacks that a training was interrupted, and then the profile of that training is still
        # open, perhaps that of another callback. Where it is not, stop() does nothing.
        for earlier in list(_started):
            earlier.stop()
        self._profile = profile(**self._options)
        _started.add(self._profile)
        self._profile.start()

    def _stop(self) -> None:
        if self._profile is not None:
            self._profile.stop()
