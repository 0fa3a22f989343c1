"""Files that are whole or not there."""

import json
import os


def write_json(path, value):
    """A file is replaced when the new one is complete; a device or a pipe is written to as it is."""
    is_file = os.path.isfile(path) or not os.path.exists(path)
    to = f"{path}.part" if is_file else path
    with open(to, "w") as file:
        json.dump(value, file, indent=1)
    if is_file:
        os.replace(to, path)


def read_json(path):
    """None where there is no file yet."""
    if not os.path.isfile(path):
        return None
    with open(path) as file:
        return json.load(file)
