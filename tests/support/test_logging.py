"""Messages go to standard error unless the program has its own logging; ANYCANN_LOG decides how many."""

import logging
import os
import subprocess
import sys

import pytest

from anycann.support.logging import get_logger

SAY = "from anycann.support.logging import get_logger; log = get_logger('om'); log.info('detail %d', 1); log.warning('care')"


def run(code: str, **environment: str) -> str:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=600, capture_output=True, text=True).stderr


def test_warnings_are_printed_and_details_are_not():
    assert run(SAY, ANYCANN_LOG="") == "anycann.om: warning: care\n"


def test_a_program_without_standard_error_goes_on():
    assert run(f"import sys; sys.stderr = None; {SAY}; sys.stderr = sys.__stderr__; print('went on', file=sys.stderr)") == "went on\n"


def test_the_level_comes_from_the_environment():
    assert run(SAY, ANYCANN_LOG="info") == "anycann.om: info: detail 1\nanycann.om: warning: care\n"
    assert run(SAY, ANYCANN_LOG="error") == ""


def test_a_program_with_its_own_logging_gets_each_message_once():
    own = "import logging; logging.basicConfig(format='OWN %(message)s'); "
    assert run(own + SAY, ANYCANN_LOG="") == "OWN care\n"


def test_a_level_chosen_by_the_program_stays(monkeypatch):
    monkeypatch.delenv("ANYCANN_LOG", raising=False)
    root = logging.getLogger("anycann")
    before = root.level
    try:
        root.setLevel(logging.ERROR)
        assert not get_logger("om").isEnabledFor(logging.WARNING)
    finally:
        root.setLevel(before)


def test_a_message_reaches_pythons_logging(caplog: pytest.LogCaptureFixture):
    get_logger("om").error("said")
    assert [record.name for record in caplog.records] == ["anycann.om"]
