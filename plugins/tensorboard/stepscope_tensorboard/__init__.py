"""TensorBoard's tab "Advice": shows stepscope's reports on the runs in the log directory.

TensorBoard finds it through the entry point tensorboard_plugins of the package stepscope.
"""
