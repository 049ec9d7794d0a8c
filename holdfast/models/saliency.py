"""GradCAM: which places of an image speak for a class, for any model with convolutions.

Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization" (ICCV 2017,
https://arxiv.org/abs/1610.02391), equations 1 and 2: the channels of the last feature maps are weighed by the mean
gradient of the class's logit, summed and rectified. SPARE's figures use it to show what a cluster of examples has in
common. Look at several examples before you conclude anything: one map says little, and a shortcut that is no place,
such as a colour, doesn't show in any. The maps come from captum, the extra `gradcam`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError, DataError, MissingDependencyError
from holdfast.models.heads import logits_of
from holdfast.models.modes import evaluation_mode

_CHUNK = 32


def heat_maps(model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None) -> Tensor:
    """Where the model sees evidence for a class, as large as the inputs.

    The model is run in evaluation mode and is left as it was, gradients included.

    Args:
        model: any model with 2-d convolutions that returns logits.
        inputs: images as the model takes them, float of shape (n, channels, height, width).
        targets: the class to explain, per image, int64 of shape (n,).
        layer: name of the part whose output is explained; by default the one `last_feature_maps` finds.

    Returns:
        float32 of shape (n, height, width) on the CPU, from 0 to 1: each map is scaled by its largest value. A map is 0
        everywhere where nothing speaks for the class.

    Raises:
        MissingDependencyError: if captum is not installed.
        ConfigError: if the model has no convolution, or no part called `layer`.
        DataError: if the shapes don't fit.
    """
    try:
        from captum.attr import LayerAttribution, LayerGradCam  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("GradCAM needs captum; pip install 'holdfast[gradcam]'") from error
    if inputs.ndim != 4 or targets.shape != inputs.shape[:1] or len(inputs) == 0:
        raise DataError(
            f"inputs have shape {tuple(inputs.shape)} and targets {tuple(targets.shape)}; "
            "give (n, channels, height, width) and (n,), and at least one image"
        )
    device = next((parameter.device for parameter in model.parameters()), inputs.device)
    size, maps = (inputs.shape[2], inputs.shape[3]), []
    with evaluation_mode(model), torch.enable_grad():
        name = last_feature_maps(model, inputs[:1].to(device)) if layer is None else layer
        method = LayerGradCam(lambda batch: logits_of(model(batch)), _part(model, name))
        for images, classes in zip(torch.split(inputs, _CHUNK), torch.split(targets, _CHUNK), strict=True):
            batch = images.detach().to(device).requires_grad_()
            evidence = method.attribute(batch, classes.to(device), relu_attributions=True).detach()
            maps.append(LayerAttribution.interpolate(evidence, size, "bilinear")[:, 0].to("cpu", torch.float32))
    heat = torch.cat(maps)
    return heat / heat.amax((1, 2), keepdim=True).clamp_min(torch.finfo(heat.dtype).tiny)


def last_feature_maps(model: nn.Module, inputs: Tensor) -> str:
    """The part of the model that gives the last feature maps.

    It is the convolution that runs last, or the largest part around it whose output still has places: the last stage of
    a residual network, whose sum and rectification belong to what the head sees.

    Args:
        model: any model.
        inputs: a batch as the model takes it, to see in which order its parts run.

    Returns:
        The part's name in ``model.named_modules()``.

    Raises:
        ConfigError: if no 2-d convolution runs.
    """
    last, with_maps = "", set[str]()

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def see(_: nn.Module, __: object, output: object) -> None:
            nonlocal last
            if isinstance(output, Tensor) and output.ndim == 4:
                last = name if isinstance(module, nn.Conv2d) else last
                with_maps.update([name] if output[0, 0].numel() > 1 else [])

        return module.register_forward_hook(see)

    hooks = [watch(name, module) for name, module in model.named_modules() if name]
    try:
        with evaluation_mode(model), torch.no_grad():
            model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not last:
        raise ConfigError(f"{type(model).__name__} has no 2-d convolution, so GradCAM has no feature maps to show")
    around = last
    while (parent := around.rpartition(".")[0]) in with_maps:
        around = parent
    return around


def _part(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise ConfigError(
            f"{type(model).__name__} has no part named {name!r}; take a name from model.named_modules()"
        ) from error
