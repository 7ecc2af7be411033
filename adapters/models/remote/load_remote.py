"""A classifier behind a server, by its name."""

from ..classifier import Classifier
from .address import read_address
from .remote_model import RemoteModel, check_kind
from .transport import Transport

PATTERNS = ("http://HOST:PORT/v2/models/NAME", "json+http://HOST:PORT/PATH")
_SHORTER_EDGE = 256 / 224  # of a photo, relative to the crop: the customary one
_SMALL = 128  # models of smaller images are of data sets whose images have that size already


def load_remote(name: str, device: str = "cpu", transport: Transport | None = None) -> Classifier:
    """The model of a server; what it takes and gives is read from its metadata, and from what the name adds.

    Where the metadata fix a square size, photos are resized to 256/224 of it and cropped, as is customary; those of
    small images (CIFAR) are resized to it, so that images of that size stay as they are.

    Args:
        name: "http://HOST:PORT/v2/models/NAME", "json+http://HOST:PORT/PATH", with `?KEY=VALUE` of `Encoding`.
        device: where the attack computes.
        transport: how the server is asked.

    Raises:
        InvalidInput: if it is no such name.
        Unavailable: if there is no such model.
        Unsupported: if it takes no images.
        ModelFailed: if the server cannot be reached.
    """
    model = RemoteModel(read_address(name), transport or Transport())
    check_kind(model)
    shape, encoding = model.image_shape, model.encoding
    side = shape[1] if shape is not None and shape[1] == shape[2] else None
    classifier = Classifier(
        model,
        num_classes=model.form.classes or encoding.classes,
        name=name,
        device=device,
        resize=side if side is None or side < _SMALL else round(side * _SHORTER_EDGE),
        crop=side,
        random=encoding.random,
        outputs=encoding.outputs or None,
        gradients=False,
    )
    if model.image_channels is not None:
        classifier.stated_channels = model.image_channels
    if model.notes:
        classifier.loading_notes = tuple(f"{name}: {note}" for note in model.notes)
    return classifier
