"""Trained models for other programs: safetensors, torch.export, ONNX."""
