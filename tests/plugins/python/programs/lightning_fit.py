"""Trains with Lightning's Trainer, accumulating gradients over two batches: lightning_fit.py [callback LOG_DIR]"""
import logging
import sys
import warnings

import lightning
import torch

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


callbacks = []
if sys.argv[1:2] == ["callback"]:
    from stepscope import schedule
    from stepscope.lightning import StepscopeCallback
    callbacks.append(StepscopeCallback(log_dir=sys.argv[2], print_report=False, schedule=schedule(wait=7, warmup=3, active=4)))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 8)), batch_size=4)
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False, accumulate_grad_batches=2, callbacks=callbacks)
trainer.fit(Model(), loader)
print("done", trainer.global_step)
