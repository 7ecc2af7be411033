"""Selection of an executor by name."""

from ...adapters.models.zoo.load import check_device
from ...errors import InvalidInput, UnknownName
from .executor import Executor
from .local_executor import InProcessExecutor
from .processes import WorkerPoolExecutor


def choose_executor(name: str, *, workers: int = 1, address: str | None = None, device: str = "cpu") -> Executor:
    """Return the executor with a name.

    Args:
        name: "local" for this machine, or "ray" for a Ray cluster.
        workers: number of processes on this machine. For Ray, the number of simultaneous tasks. 0 stands for as many as
            the cluster can run.
        address: address of a running Ray cluster. None to start a cluster on this machine.
        device: device of the tasks. Without Ray, this machine must have it.

    Raises:
        UnknownName: if there is no such executor.
        MissingLibrary: if Ray is not installed.
        Unavailable: if the device is not available.
    """
    if name == "ray":
        from .ray_cluster import RayCluster

        return RayCluster(address, device=device)
    if name != "local":
        raise UnknownName("executor", name, ("local", "ray"))
    if address is not None:
        raise InvalidInput(f"`address` needs `executor=ray`: choose this executor, or omit the address {address}")
    check_device(device)
    return InProcessExecutor() if workers == 1 else WorkerPoolExecutor(workers)
