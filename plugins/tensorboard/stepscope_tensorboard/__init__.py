"""TensorBoard's tab "Advice": the reports of stepscope for the runs of the log directory.

TensorBoard finds it by the entry point tensorboard_plugins of the package stepscope.
"""
