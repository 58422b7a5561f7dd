"""Every Python started by `stepscope run` loads this before its script. It arms the recorder in processes that train.

Nothing is imported or recorded until a process imports torch.optim or torch.utils.data.dataloader. Another sitecustomize
further down the path is loaded as well.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Watch:
    """A finder that calls `_arm` when one of the watched modules has been loaded."""

    installers = {"torch.optim.optimizer": "install_optimizer", "torch.utils.data.dataloader": "install_loader"}

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        installer = self.installers.get(name)
        if installer is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            if module.__name__ == name:  # a loader may serve several modules
                _arm(installer, module)

        loader.exec_module = exec_module
        return spec


def _arm(installer: str, module: ModuleType) -> None:
    try:
        getattr(_arm_module(), installer)(module)
    except Exception as error:  # a training that cannot be recorded continues
        try:
            sys.stderr.write(f"stepscope: this program is not recorded: {type(error).__name__}: {error}\n")
        except Exception:  # stderr may be closed
            pass


def _arm_module() -> ModuleType:
    """Returns stepscope._arm of this file's own package, which may not be on this Python's path."""
    import importlib
    import importlib.util
    folder = os.path.dirname(_HERE)
    if "stepscope" not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location("stepscope", os.path.join(folder, "__init__.py"),
                                                           submodule_search_locations=[folder])
        package = importlib.util.module_from_spec(spec)
        sys.modules["stepscope"] = package
        spec.loader.exec_module(package)
    return importlib.import_module("stepscope._arm")


def _load_next() -> None:
    """Loads the sitecustomize that this one hides."""
    from importlib.machinery import PathFinder
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        import types
        module = types.ModuleType("sitecustomize")
        module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
if "STEPSCOPE_RUN" in os.environ:
    sys.meta_path.insert(0, _Watch())
_load_next()
