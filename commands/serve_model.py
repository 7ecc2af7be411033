"""Command that serves a model to other programs."""

from typing import Annotated

import typer

from ..errors import InvalidInput
from .config_options import Given
from .loading import APART, loading_keywords
from .options import split_list


def serve_model(
    *,
    model: Annotated[str, typer.Argument(help="a model, as in `davylamp compare --model`")],
    host: Annotated[str, typer.Option(help="address to listen on; only this machine by default")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 for any free port")] = 0,
    allow_host: Annotated[list[str] | None, typer.Option(help="also accept this host name (repeatable)")] = None,
    name: Annotated[str | None, typer.Option(help="name of the model in the URL")] = None,
    outputs: Annotated[str, typer.Option(help="logits, probabilities or labels")] = "logits",
    datatype: Annotated[str, typer.Option(help="type of the images: FP32 in [0, 1], or UINT8")] = "FP32",
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    apart: Annotated[Given, APART],
    largest: Annotated[int, typer.Option(min=1, help="largest request, in MiB")] = 256,
) -> None:
    """Serve a model over HTTP by the Open Inference Protocol (KServe v2)."""
    from ..adapters.http_server import HttpServer
    from ..adapters.models.remote.served_model import OUTPUTS, ServedModel
    from ..api.python_inputs import loading_of
    from ..report.text.console import make_console

    names = split_list("--allow-host", allow_host) or ()
    if outputs not in OUTPUTS:
        raise InvalidInput(f"expected --outputs {', '.join(OUTPUTS[:-1])} or {OUTPUTS[-1]}, got {outputs!r}")
    served = ServedModel(
        loading_of(loading_keywords(apart), [model]).load(model, device), name=name, outputs=outputs, datatype=datatype
    )
    console = make_console()
    server = HttpServer(host, port, served.handle_request, names=names, largest=largest << 20)
    url = f"{server.url}/v2/models/{served.name}"
    console.print(f"{url}   (stop with Ctrl-C)", highlight=False, soft_wrap=True)
    server.run()
    console.print(f"stopped after {served.answered} images", highlight=False)
