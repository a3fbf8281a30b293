"""`longtail serve`: models over HTTP, with a web page."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.flags import option, takes
from longtail.cli.show import Device, Engine, TrustRemoteCode, print_notes
from longtail.errors import DataError, InputError
from longtail.serve import check_extra
from longtail.serve.settings import Limits, Service, check_corrections, name_runs

API_KEY = "LONGTAIL_API_KEY"
MAX_EXAMPLES = 20
LIMITS = [
    option(field.name, type(field.default), field.metadata["help"], "Limits", field.default)
    for field in fields(Limits)
]


@takes("limits", LIMITS, Limits)
def serve(
    limits: Limits,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Folders written by `longtail train`; NAME=RUN sets the name.",
        ),
    ],
    host: Annotated[
        str, typer.Option(help="0.0.0.0 lets other machines connect; then set a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8000,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes, each with its own copy of the models.")
    ] = 1,
    device: Device = None,
    engine: Engine = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=API_KEY,
            show_envvar=False,
            help=f"Key that requests must send. Default: the environment variable {API_KEY}, "
            "which other users of the machine cannot see.",
        ),
    ] = None,
    corrections: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines file to append corrections to. Default: corrections-NAME.jsonl beside "
            "each run."
        ),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(help="Texts to try on the page: .txt, one per line, or any DATA."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve predictions over HTTP, with a web page; needs the extra `serve`."""
    check_extra()
    if api_key is not None and not re.fullmatch("[!-~]+", api_key):
        raise InputError("--api-key: expected printable ASCII characters without spaces.")
    service = Service(
        runs=name_runs(runs),
        limits=limits,
        device=device,
        engine=engine,
        trust_remote_code=trust_remote_code,
        corrections=corrections,
        examples=_examples(examples, limits),
        api_key=api_key,
    )
    check_corrections(service)
    from longtail.serve.run import open_socket
    from longtail.serve.run import serve as start

    listener = open_socket(host, port)
    address = ip_address(listener.getsockname()[0].partition("%")[0])
    service = replace(service, only_local=address.is_loopback and api_key is None)
    if not address.is_loopback and api_key is None:
        print_notes([f"Anyone who can reach this port can use the service: set {API_KEY}."])
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{listener.getsockname()[1]}"

    def started() -> None:
        typer.echo(f"{url} serves {', '.join(service.runs)}. Stop with Ctrl-C.")

    start(service, listener, workers, started)


def _examples(path: Path | None, limits: Limits) -> tuple[str, ...]:
    """The first texts of a file that are neither blank nor too long."""
    if path is None:
        return ()
    from longtail.data import ReadReport
    from longtail.data.sources import iter_texts

    file_format = "text" if path.name.endswith((".txt", ".txt.gz")) else None
    texts = (document.text for document in iter_texts(str(path), file_format, report=ReadReport()))
    usable = (text for text in texts if text.strip() and len(text) <= limits.max_text_length)
    examples = tuple(islice(usable, MAX_EXAMPLES))
    if not examples:
        raise DataError(f"{path} holds no texts within --max-text-length. Choose other --examples.")
    return examples
