"""Hugging Face: Trainer(..., callbacks=[StepscopeCallback(log_dir="runs/x")])"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ._training import ProfiledTraining


class StepscopeCallback(ProfiledTraining, TrainerCallback):
    """Records steps of train(). A step is one step of the Trainer, with all batches over which it accumulates gradients.

    Takes the arguments of stepscope.profile. `report` is the report on the last recorded window; None before the first one.
    """

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._profile is not None:
            self._profile.step()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._stop()
