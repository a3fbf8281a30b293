"""All writing: atomic files, model folders, workspaces.

Removes only files that longtail wrote, as a mark or a list of files proves.
"""
