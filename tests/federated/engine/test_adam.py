import torch

from holdfast.federated.engine.adam import Adam


def test_adam_is_torchs_for_each_row():
    torch.manual_seed(0)
    rows = torch.randn(3, 5, dtype=torch.float64)
    gradients = torch.randn(7, 3, 5, dtype=torch.float64)
    parameters = [row.clone().requires_grad_() for row in rows]
    optimizers = [torch.optim.Adam([parameter], lr=0.03) for parameter in parameters]
    adam = Adam(rows)
    for step, gradient in enumerate(gradients):
        active = 3 if step < 4 else 2
        adam.step(rows[:active], gradient[:active], 0.03)
        for parameter, optimizer, own in zip(parameters[:active], optimizers, gradient, strict=False):
            parameter.grad = own
            optimizer.step()
    for row, parameter in zip(rows, parameters, strict=True):
        torch.testing.assert_close(row, parameter.detach(), rtol=0, atol=1e-12)


def test_where_there_is_no_gradient_nothing_moves():
    rows = torch.ones(1, 2)
    Adam(rows).step(rows, torch.tensor([[0.0, 1.0]]), 0.1)
    assert rows[0, 0] == 1
    assert rows[0, 1] < 1
