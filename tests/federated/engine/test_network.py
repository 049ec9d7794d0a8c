import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.errors import ConfigError
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.draws import Draws
from holdfast.federated.engine.network import Network
from tests.federated.toy import convolutional, linear


def batch(clients: int, size: int, shape: tuple[int, ...], classes: int = 3) -> ClientBatch:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(clients, size, *shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (clients, size), generator=generator)
    weights = torch.full((clients, size), 1 / size, dtype=torch.float64)
    rows = torch.arange(clients * size).view(clients, size)
    return ClientBatch(inputs, labels, weights, torch.arange(clients), torch.zeros(clients, dtype=torch.int64), rows)


def parts_of(many: ClientBatch) -> tuple[torch.Tensor, ...]:
    return many.inputs, many.labels, many.weights, many.clients, many.draws, many.rows


def one(many: ClientBatch, client: int) -> ClientBatch:
    return ClientBatch(*(part[client : client + 1] for part in parts_of(many)))


def models(network: Network, clients: int) -> torch.Tensor:
    noise = torch.randn(clients, network.size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return network.initial + 0.1 * noise


@pytest.mark.parametrize("kind", ["linear", "cnn", "batch norm"])
def test_stacked_gradients_are_those_of_the_module_for_each_client(kind):
    module = {"linear": linear(), "cnn": convolutional(), "batch norm": convolutional(norm=True)}[kind].double()
    network = Network(module)
    data = batch(4, 6, (6,) if kind == "linear" else (1, 8, 8))
    at = models(network, 4)
    stacked = network.gradient(at, data)
    for client in range(4):
        plain = copy.deepcopy(module)
        nn.utils.vector_to_parameters(at[client], plain.parameters())
        F.cross_entropy(plain(data.inputs[client]), data.labels[client]).backward()
        wanted = nn.utils.parameters_to_vector([parameter.grad for parameter in plain.parameters()])
        torch.testing.assert_close(stacked[client], wanted, rtol=0, atol=1e-12)
        single = network.gradient(at[client : client + 1].clone(), one(data, client))[0]
        torch.testing.assert_close(single, wanted, rtol=0, atol=1e-12)


def test_padding_has_no_influence():
    network, data = Network(linear().double()), batch(3, 6, (6,))
    weights = data.weights.clone()
    weights[1] = torch.tensor([0.25, 0.25, 0.25, 0.25, 0, 0])
    padded = dataclasses.replace(data, weights=weights)
    short = ClientBatch(*(part[:, :4] if part.ndim > 1 else part for part in parts_of(one(padded, 1))))
    at = models(network, 3)
    torch.testing.assert_close(network.gradient(at, padded)[1], network.gradient(at[1:2].clone(), short)[0])


def test_the_module_that_was_given_is_never_changed_and_its_weights_are_the_start():
    module = convolutional().double()
    before = copy.deepcopy(module.state_dict())
    network = Network(module)
    network.gradient(models(network, 2), batch(2, 4, (1, 8, 8)))
    network.gradient(models(network, 1), batch(1, 4, (1, 8, 8)))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(network.initial, nn.utils.parameters_to_vector(module.parameters()).detach())


def names(clients: int, number: int = 0) -> Draws:
    return Draws(7, "shared", tuple(range(clients)), (number,) * clients)


def test_what_is_dropped_depends_on_the_client_and_its_batch_and_on_no_way_of_running():
    network = Network(convolutional(dropout=0.5).double())
    data, at = batch(2, 4, (1, 8, 8)), models(network, 2)
    stacked = network.gradient(at, data, names(2))
    for client in range(2):
        single = network.gradient(at[client : client + 1].clone(), one(data, client), names(2).one(client))
        torch.testing.assert_close(single[0], stacked[client], rtol=0, atol=1e-12)
    assert torch.equal(stacked, network.gradient(at, data, names(2)))
    assert not torch.allclose(stacked, network.gradient(at, data, names(2, number=1)))
    assert not torch.allclose(stacked, network.gradient(at, data))


def test_what_an_earlier_step_dropped_is_not_left_behind():
    network = Network(convolutional(dropout=0.5).double())
    data, at = batch(1, 4, (1, 8, 8)), models(network, 1)
    plain = network.gradient(at, data)
    network.gradient(at, data, names(1))
    assert torch.equal(network.gradient(at, data), plain)


def test_the_hinge_loss_and_its_penalty_have_their_closed_form():
    module = nn.Linear(6, 1).double()
    module.weight_penalty = 0.01
    network, data = Network(module, "margin"), batch(2, 5, (6,), classes=2)
    at = models(network, 2)
    sign = 2 * data.labels - 1
    margins = sign * ((data.inputs * at[:, None, :6]).sum(-1) + at[:, 6:])
    wanted = (1 - margins).clamp(min=0).mean(1) + 0.01 * at[:, :6].square().sum(1)
    torch.testing.assert_close(network.loss(at, data), wanted)
    active = (margins < 1) * sign / 5
    gradient = torch.cat([-(active[..., None] * data.inputs).sum(1) + 0.02 * at[:, :6], -active.sum(1)[:, None]], 1)
    torch.testing.assert_close(network.gradient(at, data), gradient)


def test_loading_gives_a_module_with_the_parameters():
    network = Network(linear())
    module = network.load(2 * network.initial)
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()).detach(), 2 * network.initial)


def tracking() -> nn.Module:
    return convolutional(norm=True, tracked=True).double()


def test_running_statistics_follow_the_parameters_and_move_as_the_module_moves_them():
    module, data = tracking(), batch(3, 6, (1, 8, 8))
    network = Network(module)
    assert (network.size, network.trainable) == (network.trainable + 8, sum(p.numel() for p in module.parameters()))
    assert network.initial[-8:].tolist() == [0.0] * 4 + [1.0] * 4
    stacked = models(network, 3)
    stacked[:, -4:].abs_()
    singles, modules = stacked.clone(), []
    for client in range(3):
        plain = network.load(stacked[client]).train()
        loss = F.cross_entropy(plain(data.inputs[client]), data.labels[client])
        wanted = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(plain.parameters()))])
        modules.append((plain, wanted))
    together = network.gradient(stacked, data)
    for client, (plain, wanted) in enumerate(modules):
        alone = network.gradient(singles[client : client + 1], one(data, client))[0]
        for gradient in (alone, together[client]):
            torch.testing.assert_close(gradient[:-8], wanted, rtol=0, atol=1e-12)
            assert not gradient[-8:].any()
        norm = plain.get_submodule("1")
        for row in (singles[client], stacked[client]):
            torch.testing.assert_close(row[-8:], torch.cat([norm.running_mean, norm.running_var]), rtol=0, atol=1e-12)


def test_scores_use_running_statistics_and_leave_them_alone():
    network, data = Network(tracking()), batch(2, 6, (1, 8, 8))
    at = models(network, 2)
    at[:, -4:].abs_()
    before = at.clone()
    outputs = network.outputs(at, data.inputs)
    for client in range(2):
        wanted = network.load(at[client])(data.inputs[client])
        torch.testing.assert_close(outputs[client], wanted, rtol=0, atol=1e-12)
        single = network.outputs(at[client : client + 1], data.inputs[client : client + 1])[0]
        torch.testing.assert_close(single, wanted, rtol=0, atol=1e-12)
    assert torch.equal(at, before)
    assert network.batch_dependent
    assert not network.scores_depend_on_batch


@pytest.mark.parametrize("clients", [1, 2])
def test_a_pull_leaves_running_statistics_alone(clients):
    network, data = Network(tracking()), batch(clients, 6, (1, 8, 8))
    free, pulled = models(network, clients), models(network, clients)
    anchor = torch.zeros(network.size, dtype=torch.float64)
    start = free.clone()
    network.sgd_step(free, data, 0.1, None)
    network.sgd_step(pulled, data, 0.1, (2.0, anchor))
    assert torch.equal(free[:, -8:], pulled[:, -8:])
    torch.testing.assert_close((free - pulled)[:, :-8], 0.2 * start[:, :-8])


def test_variances_below_zero_are_mended():
    network = Network(tracking())
    model = -torch.ones(network.size, dtype=torch.float64)
    network.repair_statistics(model)
    assert model.sum() == 4 - network.size
    assert not model[-4:].any()


def test_statistics_that_weigh_all_batches_alike_are_refused():
    with pytest.raises(ConfigError, match="momentum"):
        Network(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, momentum=None)))


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ConfigError, match="no parameters"):
        Network(nn.ReLU())


class MixesExamples(nn.Module):
    """Subtracts the mean of its batch, so that clients' batches must not be put together."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(inputs)
        return outputs - outputs.mean(0)


class UsesAWeightByItself(nn.Module):
    """Scales by a parameter, which no stacked layer knows of."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs) * self.scale.exp()


class TiesWeights(nn.Module):
    """Uses one matrix in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(inputs).relu()))


@pytest.mark.parametrize("kind", [MixesExamples, UsesAWeightByItself])
def test_models_that_do_not_stack_are_noticed_and_run_by_vmap(kind):
    network, data = Network(kind().double()), batch(4, 6, (6,))
    at = models(network, 4)
    stacked = network.gradient(at, data)
    assert network.study(data.inputs[0]).name == "vmap"
    for client in range(4):
        single = network.gradient(at[client : client + 1].clone(), one(data, client))[0]
        torch.testing.assert_close(single, stacked[client], rtol=0, atol=1e-12)


def test_models_of_plain_layers_do_stack():
    network = Network(convolutional(dropout=0.2).double())
    network.gradient(models(network, 4), batch(4, 6, (1, 8, 8)))
    assert network.study(torch.zeros(6, 1, 8, 8, dtype=torch.float64)).name == "joined"


class InsistsOnOrder(nn.Module):
    """Views its maps as vectors, which only works on the usual order of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(64, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(nn.functional.max_pool2d(self.conv(inputs), 2)[:, :, :4, :4].contiguous().view(-1, 64))


class ViewsAtOnce(InsistsOnOrder):
    """The same without a copy in between."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(nn.functional.max_pool2d(self.conv(inputs), 2).view(-1, 64))


@pytest.mark.parametrize(("kind", "taken"), [(InsistsOnOrder, True), (ViewsAtOnce, False)])
def test_channels_go_innermost_where_the_model_takes_it_and_gradients_stay(kind, taken):
    module = kind().double()
    network, data = Network(module), batch(1, 5, (3, 10, 10))
    at = models(network, 1)
    found = network.gradient(at, data)[0]
    assert network._channels_last is taken
    nn.utils.vector_to_parameters(at[0], module.parameters())
    F.cross_entropy(module(data.inputs[0]), data.labels[0]).backward()
    wanted = nn.utils.parameters_to_vector([parameter.grad for parameter in module.parameters()])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def normalised(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, **options), nn.Linear(4, 3)).double()


@pytest.mark.parametrize("clients", [1, 3])
def test_a_batch_of_one_example_is_normalised_by_running_statistics_which_stay(clients):
    network, data = Network(normalised()), batch(clients, 1, (6,))
    at = models(network, clients)
    at[:, network.slices["1.running_var"]].abs_()
    before = at.clone()
    gradient = network.gradient(at, data, names(clients))
    assert torch.equal(at, before)
    for client in range(clients):
        plain = network.load(at[client]).eval()
        F.cross_entropy(plain(data.inputs[client]), data.labels[client]).backward()
        wanted = nn.utils.parameters_to_vector([parameter.grad for parameter in plain.parameters()])
        torch.testing.assert_close(gradient[client, : network.trainable], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clients", [1, 3])
def test_without_running_statistics_one_example_is_normalised_to_zero(clients):
    network, data = Network(normalised(track_running_stats=False)), batch(clients, 1, (6,))
    at = models(network, clients)
    outputs = network.outputs(at, data.inputs)
    for client in range(clients):
        plain = network.load(at[client])
        torch.testing.assert_close(outputs[client, 0], plain[2](plain[1].bias), rtol=0, atol=1e-12)
    assert network.gradient(at, data, names(clients)).isfinite().all()


def test_training_and_evaluation_are_the_modules_own_modes():
    class Tells(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) * (2 if self.training else 1)

    network, data = Network(Tells(6, 3).double()), batch(2, 4, (6,))
    at = models(network, 2)
    evaluated = network.outputs(at, data.inputs)
    trained = network.outputs(at, data.inputs, names(2), statistics=at)
    torch.testing.assert_close(trained, 2 * evaluated)
    for client in range(2):
        row = at[client : client + 1].clone()
        alone = network.outputs(row, data.inputs[client : client + 1])[0]
        torch.testing.assert_close(alone, evaluated[client], rtol=0, atol=1e-14)  # kernels go by the number of rows
        network.gradient(row, one(data, client), names(2).one(client))
    assert torch.equal(network.outputs(at, data.inputs), evaluated)


def test_outputs_that_are_no_tensor_are_refused():
    class Pair(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
            return inputs, inputs

    with pytest.raises(ConfigError, match="the model returned a tuple"):
        Network(Pair(6, 3)).outputs(torch.zeros(1, 21), torch.zeros(1, 2, 6))
