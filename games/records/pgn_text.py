"""Chess games as text: reads and writes Portable Game Notation.

The format is that of the PGN standard of 1994: tag pairs (section 8.1), movetext (8.2), escape
lines (6), and import format where files differ from it in ways that leave one meaning: line ends of
any kind, a byte order mark, missing blank lines, no result. Variations, comments and glyphs are
left out. Everything else is a fault of the game in which it stands: no move is made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

RESULTS = ("1-0", "0-1", "1/2-1/2", "*")
WIDTH = 80
"""Columns of a line of movetext (section 8.2.1)."""

_NAME = r"[\w+#=:-]+"
_TAG = re.compile(rf'\s*\[\s*(?P<name>{_NAME})\s+"(?P<value>(?:[^"\\]|\\.)*)"\s*\]')
# A tag that has its line to itself is plain even with quotes in its value that nobody escaped.
_LONE_TAG = re.compile(rf'\s*\[\s*(?P<name>{_NAME})\s+"(?P<value>.*)"\s*\]\s*')
_ESCAPED = re.compile(r'\\(["\\])')
_ENDS = re.compile(r"\r\n?|\n")
_TOKEN = re.compile(
    r"(?P<space>\s+|\$\d+|[!?]+|[.…]+|e\.p\.)"
    r"|(?P<result>(?:1-0|0-1|1/2-1/2|½-½|\*)(?![^\s{}();\[!?$]))"
    r"|(?P<number>\d+)(?=[.…\s{]|$)"
    r"|(?P<move>[^\s{}()\[\];$!?]+)"
    r"|(?P<sign>.)"
)


class Move(msgspec.Struct, frozen=True):
    """One move of the main line as it is written; `number` is the last move number before it."""

    text: str
    line: int
    number: int | None


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a game, and after how many half-moves it shows."""

    line: int
    after: int
    what: str


class PgnGame(msgspec.Struct, frozen=True, kw_only=True):
    """One game of a file.

    Attributes:
        number: Counted from 1, faulty ones included.
        line: Where it begins.
        result: The mark that ends it, one of `RESULTS`, or None where it has none.
        fault: Why its moves cannot be trusted to be all.
    """

    number: int
    line: int
    tags: Mapping[str, str]
    moves: tuple[Move, ...]
    result: str | None
    fault: Fault | None = None


def split_lines(text: str) -> list[str]:
    """Give the lines of a text; only LF, CR LF and CR end one."""
    return _ENDS.split(text)


def read_pgn(lines: Iterable[str]) -> Iterator[PgnGame]:
    """Give the games of a file one by one; holds no more than one of them.

    Args:
        lines: Without their ends.
    """
    reader = _Reader()
    for line in lines:
        yield from reader.take(line.removeprefix("\ufeff"))
    yield from reader.close()


def write_pgn(
    tags: Mapping[str, str], moves: Iterable[str], result: str, *, first: int = 1, black: bool
) -> str:
    """Give one game in export format, a blank line after it.

    Args:
        tags: In this order.
        moves: In standard algebraic notation.
        result: One of `RESULTS`.
        first: The number of the first move.
        black: Whether it is Black's.
    """
    words: list[str] = []
    for index, move in enumerate(moves, start=int(black)):
        if index % 2 == 0 or not words:
            words.append(f"{first + index // 2}{'...' if index % 2 else '.'}")
        words.append(move)
    lines = [""]
    for word in (*words, result):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    heads = (f'[{name} "{_escape(value)}"]' for name, value in tags.items())
    return "\n".join((*heads, "", *lines, "", ""))


def _escape(value: str) -> str:
    line = " ".join(value.split()) if not value.isprintable() else value
    return line.replace("\\", "\\\\").replace('"', '\\"')


class _Reader:
    """Takes lines and gives games as they end."""

    def __init__(self) -> None:
        self._line = 0
        self._games = 0
        self._comment = 0  # the line on which a comment was opened that is still open
        self._reset()

    def _reset(self) -> None:
        self._start = 0
        self._tags: dict[str, str] = {}
        self._gap = False  # a blank line has come after tags
        self._moves: list[Move] = []
        self._number: int | None = None
        self._opened: list[int] = []  # the lines of variations that are open
        self._text = False  # movetext has begun
        self._fault: Fault | None = None

    def take(self, line: str) -> Iterator[PgnGame]:
        """Take one line; give each game that it ends."""
        self._line += 1
        at = 0
        if self._comment:
            if _LONE_TAG.fullmatch(line) is not None:  # what was not closed has to end somewhere
                self._complain(f"the comment opened in line {self._comment} is not closed")
                self._comment = 0
            else:
                at = self._after_comment(line, 0)
        elif line.startswith("%"):
            return
        elif not line.strip():
            self._gap = self._gap or (bool(self._tags) and not self._text)
            return
        while at < len(line):
            if line[at:].lstrip().startswith("["):
                tag = _TAG.match(line, at) or (_LONE_TAG.fullmatch(line) if at == 0 else None)
                if tag is not None:
                    yield from self._tag(tag["name"], _ESCAPED.sub(r"\1", tag["value"]))
                    at = tag.end()
                    continue
                if not self._text or at == 0:
                    if self._text and not self._opened:
                        yield from self._end(None)
                    self._begin()
                    self._complain(f"{_shown(line[at:].strip())} is no tag pair")
                    return
            result, at = self._token(line, at)
            if result is not None:
                yield from self._end(result)

    def close(self) -> Iterator[PgnGame]:
        """Give the last game."""
        if self._comment:
            self._complain(f"the comment opened in line {self._comment} is not closed")
            self._comment = 0
        yield from self._end(None)

    def _begin(self) -> None:
        self._start = self._start or self._line

    def _tag(self, name: str, value: str) -> Iterator[PgnGame]:
        again = name in self._tags
        if self._text or (again and (name == "Event" or self._gap)):
            yield from self._end(None)
        elif again and self._tags[name] != value:
            self._complain(f"the tag {name} comes twice with different values")
        self._begin()
        self._gap = False
        self._tags.setdefault(name, value)

    def _token(self, line: str, at: int) -> tuple[str | None, int]:
        """Take one token of movetext; give the result if it is one, and where the next starts."""
        found = _TOKEN.match(line, at)
        assert found is not None  # any character is a sign
        kind, text, end = found.lastgroup, found[0], found.end()
        if kind == "space":
            return None, end
        if text == "{":
            self._comment = self._line
            return None, self._after_comment(line, end)
        if text == ";":
            return None, len(line)
        self._begin()
        self._text = True
        if kind == "sign":
            self._sign(text)
        elif self._opened:
            pass
        elif kind == "result":
            return "1/2-1/2" if text == "½-½" else text, end
        elif kind == "number":
            self._number = int(text[:9])
        else:
            self._moves.append(Move(text, self._line, self._number))
            self._number = None
        return None, end

    def _sign(self, sign: str) -> None:
        if sign == "(":
            self._opened.append(self._line)
        elif sign == ")" and self._opened:
            self._opened.pop()
        elif sign == "}":
            self._complain("'}' closes no comment; comments do not nest")
        elif sign == ")":
            self._complain("')' closes no variation")
        elif not self._opened:
            self._complain(f"{sign!r} is no part of movetext")

    def _after_comment(self, line: str, at: int) -> int:
        end = line.find("}", at)
        if end < 0:
            return len(line)
        self._comment = 0
        return end + 1

    def _complain(self, what: str) -> None:
        """Remember the first fault: those after it may follow from it."""
        self._fault = self._fault or Fault(self._line, len(self._moves), what)

    def _end(self, result: str | None) -> Iterator[PgnGame]:
        if self._opened:
            self._complain(f"the variation opened in line {self._opened[-1]} is not closed")
        if self._tags or self._text or self._fault:
            self._games += 1
            yield PgnGame(
                number=self._games,
                line=self._start or self._line,
                tags=self._tags,
                moves=tuple(self._moves),
                result=result,
                fault=self._fault,
            )
        self._reset()


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
