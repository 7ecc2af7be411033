"""Selection of an executor by name, and of the devices of its workers."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...adapters.models.zoo.load import ALL_GPUS, check_device
from ...errors import InvalidInput, Unavailable, UnknownName
from ..plan.config import Config
from .executor import Executor
from .local_executor import InProcessExecutor
from .processes import WorkerPoolExecutor

EXECUTORS = ("local", "ray")


def spread_over_devices(config: Config, workers: int, executor: str) -> tuple[Config, int, tuple[str, ...]]:
    """Choose the devices of the workers. For the device "cuda:all", these are all GPUs of this machine.

    The returned config then has the device "cuda". Plans and records have it, too, because results do not depend on
    which GPU computed them.

    Args:
        config: the configuration.
        workers: number of workers.
        executor: "local" or "ray". Ray itself gives each task a GPU.

    Returns:
        The configuration, the number of workers (at least one for each GPU), and the devices.

    Raises:
        UnknownName: if there is no such executor.
        Unavailable: if torch has no GPU here.
    """
    if executor not in EXECUTORS:
        raise UnknownName("executor", executor, EXECUTORS)
    if config.device != ALL_GPUS:
        return config, workers, (config.device,)
    config = replace(config, device="cuda")
    if executor == "ray":
        return config, workers, ("cuda",)
    count = torch.cuda.device_count()
    if not count:
        raise Unavailable(f"expected a GPU that torch can use here for {ALL_GPUS}, got none")
    return config, max(workers, count), tuple(f"cuda:{number}" for number in range(count))


def choose_executor(
    name: str, *, workers: int = 1, address: str | None = None, devices: Sequence[str] = ("cpu",)
) -> Executor:
    """Return the executor with a name.

    Args:
        name: "local" for this machine, or "ray" for a Ray cluster.
        workers: number of processes on this machine. For Ray, the number of simultaneous tasks. 0 stands for as many as
            the cluster can run.
        address: address of a running Ray cluster. None to start a cluster on this machine.
        devices: devices of the tasks, see `spread_over_devices`. Without Ray, this machine must have them. Several
            devices are distributed over the workers.

    Raises:
        UnknownName: if there is no such executor.
        MissingLibrary: if Ray is not installed.
        Unavailable: if the device is not available.
    """
    if name == "ray":
        from .ray_cluster import RayCluster

        return RayCluster(address, device=devices[0])
    if name != "local":
        raise UnknownName("executor", name, EXECUTORS)
    if address is not None:
        raise InvalidInput(f"`address` needs `executor=ray`: choose this executor, or omit the address {address}")
    for device in devices:
        check_device(device)
    if workers == 1 and len(devices) == 1:
        return InProcessExecutor()
    return WorkerPoolExecutor(workers, devices if len(devices) > 1 else ())
