"""The command that offers a model to other programs."""

from typing import Annotated

import typer

from ..errors import InvalidInput
from .derived import Given
from .loading import APART, loading_from
from .options import split_list


def serve_model(  # noqa: PLR0913, PLR0917 - one argument per option
    model: Annotated[str, typer.Argument(help="any model that `davylamp compare --model` takes")],
    host: Annotated[
        str, typer.Option(help="address to listen at; other machines see it only if you say so")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 0,
    allow_host: Annotated[list[str] | None, typer.Option(help="answer to this name, too (repeatable)")] = None,
    name: Annotated[str | None, typer.Option(help="of the model in its URL")] = None,
    outputs: Annotated[str, typer.Option(help="logits, probabilities or labels")] = "logits",
    datatype: Annotated[str, typer.Option(help="of the images: FP32 in [0, 1], or UINT8")] = "FP32",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps")] = "cpu",
    apart: Annotated[Given, APART] = {},  # noqa: B006 - a mark, filled in by `complete`
    largest: Annotated[int, typer.Option(min=1, help="MiB of a request, at most")] = 256,
) -> None:
    """Offer a model over HTTP by the Open Inference Protocol (KServe v2), as other programs speak it."""
    from ..adapters.models.serving.model_server import ModelServer
    from ..adapters.models.serving.served_model import ServedModel
    from ..report.page.serving import Names, listen
    from ..report.text.console import make_console

    host = host.strip().removeprefix("[").removesuffix("]")
    names = Names(host, split_list("--allow-host", allow_host) or ())
    if outputs not in ("logits", "probabilities", "labels"):
        raise InvalidInput(f"expected --outputs logits, probabilities or labels, got {outputs!r}")
    served = ServedModel(
        loading_from(apart, [model]).load(model, device), name=name, outputs=outputs, datatype=datatype
    )
    console = make_console()
    with listen(host, port) as listener:
        server = ModelServer(listener, served, names.status, largest << 20)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}/v2/models/{served.name}"
        console.print(f"{url}   (stop with Ctrl-C)", highlight=False, soft_wrap=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            console.print(f"stopped after {served.answered} images", highlight=False)
        finally:
            server.server_close()
