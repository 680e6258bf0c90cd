"""The record's token ids, exactly as the release makes them.

A record is the state followed by its questions, piece by piece: each piece is tokenized alone, so
that merges never cross the border between two. What a question or an option says is a *span* of
tokens; the joint head reads the model's states there.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from tokenizers import Encoding, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors

from engine.contract import Ask, Field
from engine.errors import BadBundle, BadRequest, RecordTooLong
from games.questions import QuestionType

Span = tuple[int, int]
"""Half-open positions in a record's token ids."""

TYPE_CODES: Final[dict[QuestionType, int]] = {"noul": 0, "choice": 1, "score": 2}

PREFIX: Final = (
    "<|im_start|>system\n"
    "Read the complete state and schema. Decide every field jointly. "
    "Each answer must be exactly one of that field's allowed options."
    "<|im_end|>\n<|im_start|>user\nSTATE:\n"
)
SUFFIX: Final = (
    "\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nJOINT SCHEMA DECISIONS:"
)

PRE_TOKENIZER: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 splits text before merging: combining marks do not join letters.

Newer loaders overrule it for this model family with a form in which they do, and get other ids for
texts that hold such marks; it is therefore set here, whatever the file says.
"""

_CHUNK = 4096  # characters; a grown state costs the tokenization of one such chunk
_CACHED_CHUNKS = 2048  # of the usual size together about 20 MB
_CACHED_LONG = 32  # texts without line ends, JSON for one, are a single chunk of any size
_SAFE_END = re.compile("\n(?=[!-~])")


class RecordField(msgspec.Struct, frozen=True):
    """Where one field of a record stands.

    Attributes:
        type: 0 noul, 1 choice, 2 score.
        question_span: The instructions.
        option_spans: One for each option, in model order.
    """

    type: int
    question_span: Span
    option_spans: tuple[Span, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What the model reads for one sequence.

    Attributes:
        public_end: The last token border at or before the end of the state's shared part.
        state_end: Where the state's tokens end.
        truncated: State tokens cut on the caller's wish.
    """

    input_ids: list[int]
    fields: tuple[RecordField, ...]
    public_end: int
    state_end: int
    truncated: int = 0


class Encoder:
    """Makes records with the tokenizer of a model bundle.

    Args:
        folder: Where `tokenizer.json` is.

    Raises:
        BadBundle: There is none, or it is not a byte-level BPE tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadBundle(f"{path}: {error.strerror}; make the bundle again") from error
        except Exception as error:  # the library has no narrower class
            raise BadBundle(f"{path}: not a tokenizer ({error}); make the bundle again") from error
        _force_pipeline(self._tokenizer)
        # chunks of one text are independent only if no added token can reach over a line's end
        self._splits = not any(
            "\n" in token.content or token.lstrip or token.rstrip or token.single_word
            for token in self._tokenizer.get_added_tokens_decoder().values()
        )
        self._short_ids = lru_cache(_CACHED_CHUNKS)(self._chunk_ids)
        self._long_ids = lru_cache(_CACHED_LONG)(self._chunk_ids)
        self._places = lru_cache(_CACHED_LONG)(self._tokens_before)

    def ids(self, text: str) -> array[int]:
        """Give the token ids of one piece of text; added tokens in it count as such.

        Raises:
            BadRequest: The text holds a lone surrogate.
        """
        ids: array[int] = array("I")
        for chunk in self._chunks(text):
            cached = self._short_ids if len(chunk) <= 2 * _CHUNK else self._long_ids
            ids.extend(cached(chunk))
        return ids

    def encode(self, ask: Ask, *, window: int) -> list[Record]:
        """Give the records of an ask: one in joint form, else one for each field, in their order.

        Args:
            ask: What is asked.
            window: The most tokens a record may have.

        Raises:
            RecordTooLong: A record has more tokens than the window, or more than
                `ask.max_length` without any state.
            BadRequest: A field has no options, or neither id nor instructions.
        """
        prefix, state, suffix = self.ids(PREFIX), self.ids(ask.state), self.ids(SUFFIX)
        public = self._public_tokens(ask.state, ask.public_end)
        begin = [*prefix, *state]  # whose numbers all records share: there may be hundreds
        records: list[Record] = []
        for fields in _sequences(ask):
            schema, placed = self._schema(fields)
            fixed = len(prefix) + len(schema) + len(suffix)
            kept = len(state)
            if ask.max_length is not None:
                if fixed > ask.max_length:
                    raise RecordTooLong(
                        f"schema requires {fixed} tokens before state; maximum is {ask.max_length}"
                    )
                kept = min(kept, ask.max_length - fixed)
            if fixed + kept > window:
                raise RecordTooLong(
                    f"the record has {fixed + kept} tokens, the window is {window}: shorten the "
                    "state or the questions, or set max_length to have the state's end cut"
                )
            state_end = len(prefix) + kept
            records.append(
                Record(
                    input_ids=[*begin[:state_end], *schema, *suffix],
                    fields=tuple(_moved(field, state_end) for field in placed),
                    public_end=len(prefix) + min(public, kept),
                    state_end=state_end,
                    truncated=len(state) - kept,
                )
            )
        return records

    def encode_state(self, state: str, public_end: int) -> tuple[list[int], int]:
        """Give the tokens with which every record of a state begins, and its public part's end."""
        prefix = self.ids(PREFIX)
        public = len(prefix) + self._public_tokens(state, public_end)
        return [*prefix, *self.ids(state)], public

    def _schema(self, fields: Sequence[Field]) -> tuple[array[int], list[RecordField]]:
        """Give the tokens behind the state, and the fields' places counted from their start."""
        for field in fields:
            if not field.instruction or not field.option_texts:
                raise BadRequest(
                    f"question {field.id[:80]!r} needs an id or instructions, and an option: "
                    "the model has nothing to read there"
                )
        tokens: array[int] = array("I")
        spans: list[Span] = []
        for piece in schema_pieces(fields):
            start = len(tokens)
            tokens.extend(self.ids(piece.text))
            if piece.asked:
                spans.append((start, len(tokens)))
        asked = iter(spans)
        placed = [
            RecordField(
                TYPE_CODES[field.type], next(asked), tuple(islice(asked, len(field.option_texts)))
            )
            for field in fields
        ]
        return tokens, placed

    def _public_tokens(self, state: str, end: int) -> int:
        """Count the state's tokens that lie wholly in its first `end` characters."""
        # normalization may join a character to the one before it, but never an ASCII one
        while 0 < end < len(state) and not state[end].isascii():
            end -= 1
        if end <= 0:
            return 0
        count, start = 0, 0
        for chunk in self._chunks(state):
            if start + len(chunk) > end:
                return count + self._places(chunk, end - start)
            count += len(self.ids(chunk))
            start += len(chunk)
        return count

    def _chunks(self, text: str) -> Iterator[str]:
        """Cut a text where its tokens are those of its parts: behind a line, before a word or sign.

        No match of the pre-tokenizer has a line's end in it and goes on with something printable,
        none looks ahead over a line's end that is followed by such a character, and normalization
        joins nothing to either.
        """
        start = 0
        while self._splits and len(text) - start > _CHUNK:
            end = _SAFE_END.search(text, start + _CHUNK - 1)
            if end is None:
                break
            yield text[start : end.end()]
            start = end.end()
        yield text[start:]

    def _chunk_ids(self, chunk: str) -> array[int]:
        return array("I", self._encoding(chunk).ids)

    def _tokens_before(self, chunk: str, character: int) -> int:
        covering = self._encoding(chunk).char_to_token(character)
        assert covering is not None  # an ASCII character has a token of its own
        return covering

    def _encoding(self, text: str) -> Encoding:
        try:
            return self._tokenizer.encode(text, add_special_tokens=False)
        except TypeError as error:
            raise BadRequest("a text holds a lone surrogate; send valid Unicode") from error


class Piece(NamedTuple):
    """A text that is tokenized alone.

    Attributes:
        text: Never empty.
        asked: It is a field's instruction or one of its options.
    """

    text: str
    asked: bool = False


def schema_pieces(fields: Sequence[Field]) -> Iterator[Piece]:
    """Give what a record says behind the state: of each field the instruction and the options."""
    yield Piece("\n\nSCHEMA FIELDS:\n")
    for number, field in enumerate(fields, start=1):
        yield Piece(f"\nFIELD {number}\nID: {field.id}\nTYPE: {field.type}\nINSTRUCTION: ")
        yield Piece(field.instruction, asked=True)
        yield Piece("\nALLOWED OPTIONS:\n")
        for option_number, text in enumerate(field.option_texts, start=1):
            yield Piece(f"OPTION {option_number}: ")
            yield Piece(text, asked=True)
            yield Piece("\n")
        yield Piece("END FIELD\n")


def _force_pipeline(tokenizer: Tokenizer) -> None:
    """Set all but vocabulary, merges and added tokens as the release's loader does."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()


def _sequences(ask: Ask) -> Iterator[Sequence[Field]]:
    """Give the fields of each record."""
    if ask.form == "joint":
        yield ask.fields
        return
    for field in ask.fields:
        # a constant id keeps answers apart from what the caller happens to call the question
        yield [msgspec.structs.replace(field, id="q") if ask.record == "neutral" else field]


def _moved(field: RecordField, by: int) -> RecordField:
    def move(span: Span) -> Span:
        return span[0] + by, span[1] + by

    return RecordField(field.type, move(field.question_span), tuple(map(move, field.option_spans)))
