"""`longtail train`: fit with progress, resume after interruptions, save."""

from __future__ import annotations

import json
import shlex
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.chosen import Chosen, check_resumed, takes_settings
from longtail.cli.flags import RUN, command_line
from longtail.cli.reading import Source, reads_data
from longtail.cli.show import Cluster, TrustRemoteCode, cluster_of, print_notes, stoppable
from longtail.cli.trained import check_plans, print_result, suggest_best
from longtail.errors import DataError, InputError
from longtail.progress import show_progress
from longtail.runs.model import (
    CARD_FILE,
    WORK,
    check_out,
    finish_install,
    read_config,
    replace_model,
    whole_folder,
)
from longtail.runs.workspace import Workspace
from longtail.training.settings import RUNTIME

RECORD = "run.json"
"""File there with the key of the training, which its model will carry, and its settings."""
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume the interrupted training in --out.", rich_help_panel=RUN),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace the model in --out; other files stay.",
        rich_help_panel=RUN,
    ),
]
Fold = Annotated[
    int | None,
    typer.Option(
        help="Train only this fold (from 0), as one of several processes.",
        rich_help_panel=RUN,
        hidden=True,
    ),
]


@reads_data
@takes_settings
def train(
    source: Source,
    chosen: Chosen,
    out: Annotated[Path, typer.Option(help="Folder to write the model to.", rich_help_panel=RUN)],
    resume: Resume = False,
    overwrite: Overwrite = False,
    fold: Fold = None,
    engine: Cluster = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Train a model, fit its thresholds on held-out documents, and save it."""
    joins = resume or fold is not None
    if engine is not None and fold is not None:
        raise InputError("--engine ray trains all folds: leave out --fold.")
    if not joins:
        _check_free(out, overwrite)
    settings = chosen.resolved(partial=joins)
    from longtail.analysis import label_warnings
    from longtail.classifier import LongTailClassifier
    from longtail.training.interrupt import StoppedError

    if not joins:
        check_plans(LongTailClassifier.from_settings(settings).plans())
    source.check_split_is_used()
    if overwrite and joins:
        raise InputError(
            "--overwrite starts over, --resume and --fold continue the training in --out: not both."
        )
    finished = finished_settings(out)
    if finished is not None and joins:
        check_resumed(finished, settings, out)
        typer.echo(f"{out} is finished already. {_evaluate_hint(source, out, source.has_test())}")
        return
    is_new = not out.exists()
    work, record, is_first = _begin(out, settings, resume=resume, joins=joins, overwrite=overwrite)
    flags = ["--out", str(out), "--resume"]
    flags += command_line({"engine": engine}, {"engine": None})
    flags += ["--trust-remote-code"] if trust_remote_code else []
    command = shlex.join(["longtail", "train", *source.arguments(with_split=True), *flags])
    try:
        classifier = LongTailClassifier.from_settings(record["settings"])
        _check_fold(fold, classifier.plans()[0].folds)
        parts = source.parts()
        print_notes(label_warnings(parts["train"]))
        with (
            cluster_of(engine) as cluster,
            stoppable(command) as stop,
            show_progress() as progress,
        ):
            classifier.fit(
                parts["train"],
                validation=parts["validation"],
                folder=work.folder,
                resume=True,
                only_fold=fold,
                engine=cluster,
                progress=progress,
                note=lambda text: print_notes([text]),
                stop=stop,
                trust_remote_code=trust_remote_code,
            )
    except Exception as error:
        # A run that failed before its first checkpoint must not block another attempt.
        if is_first and not isinstance(error, StoppedError):
            _abandon(work, out if is_new else None)
        raise
    if fold is not None:
        typer.echo(f"Fold {fold} is finished. Once all folds are, combine them with: {command}")
        return
    _finish(classifier, source, out, work, record, command)
    print_result(classifier)
    hint = _evaluate_hint(source, out, "test" in parts)
    typer.echo(f"Saved to {out}, with the model card {out / CARD_FILE}. {hint}")
    if not joins and chosen.is_plain:
        suggest_best(classifier)


def _check_fold(fold: int | None, folds: int) -> None:
    if fold is not None and folds == 1:
        raise InputError("--fold needs --folds 2 or more.")
    if fold is not None and not 0 <= fold < folds:
        raise InputError(f"--fold: expected a fold from 0 to {folds - 1}, got {fold}.")


def finished_settings(out: Path) -> dict[str, Any] | None:
    """The settings of the finished training in a folder; None if there is none.

    A folder with a complete model counts as finished, unless a training to replace it was started.
    """
    config = read_config(whole_folder(out))
    if config is None:
        return None
    run = config["run"] or {"key": None, "settings": {}}
    work = Workspace.open(out / WORK) if Workspace.is_one(out / WORK) else None
    record = work and _read_record(work)
    if record and record["key"] != run["key"]:
        return None
    finish_install(out)
    if work:
        # Left by a process that was killed after it saved its model.
        work.lock(wait=True)
        work.remove()
    return dict(run["settings"])


def _begin(
    out: Path, settings: dict[str, Any], *, resume: bool, joins: bool, overwrite: bool
) -> tuple[Workspace, dict[str, Any], bool]:
    """Start or join the training in a folder: its workspace, its record, whether it was started.

    Raises if a model or an unfinished training is in the way.
    """
    folder = out / WORK
    exists = Workspace.is_one(folder)
    if exists and joins:
        work = Workspace.open(folder)
        work.share()
        record = _read_record(work)
        if record is None:
            raise DataError(
                f"{out} cannot be resumed: its settings, {folder / RECORD}, are missing or "
                "damaged. Start over with --overwrite."
            )
        check_resumed(record["settings"], settings, out)
        runtime = {name: value for name, value in settings.items() if name in RUNTIME}
        return work, {**record, "settings": {**record["settings"], **runtime}}, False
    if resume:
        raise DataError(f"there is nothing to resume in {out}. Leave out --resume to start.")
    _check_free(out, overwrite)
    if exists:
        Workspace.open(folder).remove_alone()
    record = {"key": uuid.uuid4().hex, "settings": settings}
    work = Workspace.begin(folder, {RECORD: json.dumps(record, indent=2)}, join=joins)
    started = _read_record(work)
    if started is None or started["key"] != record["key"]:
        # The process of another fold was faster.
        work.close()
        return _begin(out, settings, resume=resume, joins=joins, overwrite=overwrite)
    return work, record, True


def _check_free(out: Path, overwrite: bool) -> None:
    """Raise if a model, an unfinished training or files of the user are in the way."""
    if Workspace.is_one(out / WORK) and not overwrite:
        raise DataError(
            f"{out} holds an unfinished training. Resume it with --resume, or start over with "
            "--overwrite."
        )
    check_out(out)
    if read_config(whole_folder(out)) is not None and not overwrite:
        raise DataError(f"{out} holds a trained model. Replace it with --overwrite.")


def _abandon(work: Workspace, new: Path | None) -> None:
    """Remove a training without a checkpoint, unless other processes have joined it.

    `new`: the folder around it, if this training created it.
    """
    with suppress(DataError, OSError):
        if not any(work.folder.rglob("*.safetensors")):
            work.lock()
            work.remove()
            if new is not None and not any(new.iterdir()):
                new.rmdir()


def _read_record(work: Workspace) -> dict[str, Any] | None:
    record = work.read_record(RECORD) or {}
    is_whole = "key" in record and isinstance(record.get("settings"), dict)
    return record if is_whole else None


def _evaluate_hint(source: Source, out: Path, has_test: bool) -> str:
    if not has_test:
        return f"{source.data} has no test part: evaluate the model on other documents."
    command = shlex.join(["longtail", "evaluate", str(out), *source.arguments()])
    return f"Evaluate it with: {command}"


def _finish(
    classifier: Any,
    source: Source,
    out: Path,
    work: Workspace,
    record: dict[str, Any],
    command: str,
) -> None:
    """Save the model in one step, then remove the unfinished training."""
    from longtail.classifier.saving import write_files

    def write(folder: Path) -> None:
        source.remember(folder)
        write_files(classifier, folder, run=record)

    try:
        work.lock(wait=True)
        replace_model(out, write)
    except DataError as error:
        if finished_settings(out) is not None:
            return  # another process combined the same folds
        raise DataError(f"{error} The trained folds are kept. Resume with: {command}") from None
    work.remove()
