"""The program's loaders: adds the arguments of torch.utils.data.DataLoader to the Trace.

`_BaseDataLoaderIter.__init__` runs once per epoch and loader. It is wrapped, and the wrapper keeps a weak reference to the
iterator. torch itself marks the waits for batches as ranges.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from . import _native
from ._abi import Core

_watched: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()


class _Loader:
    """A loader's iterator, and the number of batches that it had delivered at the last check."""

    __slots__ = ("facts", "given", "handle")

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.given = 0
        self.handle = 0

    def __del__(self) -> None:
        if self.handle and _native is not None and _native._core is not None:  # at interpreter exit, modules may be None
            _native._core.loader_remove(self.handle)


def watch() -> None:
    """Starts to watch loaders if the program uses torch's loaders. May be called again."""
    module = sys.modules.get("torch.utils.data.dataloader")
    base = getattr(module, "_BaseDataLoaderIter", None)
    if base is None or getattr(base.__init__, "_stepscope", False):
        return
    original = base.__init__

    def __init__(self: Any, loader: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, loader, *arguments, **keywords)
        try:
            _watched[self] = _Loader(_facts(loader))
        except Exception:  # an unusual loader class; its training must continue
            pass

    __init__.__wrapped__ = original  # type: ignore[attr-defined]
    __init__._stepscope = True  # type: ignore[attr-defined]
    base.__init__ = __init__


def _facts(loader: Any) -> dict[str, Any]:
    workers = int(getattr(loader, "num_workers", -1))
    batch_size = getattr(loader, "batch_size", None)
    if batch_size is None:  # there is a batch sampler
        batch_size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return {
        "name": type(loader.dataset).__name__,
        "kind": "processes" if workers > 0 else "in-process",
        "workers": workers,
        "batch_size": batch_size if isinstance(batch_size, int) else -1,
        "pin_memory": int(bool(getattr(loader, "pin_memory", False))),
        "persistent_workers": int(bool(getattr(loader, "persistent_workers", False))),
        "prefetch_factor": int(getattr(loader, "prefetch_factor", None) or -1),  # None without workers
    }


def begin(core: Core) -> None:
    """Called when a window opens: batches delivered earlier do not count for it."""
    for iterator, loader in list(_watched.items()):
        loader.given = getattr(iterator, "_num_yielded", 0)


def mark_waits(core: Core) -> None:
    """Called when a step of a window has ended: tells the core which loaders delivered a batch in it. Raises nothing."""
    try:
        for iterator, loader in list(_watched.items()):
            given = getattr(iterator, "_num_yielded", 0)
            if given == loader.given:
                continue
            loader.given = given
            if not loader.handle:
                loader.handle = core.loader_add(loader.facts)
            core.loader_wait(loader.handle)
    except Exception:  # never disturb training for these facts
        pass
