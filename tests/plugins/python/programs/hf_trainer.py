"""Trains with Hugging Face's Trainer, accumulating gradients over two batches: hf_trainer.py [callback LOG_DIR]"""
import sys
import tempfile

import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        return {"x": torch.full((8,), float(index))}


callbacks = []
if sys.argv[1:2] == ["callback"]:
    from stepscope import schedule
    from stepscope.transformers import StepscopeCallback
    callbacks.append(StepscopeCallback(log_dir=sys.argv[2], print_report=False, schedule=schedule(wait=7, warmup=3, active=4)))
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder, per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=1, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no", logging_strategy="no", remove_unused_columns=False)
    trainer = transformers.Trainer(Model(), arguments, train_dataset=Rows(), callbacks=callbacks)
    trainer.train()
print("done", trainer.state.global_step)
