"""All writing goes through here: atomic files, model folders and workspaces. Longtail removes only
files that it can prove it wrote: by a mark, or by a model's or a workspace's list."""
