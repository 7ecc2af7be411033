"""The options that say what models want and give: a part of their names, so that a folder remembers it."""

from dataclasses import dataclass, fields
from typing import Annotated

import typer


@dataclass(frozen=True)
class InputOptions:
    """In place of what the models were published with."""

    resize: Annotated[str | None, typer.Option(help="side of the shorter edge of image files; none; the model's")] = (
        None
    )
    crop: Annotated[str | None, typer.Option(help="side of their centre crop; none; the model's")] = None
    mean: Annotated[str | None, typer.Option(help="0.5, or one for each channel: 0.485,0.456,0.406; the model's")] = (
        None
    )
    std: Annotated[str | None, typer.Option(help="as --mean; 1/255 with --mean 0 gives pixels up to 255")] = None
    interpolation: Annotated[str | None, typer.Option(help="bilinear or bicubic; the model's")] = None
    labels: Annotated[str | None, typer.Option(help="a file with the names of the model's classes, in its order")] = (
        None
    )

    outputs: Annotated[
        str | None, typer.Option(help="logits, probabilities or labels: what the model gives; else it is seen")
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether any of it was said."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    @property
    def settings(self) -> dict[str, str]:
        """What was given of what models want of an image."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "outputs"}
        return {name: value for name, value in given.items() if value is not None}

    def of(self, model: str) -> str:
        """The name of a model that is shown images and answers so; itself, if nothing was given."""
        from ..adapters.models.zoo.load import add_input, add_outputs

        return add_outputs(add_input(model, self.settings), self.outputs)
