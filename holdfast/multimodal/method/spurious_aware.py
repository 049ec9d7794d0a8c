"""Spurious-aware fine-tuning: CLIP's loss with terms that gather classes and set a spurious attribute apart.

Yang et al. (ICML 2023, https://arxiv.org/abs/2304.03916), equation 7.6 of the dissertation
(https://escholarship.org/uc/item/0399v1qw): ``L_CLIP + L_vc + L_lc + L_vs + L_ls``. Use vc, lc and ls where no image
has an attribute label, vc, lc and vs where images have. Batches are drawn evenly over groups, as in the authors'
program: most of the gain in the worst group comes from that and little from the terms, whose own gift is that the model
looks at the right place. So sampling is an option of its own, and both deserve to be reported.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError, nearest
from holdfast.multimodal.health import partners
from holdfast.multimodal.method.classifier import PromptClassifier
from holdfast.multimodal.method.losses import (
    clip_loss,
    contrastive_image_loss,
    contrastive_language_loss,
    spurious_image_loss,
    spurious_language_loss,
)
from holdfast.multimodal.method.release_losses import (
    attribute_cross_entropy,
    contrastive_image_penalty,
    contrastive_language_penalty,
    decorrelation_penalty,
)
from holdfast.multimodal.tasks.prompts import ensemble
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.objective import Forward, NewOptimizer, Objective
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy

Form = Literal["cs", "release"]
Language = Literal["contrast", "decorrelate", "decorrelate-same-template"]
Positives = Literal["attribute", "group"]
Sampling = Literal["balanced", "natural"]


@dataclass(frozen=True)
class Terms:
    """Which terms are added to CLIP's loss, how strongly, and in which form.

    Attributes:
        form: ``cs``, the contrastive losses of the equations, or ``release``, the penalties the authors ran.
        lambda_vc: weight of the contrastive image term.
        lambda_lc: weight of the contrastive language term.
        lambda_vs: weight of the spurious image term, which needs an attribute per image.
        lambda_ls: weight of the spurious language term, which needs spurious words and no attribute.
        tau: temperature of the terms in ``cs``; by default that of CLIP's loss, which is trained.
        language: what the spurious language term does in ``cs``: contrast prompts by their attribute, or push class
            names and spurious words towards right angles, as ``release`` always does. That one may compare prompts of
            the same template only.
        positives: what images share in the spurious image term of ``cs``: the attribute, or class and attribute.
    """

    form: Form = "cs"
    lambda_vc: float = 1.0
    lambda_lc: float = 1.0
    lambda_vs: float = 0.0
    lambda_ls: float = 1.0
    tau: float | None = None
    language: Language = "contrast"
    positives: Positives = "attribute"

    def __post_init__(self) -> None:
        for option, known in (("form", Form), ("language", Language), ("positives", Positives)):
            value = getattr(self, option)
            if value not in get_args(known):
                raise ConfigError(f"{option} of spurious-aware can't be {value!r}" + nearest(value, get_args(known)))
        for option in ("lambda_vc", "lambda_lc", "lambda_vs", "lambda_ls"):
            if not getattr(self, option) >= 0:
                raise ConfigError(f"{option} of spurious-aware is {getattr(self, option)}; give 0 or more")
        if self.tau is not None and not self.tau > 0:
            raise ConfigError(f"tau of spurious-aware is {self.tau}; give a positive number, or none for CLIP's own")


@dataclass(eq=False)
class SpuriousAwareLoss(Objective):
    """CLIP's loss and the terms, of a batch of images and of all prompts.

    Attributes:
        terms: which terms.
    """

    terms: Terms

    def __post_init__(self) -> None:
        self._attributes: Tensor | None = None

    def prepare(
        self, examples: Examples, model: nn.Module | None = None, new_optimizer: NewOptimizer | None = None
    ) -> None:
        """Look up the attributes, where the spurious image term needs them."""
        if self.terms.lambda_vs == 0:
            return
        if examples.attributes is None:
            raise DataError(
                "the spurious image term needs an attribute per training image and this data set has none; give "
                "attributes, or set lambda_vs to 0 and use the spurious language term"
            )
        self._attributes = examples.attributes

    def __call__(self, forward: Forward) -> Tensor:
        """The weighted sum."""
        return torch.stack(list(self.weighted(forward).values())).sum()

    def weighted(self, forward: Forward) -> dict[str, Tensor]:
        """Every term times its weight: ``clip`` and those of vc, lc, vs, ls that are on.

        Args:
            forward: a batch, and a `PromptClassifier`.

        Returns:
            Scalars by name.
        """
        model, batch, terms = forward.model, forward.batch, self.terms
        if not isinstance(model, PromptClassifier):
            raise ConfigError(f"spurious-aware trains a PromptClassifier and was given a {type(model).__name__}")
        if forward.weighted:
            raise ConfigError(
                "spurious-aware compares examples with one another and can't weigh them; weigh draws instead"
            )
        assert isinstance(forward.local.inputs, Tensor)
        images = forward.gather(model.tower.encode_image(forward.local.inputs))
        labels, scale = batch.labels, model.tower.scale()
        class_prompts = model.prompts("classes")
        of_terms = scale if terms.tau is None else 1 / terms.tau
        release = terms.form == "release"
        losses = {"clip": clip_loss(images, ensemble(class_prompts)[labels], scale)}
        if terms.lambda_vc:
            losses["vc"] = terms.lambda_vc * (
                contrastive_image_penalty(images, labels)
                if release
                else contrastive_image_loss(images, labels, of_terms)
            )
        if terms.lambda_lc:
            losses["lc"] = terms.lambda_lc * (
                contrastive_language_penalty(class_prompts)
                if release
                else contrastive_language_loss(class_prompts, of_terms)
            )
        if terms.lambda_vs:
            losses["vs"] = terms.lambda_vs * self._spurious_images(model, images, forward, of_terms)
        if terms.lambda_ls:
            losses["ls"] = terms.lambda_ls * self._spurious_language(model, class_prompts, of_terms)
        return losses

    def _spurious_images(
        self, model: PromptClassifier, images: Tensor, forward: Forward, scale: Tensor | float
    ) -> Tensor:
        if self._attributes is None:
            raise ConfigError("spurious-aware has not seen the training set; call objective.prepare(train) first")
        values = self._attributes[forward.batch.positions].to(images.device)
        if self.terms.form == "release":
            weights = ensemble(model.prompts("attributes"))
            if len(weights) <= int(self._attributes.max()):
                raise DataError(
                    f"the wording has {len(weights)} attribute phrases and the data at least "
                    f"{int(self._attributes.max()) + 1} attribute values; give a phrase for each"
                )
            return attribute_cross_entropy(images, weights, values, model.tower.scale())
        if self.terms.positives == "group":
            values = values + forward.batch.labels * (int(self._attributes.max()) + 1)
        return spurious_image_loss(images, values, scale)

    def _spurious_language(self, model: PromptClassifier, class_prompts: Tensor, scale: Tensor | float) -> Tensor:
        language = self.terms.language
        if self.terms.form == "cs" and language == "contrast":
            return spurious_language_loss(model.prompts("pairs"), scale)
        same_template = language == "decorrelate-same-template"
        return decorrelation_penalty(class_prompts, model.prompts("words"), same_template=same_template)


@dataclass(frozen=True)
class SpuriousAware(Terms, Policy):
    """Fine-tune a two-tower model with CLIP's loss and the terms, on batches drawn evenly over groups.

    Attributes:
        sampling: ``balanced`` draws every group (class x attribute) equally often, with replacement, and needs training
            groups, which may be inferred ones; ``natural`` visits every example once per epoch.
    """

    name: ClassVar[str] = "spurious-aware"

    sampling: Sampling = "balanced"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling not in get_args(Sampling):
            raise ConfigError(f"sampling can't be {self.sampling!r}" + nearest(self.sampling, get_args(Sampling)))

    def update(self, context: Context) -> Plan:
        """Draws in proportion to 1 / (size of the group), or no opinion."""
        if self.sampling == "natural":
            return Plan()
        groups, active = context.require_groups(), context.active_positions()
        weights = torch.zeros(len(groups), dtype=torch.float64)
        weights[active] = 1 / torch.bincount(groups[active])[groups[active]].to(torch.float64)
        return Plan(sample_weight=weights)

    def health(self, observed: Observed) -> list[Finding]:
        """Whether mini-batches hold the pairs that the image terms contrast."""
        examples, drawn, found = observed.examples, observed.plan.sample_weight, list[Finding]()
        weights = torch.ones(len(examples), dtype=torch.float64) if drawn is None else drawn
        if self.lambda_vc:
            found.append(partners(examples.labels, weights, observed.batch_size, "image term (vc)"))
        if self.lambda_vs and self.form == "cs" and examples.attributes is not None:
            values = examples.attributes
            if self.positives == "group":
                values = values + examples.labels * (int(values.max()) + 1)
            found.append(partners(values, weights, observed.batch_size, "spurious image term (vs)"))
        return found

    def objective(self) -> SpuriousAwareLoss:
        """The loss with these terms."""
        return SpuriousAwareLoss(Terms(**{field.name: getattr(self, field.name) for field in fields(Terms)}))
