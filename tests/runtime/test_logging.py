from __future__ import annotations

import json
import logging
import logging.config

import pytest

from runtime.logging import configure_logging
from tests.support.loggers import logging_kept


def test_json_lines_have_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(format="json", level=logging.INFO)
    logging.getLogger("some.module").info("answer discarded", extra={"decision": "m-1"})
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert line["event"] == "answer discarded"
    assert (line["logger"], line["level"], line["decision"]) == ("some.module", "info", "m-1")


def test_text_lines_have_the_fields_and_no_values_of_variables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(format="console")
    secret = "hunter2" * 2
    try:
        raise ValueError(len(secret))
    except ValueError:
        logging.getLogger("m").warning("it broke", extra={"match": "m-1"}, exc_info=True)
    logging.getLogger("m").info("not shown")
    err = capsys.readouterr().err
    assert "it broke" in err
    assert "match=m-1" in err
    assert "ValueError: 14" in err
    assert "hunter2hunter2" not in err
    assert "not shown" not in err


def test_what_is_done_to_logging_ends_with_the_test_that_did_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours = logging.getLogger("store.writer")
    with logging_kept():
        caplog.handler.setLevel(logging.CRITICAL)
        configure_logging(format="json", level=logging.CRITICAL)
        logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})
        logging.getLogger("store.new").setLevel(logging.CRITICAL)
        logging.disable(logging.ERROR)
        ours.propagate = False
        ours.warning("lost")
        assert ours.disabled
    ours.warning("heard")
    logging.getLogger("store.new").warning("heard too")
    assert [record.message for record in caplog.records] == ["heard", "heard too"]
