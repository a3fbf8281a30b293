"""The one way to write: whole files, model folders and workspaces. Longtail removes only what it
can prove it wrote: by a mark, by a checksum in a model's own list, by a workspace's list."""
