"""Every error that pyprof2 raises on purpose.

::

    Pyprof2Error
    ├── TraceError          a recording cannot be read, or holds nothing to profile
    ├── StoreError          a store cannot be read or written
    │   └── SchemaError     it was written by another schema version
    ├── RemoteError         what is far away cannot be read or written
    ├── MemoryShortError    there is too little memory; a `MemoryError` too
    ├── OutputExistsError   something is there already, and --force was not given
    ├── CaptureError        a script cannot be recorded: something is missing, or nothing came
    ├── TableError          a table lacks a column or has one of the wrong type
    ├── CostRegistrationError  a formula for an op that has one, or in a category that is none
    └── UsageError          an option or argument makes no sense

Each message says which file, what is wrong, and what to do about it, in one line.
"""

from __future__ import annotations


class Pyprof2Error(Exception):
    """Anything that pyprof2 has to tell its user; the command line prints it and exits with 1."""


class TraceError(Pyprof2Error):
    """A recording cannot be read, or holds nothing to profile."""


class StoreError(Pyprof2Error):
    """A store cannot be read or written."""


class SchemaError(StoreError):
    """A store was written by another schema version; parse the recording again."""


class RemoteError(Pyprof2Error):
    """What is far away cannot be read or written: no connection, no rights, nothing there."""


class MemoryShortError(Pyprof2Error, MemoryError):
    """There is too little memory for a recording or a store; neither is damaged by it."""


class OutputExistsError(Pyprof2Error):
    """The output is there already; move it away or say --force."""


class CaptureError(Pyprof2Error):
    """A script cannot be recorded: something that it needs is missing, or nothing was recorded."""


class TableError(Pyprof2Error):
    """A table lacks a column, or has one of the wrong type."""


class CostRegistrationError(Pyprof2Error, ValueError):
    """A formula was registered for an op that has one, or in a category that is none."""


class UsageError(Pyprof2Error):
    """An option or argument makes no sense; the command line exits with 2."""


class TerminatedError(SystemExit):
    """SIGTERM ends the program: no error, and no `SystemExit` of other people's code."""


class LeftOutWarning(UserWarning):
    """Some of the recordings could not be read; the store has the others."""
