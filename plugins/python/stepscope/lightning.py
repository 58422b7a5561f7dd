"""Lightning: Trainer(callbacks=[StepscopeCallback(log_dir="runs/x")])"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    from pytorch_lightning import Callback, LightningModule, Trainer  # type: ignore[assignment]

from ._training import ProfiledTraining


class StepscopeCallback(ProfiledTraining, Callback):
    """Records steps of fit(): a step ends with the batch after which an optimizer stepped.

    Takes the arguments of stepscope.profile. `report` is the report on the last recorded window; None before the first one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._steps = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._steps = trainer.global_step
        self._start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        # Gradients may be accumulated over batches, and two optimizers count double.
        if self._profile is not None and trainer.global_step > self._steps:
            self._steps = trainer.global_step
            self._profile.step()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()
