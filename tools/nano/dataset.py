"""Records as compact arrays: token ids, where questions and options stand, what is right.

The long start that many records share (a rulebook) is stored once.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TRAIN, TEST, TOKENIZER = "train.npz", "test.npz", "tokenizer"
"""In the folder of a data set: what is learned from, what is tested, the tokenizer's folder."""

_ARRAYS: Final = {
    "tokens": np.uint16,
    "record_end": np.int64,
    "start": np.uint8,
    "answer": np.uint16,
    "answer_end": np.int64,
    "start_tokens": np.uint16,
    "start_end": np.int64,
    "game": np.uint8,
    "key": np.uint64,
    "field_end": np.int64,
    "kind": np.uint8,
    "type": np.uint8,
    "question": np.int32,
    "option_end": np.int64,
    "option": np.int32,
    "target": np.float32,
    "value": np.float32,
}


class FieldData(NamedTuple):
    """One question of a record.

    Attributes:
        kind: Index into the names of questions.
        type: 0 noul, 1 choice, 2 score.
        question: Its span.
        options: Spans, [N, 2].
        target, values: By option, [N]; values are NaN where options are no actions.
    """

    kind: int
    type: int
    question: tuple[int, int]
    options: Array
    target: Array
    values: Array


class RecordData(NamedTuple):
    """One record: all that it takes to learn from it.

    Attributes:
        input_ids: All token ids.
        answer: Token ids that a language model would go on with.
        game: Index into the names of games; their number for text without questions.
        key: The first 64 bits of the SHA-256 of the position's name.
    """

    input_ids: Array
    answer: Array
    game: int
    key: int
    fields: list[FieldData]


def key_bits(key: str) -> int:
    """Give the number that stands for a position's name in a data set."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])


class Writer:
    """Collects records; `save` writes them."""

    def __init__(self, starts: list[Array], games: list[str], kinds: list[str]) -> None:
        self._starts = starts
        self._names = {"games": games, "kinds": kinds}
        self._lists: dict[str, list[Array]] = {name: [] for name in _ARRAYS}
        self._ends = dict.fromkeys(("record", "answer", "field", "option"), 0)
        self.count = 0

    def add(self, record: RecordData) -> None:
        """Add a record."""
        start, cut = 0, 0
        for number, shared in enumerate(self._starts, start=1):
            own = record.input_ids[: len(shared)]
            if len(shared) > cut and len(own) == len(shared) and bool((own == shared).all()):
                start, cut = number, len(shared)
        rest = record.input_ids[cut:]
        self._put("tokens", rest)
        self._put("record_end", self._end("record", len(rest)))
        self._put("start", start)
        self._put("answer", record.answer)
        self._put("answer_end", self._end("answer", len(record.answer)))
        self._put("game", record.game)
        self._put("key", record.key)
        for field in record.fields:
            self._put("kind", field.kind)
            self._put("type", field.type)
            self._put("question", field.question)
            self._put("option", field.options.reshape(-1))
            self._put("option_end", self._end("option", len(field.options)))
            self._put("target", field.target)
            self._put("value", field.values)
        self._put("field_end", self._end("field", len(record.fields)))
        self.count += 1

    def _put(self, name: str, value: Any) -> None:
        self._lists[name].append(np.atleast_1d(np.asarray(value, dtype=_ARRAYS[name])))

    def _end(self, name: str, more: int) -> int:
        self._ends[name] += more
        return self._ends[name]

    def save(self, path: Path, about: dict[str, Any]) -> None:
        """Write everything into one file; `about` says how it was made."""
        for shared in self._starts:
            self._put("start_tokens", shared)
        sizes = np.cumsum([len(shared) for shared in self._starts], dtype=np.int64)
        self._lists["start_end"] = [sizes]
        arrays = {
            name: np.concatenate(parts) if parts else np.zeros(0, _ARRAYS[name])
            for name, parts in self._lists.items()
        }
        told = json.dumps(about | self._names, sort_keys=True)
        np.savez_compressed(path, about=np.frombuffer(told.encode(), np.uint8), **arrays)


class Dataset:
    """Records of a file that `Writer` wrote.

    Attributes:
        lengths: Tokens of every record, without the answer.
        games, kinds: Names of games and of questions.
        about: How it was made.
        hash: SHA-256 of its content.
    """

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        self.about: dict[str, Any] = json.loads(arrays.pop("about").tobytes())
        self.games: list[str] = self.about["games"]
        self.kinds: list[str] = self.about["kinds"]
        self._arrays = arrays
        digest = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode())
        for name in sorted(arrays):
            digest.update(arrays[name].tobytes())
        self.hash = digest.hexdigest()
        self._starts = np.split(arrays["start_tokens"], arrays["start_end"])[:-1]
        shared = np.array([0, *(len(each) for each in self._starts)])
        ends = arrays["record_end"]
        self.lengths: Array = np.diff(ends, prepend=0) + shared[arrays["start"]]

    def __len__(self) -> int:
        return len(self._arrays["record_end"])

    @property
    def answer_lengths(self) -> Array:
        """Give the tokens of every record's answer."""
        return np.diff(self._arrays["answer_end"], prepend=0)

    @property
    def keys(self) -> Array:
        """Give the numbers of all records' positions."""
        return self._arrays["key"]

    @property
    def game_of(self) -> Array:
        """Give the index of every record's game."""
        return self._arrays["game"]

    def record(self, index: int) -> RecordData:
        """Give one record."""
        arrays = self._arrays
        start = arrays["start"][index]
        rest = _part(arrays["tokens"], arrays["record_end"], index)
        ids = np.concatenate([self._starts[start - 1], rest]) if start else rest
        first = arrays["field_end"][index - 1] if index else 0
        return RecordData(
            input_ids=ids.astype(np.int64),
            answer=_part(arrays["answer"], arrays["answer_end"], index).astype(np.int64),
            game=int(arrays["game"][index]),
            key=int(arrays["key"][index]),
            fields=[self._field(each) for each in range(first, arrays["field_end"][index])],
        )

    def _field(self, index: int) -> FieldData:
        arrays = self._arrays
        ends = arrays["option_end"]
        begin, end = int(arrays["question"][2 * index]), int(arrays["question"][2 * index + 1])
        return FieldData(
            kind=int(arrays["kind"][index]),
            type=int(arrays["type"][index]),
            question=(begin, end),
            options=_part(arrays["option"].reshape(-1, 2), ends, index),
            target=_part(arrays["target"], ends, index),
            values=_part(arrays["value"], ends, index),
        )


def _part(array: Array, ends: Array, index: int) -> Array:
    return array[ends[index - 1] if index else 0 : ends[index]]
