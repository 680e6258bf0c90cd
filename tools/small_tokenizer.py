"""A small tokenizer of the release's kind: byte-level BPE and Qwen's added tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import ByteLevel
from tokenizers.trainers import BpeTrainer

from engine.tokens import PRE_TOKENIZER

ENTRIES: Final = 3040  # with the added tokens nearly the 3,072 rows of the model

SPECIAL: Final = """
    <|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|>
    <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|>
    <|image_pad|> <|video_pad|>
""".split()  # noqa: SIM905 - a list would take a line for each
PLAIN: Final = """
    <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|>
    <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>
""".split()  # noqa: SIM905 - a list would take a line for each
SPEECH: Final = """
    <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single>
    <|audio_pad|>
""".split()  # noqa: SIM905 - a list would take a line for each

CHAT_TEMPLATE: Final = (
    "{%- for m in messages -%}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif -%}\n"
)


def write_tokenizer(
    folder: Path, texts: Iterable[str], *, window: int, entries: int = ENTRIES
) -> dict[str, int]:
    """Train a tokenizer, write its files, and give the ids of the added tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    added = [*SPECIAL, *PLAIN, *SPEECH]
    trainer = BpeTrainer(
        vocab_size=entries - len(added),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    for name in added:
        token = AddedToken(name, normalized=False, special=name not in PLAIN)
        (tokenizer.add_tokens if name in PLAIN else tokenizer.add_special_tokens)([token])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "add_prefix_space": False,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": window,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items()}
