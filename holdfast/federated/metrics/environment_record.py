"""What a federation writes down where clients are tested in a second environment, and of methods with checkpoints."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.metrics.disparity import EnvironmentReport, environment_report, gradient_ratios, instability
from holdfast.federated.personalization.adversarial import craft
from holdfast.federated.personalization.early_stopping import RECORDED, EarlyStoppedFineTuning
from holdfast.federated.result import SHARED

#: Bins of ``ln r``, the change of a gradient's length.
BINS, REACH = 25, 6.0
_SHOWN = 10
_SIDE = 64


def environments_of(runtime: ClientRuntime, shared: Tensor, labels: list[str]) -> dict[str, dict[str, float]]:
    """Accuracy at home and elsewhere of every model, by label; empty where there is no second environment."""
    if runtime.clients.elsewhere is None:
        return {}
    reports = {label: environment_report(runtime, shared, None if label == SHARED else label) for label in labels}
    return {label: _numbers(report) for label, report in reports.items()}


def adaptation_of(runtime: ClientRuntime, shared: Tensor) -> dict[str, dict[str, Any]]:
    """How methods with checkpoints went, by label.

    ``curves`` has for each of `RECORDED` its mean over clients at each checkpoint, ``ratios`` how many test examples
    have which ``ln r``, in bins from -6 to 6, and ``instability`` the median of its absolute value.
    """
    records = {}
    for label, method in runtime.post_hoc.items():
        if isinstance(method, EarlyStoppedFineTuning):
            means = method.record(runtime.stores[label], runtime.training).double().nanmean(0)
            ratios = gradient_ratios(runtime, shared, label)
            logarithms = ratios.clamp(min=1e-12).log().clamp(-REACH, REACH).float()
            records[label] = {
                "epsilon": method.attack.epsilon,
                "curves": {name: _finite(means[:, place]) for place, name in enumerate(RECORDED)},
                "ratios": torch.histc(logarithms, BINS, -REACH, REACH).long().tolist(),
                "instability": instability(ratios),
            }
    return records


def adversarial_picture(runtime: ClientRuntime, shared: Tensor) -> bytes | None:
    """Test images of the first client above their adversarial versions, as a PNG file; None where there are none."""
    attack = next(
        (method.attack for method in runtime.post_hoc.values() if isinstance(method, EarlyStoppedFineTuning)), None
    )
    shape = runtime.clients.input_shape
    if attack is None or len(shape) != 3 or shape[0] not in (1, 3):
        return None
    crafted = craft(runtime.network, shared, runtime.clients.test, torch.tensor([0]), attack)
    fooled = ~runtime.network.correct(crafted.logits, crafted.labels)
    places = torch.argsort(fooled.long(), descending=True, stable=True)[:_SHOWN]
    rows = [torch.cat(list(images[places].clamp(0, 1)), dim=2) for images in (crafted.clean, crafted.inputs)]
    pixels = (255 * torch.cat(rows, dim=1)).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels if shape[0] == 3 else pixels[:, :, 0])
    times = max(_SIDE // shape[2], 1)
    stream = io.BytesIO()
    image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST).save(stream, "PNG")
    return stream.getvalue()


def _numbers(report: EnvironmentReport) -> dict[str, float]:
    names = ("accuracy", "elsewhere", "disparity", "worst", "average", "loss", "loss_elsewhere", "client_gap")
    return {name: float(getattr(report, name)) for name in names}


def _finite(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in np.asarray(values).tolist()]
