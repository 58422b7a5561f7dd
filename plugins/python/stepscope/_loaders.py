"""The loaders of the program: what torch.utils.data.DataLoader was told, for the Trace.

`_BaseDataLoaderIter.__init__` runs once per epoch and loader; it is wrapped, and the wrapper keeps a weak reference to the
iterator. Waits for batches come from torch itself, as ranges.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from . import _native
from ._abi import Core

_watched: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()


class _Loader:
    """An iterator of a loader, and how many batches it had given when it was looked at last."""

    __slots__ = ("facts", "given", "handle")

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.given = 0
        self.handle = 0

    def __del__(self) -> None:
        if self.handle and _native is not None and _native._core is not None:  # modules are None when the interpreter goes
            _native._core.loader_remove(self.handle)


def watch() -> None:
    """Begins to notice loaders, where torch's are in use. May be called again."""
    module = sys.modules.get("torch.utils.data.dataloader")
    base = getattr(module, "_BaseDataLoaderIter", None)
    if base is None or getattr(base.__init__, "_stepscope", False):
        return
    original = base.__init__

    def __init__(self: Any, loader: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, loader, *arguments, **keywords)
        try:
            _watched[self] = _Loader(_facts(loader))
        except Exception:  # a loader of the program's own kind; its training must go on
            pass

    __init__.__wrapped__ = original  # type: ignore[attr-defined]
    __init__._stepscope = True  # type: ignore[attr-defined]
    base.__init__ = __init__


def _facts(loader: Any) -> dict[str, Any]:
    workers = int(getattr(loader, "num_workers", -1))
    batch_size = getattr(loader, "batch_size", None)
    if batch_size is None:  # of a batch sampler
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
    """A window opens: what was given until now is no wait of it."""
    for iterator, loader in list(_watched.items()):
        loader.given = getattr(iterator, "_num_yielded", 0)


def mark_waits(core: Core) -> None:
    """A step of a window has ended: tells the core which loaders gave a batch in it. Raises nothing."""
    try:
        for iterator, loader in list(_watched.items()):
            given = getattr(iterator, "_num_yielded", 0)
            if given == loader.given:
                continue
            loader.given = given
            if not loader.handle:
                loader.handle = core.loader_add(loader.facts)
            core.loader_wait(loader.handle)
    except Exception:  # facts about loaders are worth no training
        pass
