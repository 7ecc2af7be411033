"""Initial components of a server, and an example task, so that the leaderboards of a new server are not empty."""

import time
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ...errors import DavylampError
from ..accounts.users import SYSTEM
from ..components.validation import ComponentRequest, validate_component
from ..database.permissions import ALL_SCOPES, Viewer
from ..database.records import ComponentRow, Kind, TaskRow, UserRow
from ..folder import ServerFolder
from .submission import TaskRequest, submit

_MODELS = {
    "mnist-lenet5": "LeNet-5 for MNIST, trained on clean images (advertorch's)",
    "mnist-lenet5-robust": "LeNet-5 for MNIST, adversarially trained (advertorch's)",
    "cifar10-resnet18": "ResNet-18 for CIFAR-10 (pyautoattack's example)",
    "efficientnet-lite0": "EfficientNet-Lite0 for ImageNet",
    "efficientnet-lite1": "EfficientNet-Lite1 for ImageNet",
    "efficientnet-lite2": "EfficientNet-Lite2 for ImageNet",
}
_DATA = {
    "mnist": "20 digits of MNIST that Foolbox ships",
    "cifar10": "20 images of CIFAR-10 that Foolbox ships",
    "imagenet": "20 photos of ImageNet that Foolbox ships",
}
_ATTACKS = {
    "foolbox:fgsm": "one step along the sign of the gradient",
    "foolbox:pgd": "projected gradient descent",
    "torchattacks:pgd": "projected gradient descent, different implementation",
    "foolbox:deepfool": "DeepFool: a small change by linearising",
    "foolbox:ddn": "DDN: decoupled direction and norm",
    "pyautoattack:square": "Square: random squares, score-based",
}
_DEFENCES = {
    "jpeg:quality=50": "compress each image as JPEG",
    "bit-depth:bits=4": "16 shades of each colour",
    "prune:amount=0.5": "half of the weights set to 0",
    "quantise-weights:bits=4": "15 values for the weights of each channel",
}

_FIRST = {
    "models": ("demo:mnist-lenet5", "demo:mnist-lenet5-robust"),
    "data": ("demo:mnist",),
    "attacks": ("foolbox:fgsm", "foolbox:pgd", "torchattacks:pgd"),
}


def seed_components(session: Session) -> int:
    """Add the initial components that the server lacks, and return the number of added components.

    Components that the installed packages do not support are not added.
    """
    system = session.scalar(select(UserRow).where(UserRow.name == SYSTEM))
    if system is None:
        system = UserRow(name=SYSTEM, password="", role="user", active=False, created=time.time())
        session.add(system)
        session.flush()
    texts: dict[Kind, dict[str, str]] = {
        "model": {f"demo:{name}": text for name, text in _MODELS.items()},
        "data": {f"demo:{name}": text for name, text in _DATA.items()},
        "attack": _ATTACKS,
        "defence": _DEFENCES,
    }
    wanted = [(kind, entry, text) for kind, given in texts.items() for entry, text in given.items()]
    here = {(row.kind, row.entry) for row in session.scalars(select(ComponentRow).filter_by(creator_id=system.id))}
    count = 0
    for kind, entry, text in wanted:
        if (kind, entry) in here or not _is_here(kind, entry):
            continue
        name, now = "".join(letter if letter.isalnum() else "-" for letter in entry.removeprefix("demo:")), time.time()
        card = {"name": name, "version": "1", "description": text, "licence": "see docs/bundled-models.md"}
        state = {"visibility": "public", "state": "active", "created": now, "changed": now}
        session.add(ComponentRow(kind=kind, creator_id=system.id, form="named", entry=entry, **card, **state))
        count += 1
    return count


def seed_task(session: Session, folder: ServerFolder) -> bool:
    """Add a public example task, and return whether the task was added.

    The task is added if the server has no tasks yet, and if the server has the models, data and attacks of the example.
    """
    system = session.scalar(select(UserRow).where(UserRow.name == SYSTEM))
    if system is None or session.scalar(select(TaskRow.id).limit(1)) is not None:
        return False
    numbers = {row.entry: row.id for row in session.scalars(select(ComponentRow).filter_by(creator_id=system.id))}
    if not numbers.keys() >= {*_FIRST["models"], *_FIRST["data"], *_FIRST["attacks"]}:
        return False
    settings: dict[str, Any] = {name: [numbers[entry] for entry in entries] for name, entries in _FIRST.items()}
    settings["attacks"] = [{"component": each, "norm": "linf", "epsilon": 0.2} for each in settings["attacks"]]
    viewer = Viewer(system.id, SYSTEM, scopes=ALL_SCOPES)
    submit(session, folder, viewer, TaskRequest({**settings, "limit": 20}, "An example: two models of MNIST", "public"))
    return True


def _is_here(kind: Any, entry: str) -> bool:
    try:
        validate_component(ComponentRequest(kind, "named", entry))
    except DavylampError:
        return False
    return True
