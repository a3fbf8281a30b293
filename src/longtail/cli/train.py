"""`longtail train`: fit, show how it goes, survive interruptions, save."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.flags import Chosen, check_resumed, takes_settings, unreadable
from longtail.cli.reading import Source, reads_data
from longtail.cli.show import print_notes, training_progress
from longtail.durable import make_folder, whole_file
from longtail.errors import DataError, InputError, LongtailError

WORK = "training"
ARGUMENTS = "arguments.json"


@reads_data
@takes_settings
def train(
    source: Source,
    chosen: Chosen,
    out: Annotated[Path, typer.Option(help="Folder to write the model to.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted training in --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in --out.")
    ] = False,
    fold: Annotated[
        int | None,
        typer.Option(help="Train this fold alone (from 0), as one of several processes."),
    ] = None,
) -> None:
    """Train a model, choose its thresholds on documents it has not seen, and save it."""
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.folders import CONFIG_FILE

    said = chosen.resolved()
    if not resume and fold is None:
        LongTailClassifier(**said).plans()
    source.check_split_is_used()
    if resume and overwrite:
        raise InputError(
            "--resume goes on with what is in --out, --overwrite replaces it: not both."
        )
    if _finished(out, resume or fold is not None, overwrite):
        saved = json.loads((out / CONFIG_FILE).read_text("utf-8"))
        check_resumed(saved.get("arguments", {}), said, out)
        typer.echo(f"{out} is finished already. {_next(source, out)}")
        return
    work = out / WORK
    going_on = resume or fold is not None
    if resume and not work.exists():
        print_notes([f"there is nothing to resume in {out}: beginning anew."])
    arguments = _arguments(work, said, out) if going_on and work.exists() else said
    classifier = LongTailClassifier(**arguments)
    folds = classifier.plans()[0].folds
    if fold is not None and folds == 1:
        raise InputError("--fold goes with --folds 2 or more.")
    if fold is not None and not 0 <= fold < folds:
        raise InputError(f"--fold: expected a fold from 0 to {folds - 1}, got {fold}.")
    parts = _parts(source, work, arguments, keep=going_on)
    command = shlex.join(
        ["longtail", "train", *source.arguments(split=True), "--out", str(out), "--resume"]
    )
    _fit(classifier, parts, work, fold, command)
    if fold is not None:
        typer.echo(f"Fold {fold} is done. When all are, gather them with: {command}")
        return
    _finish(classifier, source, out)
    typer.echo(f"Saved to {out}. {_next(source, out)}")


def _fit(classifier: Any, parts: Any, work: Path, fold: int | None, command: str) -> None:
    """Fit in the work folder; whatever ends it, the user learns how to go on."""
    from longtail.training import StoppedError, stopping

    with stopping() as stop, training_progress() as progress:
        try:
            classifier.fit(
                parts["train"],
                validation=parts["validation"],
                folder=work / "folds",
                resume=True,
                only_fold=fold,
                progress=progress,
                note=lambda text: print_notes([text]),
                stop=stop,
            )
        except StoppedError as stopped:
            raise StoppedError(f"{stopped} The command: {command}", stopped.exit_code) from None
        except LongtailError:
            # What was refused before anything was learned leaves no trace in the way of a new try;
            # of a fold the others may be under way.
            if fold is None and not any(work.rglob("*.safetensors")):
                shutil.rmtree(work)
                if not any(work.parent.iterdir()):
                    work.parent.rmdir()
            raise
        except KeyboardInterrupt:
            typer.secho(
                f"\nLeft at once. Go on from the last saved state with: {command}", err=True
            )
            raise SystemExit(130) from None


def _next(source: Source, out: Path) -> str:
    command = shlex.join(["longtail", "evaluate", str(out), *source.arguments()])
    return f"Judge it with: {command}"


def _finished(out: Path, resume: bool, overwrite: bool) -> bool:
    """Whether there is nothing left to do; raises if something is in the way."""
    from longtail.classifier.saving import CONFIG_FILE

    try:
        names = {path.name for path in out.iterdir()} if out.exists() else set()
    except OSError as error:
        raise DataError(f"cannot save to {out}: {error}. Choose another folder.") from error
    if not names or (overwrite and names & {CONFIG_FILE, WORK}):
        return False
    if WORK in names:
        if resume:
            return False
        raise DataError(
            f"{out} holds a training that was not finished. Go on with --resume, or begin anew "
            "with --overwrite."
        )
    if CONFIG_FILE not in names:
        raise DataError(f"{out} exists and is not a longtail model. Choose another folder.")
    if resume:
        return True
    raise DataError(f"{out} holds a trained model. Replace it with --overwrite.")


def _arguments(work: Path, said: dict[str, Any], out: Path) -> dict[str, Any]:
    """What the training was begun with; flags may repeat that, not change it."""
    place = work / ARGUMENTS
    if not place.exists():
        return said
    try:
        saved = json.loads(place.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(place, error) from error
    check_resumed(saved, said, out)
    free = {k: v for k, v in said.items() if k in ("device", "checkpoint_minutes")}
    return {**saved, **free}


def _parts(source: Source, work: Path, arguments: dict[str, Any], keep: bool) -> Any:
    """Read the data once it is sure that the result can be written; leave no trace if not."""
    fresh = not work.parent.exists()
    _make_work(work, arguments, keep)
    try:
        return source.parts()
    except BaseException:
        if fresh:
            shutil.rmtree(work.parent, ignore_errors=True)
        raise


def _make_work(work: Path, arguments: dict[str, Any], keep: bool) -> None:
    if work.exists() and not keep:
        shutil.rmtree(work)
    make_folder(work)
    with whole_file(work / ARGUMENTS) as temporary:
        temporary.write_text(json.dumps(arguments, indent=2), "utf-8")


def _finish(classifier: Any, source: Source, out: Path) -> None:
    """Move the finished files into place, the one that makes it a model last."""
    from longtail.classifier.saving import CONFIG_FILE, write_files

    staged = out / WORK / "model"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    try:
        write_files(classifier, staged)
        source.remember(staged)
    except LongtailError:
        raise
    except Exception as error:
        # Tokenizers tell of a full disk by an exception of no kind at all.
        raise DataError(
            f"could not save to {staged}: {error}. The trained folds are kept: free some space, "
            "then go on with --resume."
        ) from error
    for old in out.iterdir():
        if old.name != WORK:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for path in sorted(staged.iterdir(), key=lambda path: path.name == CONFIG_FILE):
        os.replace(path, out / path.name)
    shutil.rmtree(out / WORK)
