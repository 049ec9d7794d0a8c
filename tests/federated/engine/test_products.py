"""Products for many clients: both kernels give torch's own, and which one runs does not hang on the company."""

import pytest
import torch

from holdfast.federated.engine import products
from holdfast.federated.engine.products import times_transposed
from holdfast.federated.engine.stacked_kernels import Convolution, StackedProduct

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@pytest.fixture(params=[False, True], ids=["mkl", "one-dnn"])
def kernel(request, monkeypatch):
    monkeypatch.setattr(products, "_one_dnn_is_faster", lambda: request.param)
    monkeypatch.setattr(products, "_LARGE", 500)
    return request.param


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype)


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shift", [None, (1, 30), (20, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_torch(kernel, clients, turned, shift, dtype):
    left, right = random(clients, 20, 11, dtype=dtype), random(clients, 30, 11, dtype=dtype)
    if turned:
        left, right = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (left, right))
    moved = None if shift is None else random(clients, *shift, dtype=dtype)
    expected = left.double() @ right.double().transpose(1, 2) + (0 if moved is None else moved)
    found = times_transposed(left, right, moved)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-12)
    assert found.dtype == dtype and found.is_contiguous()


def test_a_client_gets_the_same_bits_alone_and_in_company(kernel):
    left, right = random(5, 40, 64), random(5, 48, 64)
    together = times_transposed(left, right)
    alone = torch.cat([times_transposed(left[k : k + 1], right[k : k + 1]) for k in range(5)])
    assert torch.equal(together, alone)


def test_small_products_and_other_dtypes_stay_with_torch(monkeypatch):
    monkeypatch.setattr(products, "_one_dnn_is_faster", lambda: True)
    called = []
    monkeypatch.setattr(products, "_linear", lambda *given: called.append(given))
    times_transposed(random(2, 10, 64), random(2, 10, 64))
    times_transposed(random(2, 400, 64).double(), random(2, 256, 64).double())
    times_transposed(random(2, 400, 64).bfloat16(), random(2, 256, 64).bfloat16())
    assert not called


@pytest.mark.parametrize("bias", [True, False])
def test_layers_have_the_gradients_of_torch_with_either_kernel(kernel, bias):
    inputs, weight = random(2, 9, 20).requires_grad_(), random(2, 12, 20).requires_grad_()
    own = random(2, 12).requires_grad_() if bias else None
    wanted = [inputs, weight, *([own] if bias else [])]
    plain = torch.stack([
        torch.nn.functional.linear(inputs[k], weight[k], None if own is None else own[k]) for k in range(2)
    ])  # fmt: skip
    stacked = StackedProduct.apply(inputs, weight, own)
    towards = random(2, 9, 12)
    for one, other in zip(
        torch.autograd.grad((stacked * towards).sum(), wanted),
        torch.autograd.grad((plain * towards).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


@pytest.mark.parametrize("side", [12, 30])  # one product per client, and one per example
def test_convolutions_have_the_gradients_of_torch_with_either_kernel(kernel, side):
    images, weight, bias = random(6, 3, side, side), random(2, 8, 3, 3, 3), random(2, 8)
    wanted = [each.requires_grad_() for each in (images, weight, bias)]
    plain = torch.cat([torch.nn.functional.conv2d(images[3 * k : 3 * k + 3], weight[k], bias[k]) for k in range(2)])
    stacked = Convolution.apply(images, weight, bias, (1, 1))[0]
    torch.testing.assert_close(stacked, plain, rtol=0, atol=1e-4)
    towards = random(*plain.shape)
    for one, other in zip(
        torch.autograd.grad((stacked * towards).sum(), wanted),
        torch.autograd.grad((plain * towards).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-3)
