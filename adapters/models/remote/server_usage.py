"""What asking a server came to: images asked about, answered, paid, sent again."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from torch import nn


@dataclass
class ServerUsage:
    """Counts of images, but for `requests` and `cost`.

    Args:
        asked: that the model was asked about, by attacks, judge and probes.
        paid: that the server answered; of the others the answer was kept, or they stood twice in a batch.
        probes: of those paid, the ones of questions that pass the kept answers by.
        retried: in requests that failed on the way: the server may have seen them, too, and they were sent again.
        requests: answered.
        cost: of what was paid.
    """

    asked: int = 0
    paid: int = 0
    probes: int = 0
    retried: int = 0
    requests: int = 0
    cost: float = 0.0

    def __add__(self, other: "ServerUsage") -> "ServerUsage":
        return ServerUsage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: "ServerUsage") -> "ServerUsage":
        return ServerUsage(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    @property
    def spec(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)

    @property
    def line(self) -> str:
        """In one line, "" if there was nothing: "1200 queries asked of servers, 900 paid (8 of them by probes)"."""
        if not self:
            return ""
        parts = [f"{self.asked} queries asked of servers, {self.paid} paid"]
        parts[0] += f" ({self.probes} of them by probes)" if self.probes else ""
        parts += [f"price {self.cost:.6g}"] if self.cost else []
        if self.retried:
            parts.append(f"{self.retried} in requests that failed on the way: sent again, perhaps seen twice")
        return "; ".join(parts)


def read_traffic(spec: Any) -> ServerUsage:
    """What `Traffic.spec` gave; of something else, nothing."""
    if not isinstance(spec, dict):
        return ServerUsage()
    known = {each.name: spec.get(each.name, 0) for each in fields(ServerUsage)}
    return ServerUsage(**known) if all(type(value) in (int, float) for value in known.values()) else ServerUsage()


def remote_models_in(model: nn.Module | None) -> list[Any]:
    """The remote models in a model, which may have a defence in front."""
    parts = [] if model is None else model.modules()
    return [part for part in parts if isinstance(getattr(part, "traffic", None), ServerUsage)]


def pop_usage(*models: nn.Module | None) -> ServerUsage:
    """What was asked of the servers behind some models since this was last taken."""
    total = ServerUsage()
    for part in {id(part): part for model in models for part in remote_models_in(model)}.values():
        total += part.traffic - part.taken
        part.taken = replace(part.traffic)
    return total


def total_usage(*models: nn.Module | None) -> ServerUsage:
    """What was asked of the servers behind some models so far."""
    parts = {id(part): part for model in models for part in remote_models_in(model)}
    return sum((part.traffic for part in parts.values()), ServerUsage())


def note_shape(model: nn.Module, shape: Sequence[int]) -> None:
    """Tell remote models whose servers do not say it the shape of their images, (N, C, H, W)."""
    for part in remote_models_in(model):
        part.image_shape = part.image_shape or (shape[1], shape[2], shape[3])


@contextmanager
def bypass_cache(model: nn.Module) -> Iterator[None]:
    """In the block no kept answer is used, so that a server that answers differently now is seen to."""
    with ExitStack() as stack:
        for part in remote_models_in(model):
            stack.enter_context(part.bypass_cache())
        yield
