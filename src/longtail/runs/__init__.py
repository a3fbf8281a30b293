"""The one way to write: whole files, model folders and workspaces, and who may remove them.

Longtail removes only what it can prove it wrote: private folders with its mark, files of a model
whose checksums are in the model's own list, files on the list of a workspace.
"""
