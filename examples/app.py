"""A page in the browser that attacks one embedded image: its visitor chooses model, image, attack, library and radius.

    pip install -r examples/requirements.txt
    python examples/app.py

The folder is also a Hugging Face Space: copy its files, and choose the SDK Gradio.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch

import davylamp
from davylamp.adapters import IMPLEMENTATIONS, LIBRARIES

MODELS = {  # model -> its images, and how many of them
    "demo:digits-cnn": ("demo:digits", 40),
    "demo:digits-cnn-robust": ("demo:digits", 40),
    "demo:efficientnet-lite0": ("demo:imagenet", 20),
}
ATTACKS = {  # attack -> its parameters, the same in every library
    "pgd": {"steps": 20, "step_size": "2.5 epsilon / steps"},
    "fgsm": {},
    "mi-fgsm": {"steps": 20, "step_size": "2.5 epsilon / steps"},
    "apgd-ce": {"steps": 20},
}
ENLARGED = 8  # times the difference, so that it can be seen


def libraries_of(attack: str) -> list[str]:
    """Return the installed libraries that have an attack."""
    rows = (IMPLEMENTATIONS.get(f"{library}:{attack}") for library in LIBRARIES)
    return [row.library for row in rows if row and LIBRARIES[row.library].is_installed]


@lru_cache
def load(model: str) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Return a model, its images and their labels."""
    data, limit = MODELS[model]
    images, labels, _ = davylamp.load_data(data, limit=limit)
    return davylamp.load_model(model), images, labels


@lru_cache
def class_names(model: str) -> list[str]:
    """Return the names of the classes: ImageNet's, or the digits."""
    if MODELS[model][0] == "demo:digits":
        return [str(digit) for digit in range(10)]
    from torchvision.models import ResNet18_Weights

    return ResNet18_Weights.DEFAULT.meta["categories"]


def attack_image(model: str, place: int, attack: str, library: str, radius: float) -> tuple[Any, Any, Any, str]:
    """Attack one image in the ball of the maximum norm.

    Args:
        model: a key of `MODELS`.
        place: index of the image, from 0. Indices beyond the last begin again.
        attack: a key of `ATTACKS`.
        library: one of `libraries_of(attack)`.
        radius: largest change of a pixel, in (0, 1].

    Returns:
        The clean image, the adversarial image and the enlarged difference, as (height, width, channels) in [0, 1], and
        a sentence on the outcome.
    """
    classifier, images, labels = load(model)
    index = int(place) % len(images)
    image, label = images[index : index + 1], labels[index : index + 1]
    name, parameters = f"{library}:{attack}", ATTACKS[attack]
    try:
        result = davylamp.run_attack(name, classifier, image, label, norm="linf", epsilon=radius, **parameters)
    except davylamp.DavylampError as error:
        return _picture(image[0]), None, None, f"**Not run**: {error}"
    names = class_names(model)
    difference = 0.5 + ENLARGED * (result.adv_inputs[0] - image[0])
    return (
        _picture(image[0]),
        _picture(result.adv_inputs[0]),
        _picture(difference),
        "\n".join(
            [
                f"**{_outcome(result)}**",
                "",
                f"- label: {names[int(label)]}",
                f"- clean: {_prediction(result.logits[0], names)}",
                f"- adversarial: {_prediction(result.adv_logits[0], names)}",
                f"- queries: {int(result.forwards[0])} forward, {int(result.backwards[0])} backward",
                f"- largest change of a pixel: {float((result.adv_inputs[0] - image[0]).abs().max()):.4f}",
                *(f"- {note}" for note in result.notes),
            ]
        ),
    )


def _outcome(result: Any) -> str:
    if not result.attacked[0]:
        return "Not attacked: the model is wrong without an attack"
    if result.invalid[0]:
        return f"Invalid: {', '.join(result.violations[0])}"
    return "Fooled" if result.success[0] else "Robust against this attack"


def _prediction(logits: torch.Tensor, names: list[str]) -> str:
    probabilities = logits.softmax(0)
    return f"{names[int(probabilities.argmax())]} ({float(probabilities.max()):.0%})"


def _picture(image: torch.Tensor) -> np.ndarray:
    return image.clamp(0, 1).expand(3, -1, -1).permute(1, 2, 0).numpy()


def build_page() -> Any:
    """Build the page, which `launch()` serves."""
    import gradio as gr

    with gr.Blocks(title="davylamp") as page:
        gr.Markdown("# Attack an image\nOne image, one attack in one library, judged by davylamp.")
        with gr.Row():
            model = gr.Dropdown(list(MODELS), label="model")
            place = gr.Slider(0, 39, value=0, step=1, label="image")
            attack = gr.Dropdown(list(ATTACKS), label="attack")
            library = gr.Dropdown(libraries_of("pgd"), label="library")
            radius = gr.Slider(0.001, 0.3, value=0.1, step=0.001, label="radius (photos: try 0.004)")
        button = gr.Button("Attack", variant="primary")
        with gr.Row():
            pictures = [
                gr.Image(label=label, format="png")
                for label in ("clean", "adversarial", f"difference, {ENLARGED} times")
            ]
        outcome = gr.Markdown()
        attack.change(lambda name: gr.Dropdown(libraries_of(name), value=libraries_of(name)[0]), attack, library)
        button.click(attack_image, [model, place, attack, library, radius], [*pictures, outcome])
    return page


if __name__ == "__main__":
    build_page().launch()
