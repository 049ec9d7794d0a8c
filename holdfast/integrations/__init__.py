"""Curators inside other training loops, trackers that listen to `holdfast.training.fit`, and models that are handed on.

Each framework has a module of its own, which is imported by name so that nobody pays for a package they don't use:

- `holdfast.integrations.dataloader`: any loop that takes a DataLoader.
- `holdfast.integrations.lightning`, `.hf_trainer`, `.accelerate`: Lightning, transformers' Trainer, Accelerate.
- `holdfast.integrations.trackers.tracker`: TensorBoard and MLflow.
- `holdfast.integrations.export.exporting`: a trained model as safetensors, a torch.export program or ONNX.
"""
