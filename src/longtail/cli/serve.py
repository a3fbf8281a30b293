"""`longtail serve`: models over HTTP, with a page for people."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.flags import option, takes
from longtail.cli.show import Engine, TrustRemoteCode
from longtail.errors import DataError, InputError
from longtail.serve import check_extra
from longtail.serve.settings import Limits, Service, check_corrections, name_runs

API_KEY = "LONGTAIL_API_KEY"
MOST_EXAMPLES = 20
LIMITS_PANEL = "Limits"
HELP = {
    "max_batch": "Documents in one call of a model.",
    "max_wait_ms": "Milliseconds that a batch waits for more, while requests come together.",
    "queue": "Documents that may wait for a model; beyond that the answer is 503.",
    "timeout": "Seconds for a request to arrive, and to be answered.",
    "max_text_length": "Characters of a text.",
    "max_documents": "Documents of a request.",
    "max_body_mb": "Megabytes of a request.",
}
LIMITS = [
    option(each.name, type(each.default), HELP[each.name], LIMITS_PANEL, each.default)
    for each in fields(Limits)
]


@takes("limits", LIMITS, Limits)
def serve(
    limits: Limits,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Folders written by `longtail train`; NAME=RUN gives one another name.",
        ),
    ],
    host: Annotated[
        str, typer.Option(help="0.0.0.0: other machines may connect; set a key then.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8000,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes, each with models of its own.")
    ] = 1,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or as it was trained.")] = None,
    engine: Engine = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=API_KEY,
            show_envvar=False,
            help=f"Key that requests must send. Default: the environment variable {API_KEY}, "
            "which other users of the machine do not see.",
        ),
    ] = None,
    corrections: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines that corrections are added to. Default: corrections-NAME.jsonl beside "
            "each run."
        ),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(help="Texts to try on the page: .txt, one per line, or any data."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve predictions over HTTP, with a page for people; needs the extra `serve`."""
    check_extra()
    if api_key is not None and not re.fullmatch("[!-~]+", api_key):
        raise InputError("a key consists of printable ASCII characters, without spaces.")
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
    shown = f"[{host}]" if ":" in host else host
    where = f"http://{shown}:{listener.getsockname()[1]}"

    def started() -> None:
        typer.echo(f"{where} serves {', '.join(service.runs)}. Stop with Ctrl-C.")

    start(service, listener, workers, started)


def _examples(path: Path | None, limits: Limits) -> tuple[str, ...]:
    """The first texts of a file."""
    if path is None:
        return ()
    from longtail.data import ReadReport
    from longtail.data.sources import iter_texts

    layout = "text" if path.name.endswith((".txt", ".txt.gz")) else None
    documents: Any = iter_texts(str(path), layout, report=ReadReport())
    texts = (
        one.text
        for one in documents
        if one.text.strip() and len(one.text) <= limits.max_text_length
    )
    examples = tuple(islice(texts, MOST_EXAMPLES))
    if not examples:
        raise DataError(f"{path} holds no texts within --max-text-length. Choose other --examples.")
    return examples
