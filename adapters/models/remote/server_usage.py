"""Usage of servers: numbers of images queried, billed and resent."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from torch import nn


@dataclass
class ServerUsage:
    """Usage of servers by an evaluation. All fields except `requests` and `cost` are numbers of images.

    Args:
        asked: images queried by attacks, the judge and probes.
        paid: images that were sent to the server and billed. All other images were in the answer cache, or occurred
            twice in a batch.
        probes: billed images of queries that bypassed the answer cache.
        retried: images that were sent again after a failed request. The server may have processed them twice.
        requests: requests that got a response.
        cost: total price of the billed images.
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
        """The counts as JSON types."""
        return asdict(self)

    @property
    def line(self) -> str:
        """The counts in one line, such as "1200 queries, 900 sent to the server and billed".

        "" if all counts are zero.
        """
        if not self:
            return ""
        parts = [f"{self.asked} queries, {self.paid} sent to the server and billed"]
        parts[0] += f" ({self.probes} by probes)" if self.probes else ""
        parts += [f"price {self.cost:.6g}"] if self.cost else []
        if self.retried:
            parts.append(f"{self.retried} resent after failed requests (the server may have processed them twice)")
        return "; ".join(parts)


def read_traffic(spec: Any) -> ServerUsage:
    """Build a `ServerUsage` from stored JSON types, see `ServerUsage.spec`. Invalid values give counts of zero."""
    if not isinstance(spec, dict):
        return ServerUsage()
    known = {each.name: spec.get(each.name, 0) for each in fields(ServerUsage)}
    return ServerUsage(**known) if all(type(value) in (int, float) for value in known.values()) else ServerUsage()


def remote_models_in(model: nn.Module | None) -> list[Any]:
    """Return the remote models inside a model, also those behind a defence."""
    parts = [] if model is None else model.modules()
    return [part for part in parts if isinstance(getattr(part, "traffic", None), ServerUsage)]


def pop_usage(*models: nn.Module | None) -> ServerUsage:
    """Return the usage of these models' servers since the last call of this function."""
    total = ServerUsage()
    for part in {id(part): part for model in models for part in remote_models_in(model)}.values():
        total += part.traffic - part.taken
        part.taken = replace(part.traffic)
    return total


def total_usage(*models: nn.Module | None) -> ServerUsage:
    """Return the total usage of these models' servers."""
    parts = {id(part): part for model in models for part in remote_models_in(model)}
    return sum((part.traffic for part in parts.values()), ServerUsage())


def note_shape(model: nn.Module, shape: Sequence[int]) -> None:
    """Tell remote models the shape of the images, (N, C, H, W), if the server's metadata do not contain it."""
    for part in remote_models_in(model):
        part.image_shape = part.image_shape or (shape[1], shape[2], shape[3])


@contextmanager
def bypass_cache(model: nn.Module) -> Iterator[None]:
    """Send all queries inside the block to the server, so that changes of its outputs are noticed."""
    with ExitStack() as stack:
        for part in remote_models_in(model):
            stack.enter_context(part.bypass_cache())
        yield
