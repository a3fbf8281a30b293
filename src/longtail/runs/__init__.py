"""The one way to write: whole files, model folders and workspaces, and who may remove them.

Longtail removes only what it can prove it wrote: private folders with its mark, files of a model
whose checksums are in the model's own list, files on the list of a workspace.
"""

from longtail.runs.differences import differences
from longtail.runs.files import (
    MADE_BY,
    Lock,
    check_regular,
    check_replaceable,
    make_folder,
    read_regular,
    read_small,
    staging,
    sync_tree,
    whole_file,
    write_text,
)
from longtail.runs.model import (
    CARD_FILE,
    CONFIG_FILE,
    READY,
    check_out,
    checksum,
    finish_install,
    holds_model,
    manifest,
    read_config,
    replace_model,
    seal,
    whole_folder,
)
from longtail.runs.workspace import Workspace

__all__ = [
    "CARD_FILE",
    "CONFIG_FILE",
    "MADE_BY",
    "READY",
    "Lock",
    "Workspace",
    "check_out",
    "check_regular",
    "check_replaceable",
    "checksum",
    "differences",
    "finish_install",
    "holds_model",
    "make_folder",
    "manifest",
    "read_config",
    "read_regular",
    "read_small",
    "replace_model",
    "seal",
    "staging",
    "sync_tree",
    "whole_file",
    "whole_folder",
    "write_text",
]
