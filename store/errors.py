"""Errors of the log.

StoreError                 store/error
├── BadEvent               store/bad_event        NaN, a lone surrogate, a match that starts amiss
├── VersionConflict        store/version_conflict
├── UnknownMatch           store/unknown_match
├── LogLocked              store/locked
├── LogUnavailable         store/unavailable      no permission, disk full, not a database
├── CorruptLog             store/corrupt          hash chain broken, gap, undecodable event
├── NewerSchema            store/newer_schema
└── BadExport              store/bad_export       a portable file that does not verify
"""

from __future__ import annotations


class StoreError(Exception):
    """Root of what goes wrong in the log. `code` is stable; the message names the remedy."""

    code = "store/error"


class BadEvent(StoreError):
    """An event, or a match's id, that could not be read back as it is; nothing was appended."""

    code = "store/bad_event"


class VersionConflict(StoreError):
    """Somebody else appended first: `expected` is not the match's next version, `actual` is."""

    code = "store/version_conflict"

    def __init__(self, match: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"match {match}: append expected version {expected}, the next version is {actual};"
            " read the match again and decide anew"
        )
        self.match = match
        self.expected = expected
        self.actual = actual


class UnknownMatch(StoreError):
    """No match of that id is in the log."""

    code = "store/unknown_match"


class LogLocked(StoreError):
    """Another process writes this log."""

    code = "store/locked"


class LogUnavailable(StoreError):
    """The file cannot be opened, read or written."""

    code = "store/unavailable"


class CorruptLog(StoreError):
    """What is stored is not what was appended; names match and version.

    `match` is empty where the file as a whole is damaged, so that no match can be told.
    """

    code = "store/corrupt"

    def __init__(self, match: str, version: int, what: str) -> None:
        place = f"match {match}, version {version}: " if match else ""
        super().__init__(f"{place}{what}; restore the file from a copy or an export")
        self.match = match
        self.version = version
        self.what = what


class NewerSchema(StoreError):
    """The log was written by a newer release; upgrade to read it."""

    code = "store/newer_schema"


class BadExport(StoreError):
    """A portable match file is damaged or is not one; names the line."""

    code = "store/bad_export"
