"""What the options of `federate` say to build, for the simulator, for a Flower server and for its nodes alike."""

from __future__ import annotations

from holdfast.cli.commands.federation.options import FederateOptions
from holdfast.data import data_root
from holdfast.federated.blueprint import Blueprint
from holdfast.models import ModelSpec


def blueprint_of(options: FederateOptions) -> Blueprint:
    """Data, network and methods of a federation; nothing is loaded yet."""
    choices, seed = options.choices, options.settings.seed
    root = data_root(choices.data_root)
    return Blueprint(
        options=options.config(),
        settings=options.settings,
        objective=options.objective,
        aggregator=options.aggregator,
        threat=options.threat,
        personalize=options.personalizers,
        expectation=options.expectation,
        load=lambda: options.data.load(root, seed),
        server_optimizer=options.server_optimizer,
        privacy=options.privacy,
        build=lambda shape, outputs: model_spec(options, shape, outputs).build(root),
    )


def model_spec(options: FederateOptions, shape: tuple[int, ...], outputs: int) -> ModelSpec:
    """What the network of a federation is made from."""
    choices = options.choices
    return ModelSpec(choices.model, shape, outputs, choices.model_args, options.settings.seed, choices.weights or None)
