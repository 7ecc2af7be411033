"""Images that occur more than once in a data set: intervals and tests take images for independent ones."""

from torch import Tensor

_LOOKED_AT = 64  # pixels of each image by which most are told apart


def find_first(inputs: Tensor) -> list[int]:
    """For each image the place of the first one that is equal to it, which is its own where none is before it.

    Args:
        inputs: shape (N, ...).
    """
    flat = inputs.detach().flatten(1).cpu()
    few = flat[:, :: max(1, flat.shape[1] // _LOOKED_AT)].contiguous().numpy()
    alike: dict[bytes, list[int]] = {}
    first = []
    for place, key in enumerate(map(bytes, few)):
        known = alike.setdefault(key, [])
        same = next((other for other in known if flat[other].equal(flat[place])), place)
        known += [place] if same == place else []
        first.append(same)
    return first


def note_repeated(inputs: Tensor, labels: Tensor) -> list[str]:
    """A line where images repeat, and how many of them with another label.

    Args:
        inputs: shape (N, C, H, W).
        labels: shape (N,).
    """
    first, classes = find_first(inputs), labels.tolist()
    repeated = [place for place, other in enumerate(first) if place != other]
    if not repeated:
        return []
    differing = sum(classes[place] != classes[first[place]] for place in repeated)
    line = f"{len(repeated)} of {len(first)} images are the same as an earlier one, and intervals count them as others"
    return [line + (f"; {differing} of them have another label" if differing else "")]
