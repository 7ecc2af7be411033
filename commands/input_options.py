"""Options for model inputs and outputs. Their values become part of the model's name in the results."""

from dataclasses import dataclass, fields
from typing import Annotated

import typer

_PANEL = "Model input and output"


@dataclass(frozen=True)
class InputOptions:
    """Options that replace the published input and output settings of a model."""

    resize: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_PANEL, help="resize the shorter edge of image files to N, or none (default: the model's)"
        ),
    ] = None
    crop: Annotated[
        str | None, typer.Option(rich_help_panel=_PANEL, help="side of the centre crop, or none (default: the model's)")
    ] = None
    mean: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_PANEL, help="mean, one value or one per channel: 0.485,0.456,0.406 (default: the model's)"
        ),
    ] = None
    std: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_PANEL,
            help="standard deviation, as --mean; --mean 0 --std 1/255 for models of pixels in [0, 255]",
        ),
    ] = None
    interpolation: Annotated[
        str | None, typer.Option(rich_help_panel=_PANEL, help="bilinear or bicubic (default: the model's)")
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(rich_help_panel=_PANEL, help="file with the model's class names, one per line in its order"),
    ] = None

    outputs: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_PANEL,
            help=(
                "what the model returns: logits, probabilities or labels (default: detected). For one number for "
                "two classes: logit or probability"
            ),
        ),
    ] = None

    random: Annotated[
        bool | None,
        typer.Option(
            "--random",
            rich_help_panel=_PANEL,
            help="the model draws random numbers by design: judge it on several samples",
        ),
    ] = None

    model_version: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_PANEL,
            help="version of the model; change it if the model changes in a way that davylamp cannot detect",
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether any option was given."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    @property
    def settings(self) -> dict[str, str]:
        """The input settings that the user gave, by name."""
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("outputs", "random", "model_version")
        }
        return {name: value for name, value in given.items() if value is not None}

    def of(self, model: str) -> str:
        """Return a model's name with these settings appended. Without options, the name is unchanged."""
        from ..adapters.models.zoo.load import add_parts

        parts = {"outputs": self.outputs, "random": bool(self.random), "version": self.model_version or ""}
        return add_parts(model, settings=self.settings, **parts)
