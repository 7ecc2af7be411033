"""Groups of metrics that an evaluation computes together, and the settings of these groups.

For example, "coverage:sections=100,profile=demo:imagenet" is the group "coverage" with two settings. Other settings
have their default values. If a setting names data or a file, the digest of the content is appended to the text, as
" code DIGEST".
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..adapters.parameters import parse_number
from ..adapters.paths import expand_path
from ..errors import InvalidInput, Unavailable, UnknownName
from ..metrics import METRICS
from .cell_defaults import ALL_MEASURES, CURVE, MEASURES
from .user_metrics import plain_name

_MARK = " code "
# Settings of each group with their defaults. A group of OPTIONAL is measured only on request.
OPTIONAL: Mapping[str, Mapping[str, Any]] = {
    **{name: {} for name in ALL_MEASURES if name not in MEASURES},
    CURVE: {},
    "coverage": {"sections": 20, "k": 1, "neurons": "channel", "profile": ""},
    "boundary": {
        "directions": 20,
        "spacing": 2.0,
        "largest": 126.0,
        "step_size": 0.0005,
        "limit": 1000,
        "towards": "any",
    },
    "neurons": {},
    "consistency": {"versions": 10, "epsilon": 8 / 255, "noise": "uniform"},
}
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    **{name: {} for name in MEASURES},
    "confusion": {"hierarchy": ""},
    **OPTIONAL,
}
_WORDS = {
    "neurons": ("unit", "channel"),
    "towards": ("any", "each"),
    "noise": ("uniform", "gaussian", "blur", "adversarial"),
}
_SEVERAL = ("noise",)  # settings that take several words with "+" between them
_MOST = {"sections": 65_535, "versions": 10_000, "directions": 1_000_000, "limit": 1_000_000, "k": 1_000_000}
GROUP_OF: Mapping[str, str] = {  # of the metrics that only this group provides
    symbol: group for group in OPTIONAL for symbol, record in METRICS.items() if group in record.needs
}


class MeasureGroup(NamedTuple):
    """A group of metrics.

    Args:
        name: name of the group.
        settings: value of each setting, by name.
    """

    name: str
    settings: Mapping[str, Any]

    def __getitem__(self, name: Any) -> Any:
        """Return a setting by its name."""
        return self.settings[name] if isinstance(name, str) else tuple(self)[name]


def is_group(measure: str) -> bool:
    """Whether a measure is a group of metrics, and not the metric of a user ("my.py:function")."""
    return plain_name(measure).partition(":")[0] in _SETTINGS


def known_groups() -> tuple[str, ...]:
    """Return the names of all groups. The groups that are measured by default come first."""
    return tuple(_SETTINGS)


def read_group(measure: str) -> MeasureGroup:
    """Parse the text of a group with its settings, such as "coverage:sections=100".

    Raises:
        UnknownName: if there is no such group or setting.
        InvalidInput: if a setting has an invalid value.
    """
    name, _, text = plain_name(measure).partition(":")
    if name not in _SETTINGS:
        raise UnknownName("group of metrics", name, _SETTINGS)
    settings = dict(_SETTINGS[name])
    keys = "|".join(settings) or "="
    for each in re.split(rf",(?=(?:{keys})=)", text) if text else ():  # a path may have commas
        key, equals, value = each.partition("=")
        if not equals:
            raise InvalidInput(f"expected {name}:key=value, got {measure!r}")
        if key not in settings:
            raise UnknownName(f"setting of {name}", key, settings)
        if not isinstance(settings[key], str) and (misspelt := re.search(r",([a-z_]+)=", value)):
            raise UnknownName(f"setting of {name}", misspelt[1], settings)
        settings[key] = _read(key, value, settings[key])
    return MeasureGroup(name, settings)


def group_names(measures: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the groups in a list of measures, without their settings."""
    return tuple(dict.fromkeys(read_group(measure).name for measure in measures if is_group(measure)))


def find_group(measures: tuple[str, ...], name: str) -> MeasureGroup | None:
    """Return the group with a name from a list of measures; None if the list does not contain the group."""
    return next((group for each in measures if is_group(each) and (group := read_group(each)).name == name), None)


def with_setting(measure: str, name: str, value: str) -> str:
    """Append a setting to the text of a measure."""
    return f"{measure}{',' if ':' in measure else ':'}{name}={value}"


def pin_measure(measure: str, digest: str) -> str:
    """Append the digest of the data that a measure reads. With different data, the run then has a different key."""
    return f"{measure}{_MARK}{digest}"


def pinned_digest(measure: str) -> str:
    """Return the digest that `pin_measure` appended; "" if the measure has no digest."""
    return measure.partition(_MARK)[2]


def digest_of_file(path: str) -> str:
    """Return a hash of the content of a file, 20 hexadecimal digits.

    Raises:
        Unavailable: if the file cannot be read.
    """
    try:
        return hashlib.sha256(expand_path(path).read_bytes()).hexdigest()[:20]
    except OSError as error:
        raise Unavailable(f"cannot read the file {path} ({error.strerror})") from error


def _read(name: str, text: str, usual: Any) -> Any:
    if name in _WORDS:
        words = text.split("+") if name in _SEVERAL else [text]
        if not {*words} <= {*_WORDS[name]} or len({*words}) < len(words):
            joined = " (several with + between them)" if name in _SEVERAL else ""
            raise InvalidInput(f"expected {name} to be {' or '.join(_WORDS[name])}{joined}, got {text!r}")
        return text
    if isinstance(usual, int):
        most = _MOST[name]
        if not text.isdecimal() or not 1 <= int(text[:9]) <= most or len(text) > 9:
            raise InvalidInput(f"expected {name} from 1 to {most}, got {text!r}")
        return int(text)
    if isinstance(usual, float):
        number = parse_number(text, name)
        if not 0 < number <= (1 if name in ("epsilon", "step_size") else 255):
            raise InvalidInput(f"expected {name} to be a number above 0, in the unit of the measure, got {text}")
        return number
    return text
