"""Modules that Python does not bring."""

import importlib
import sys


def need(name, package):
    """The module, or a sentence that says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        sys.exit(f"{sys.argv[0]} needs {name} (pip install {package}): {error}")
