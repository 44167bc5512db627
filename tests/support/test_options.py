"""Environment variables: read when asked, refused with the accepted values, all on one list."""

import subprocess
import sys

import pytest

from anycann.support import options
from anycann.support.errors import UsageError


def test_an_unset_or_empty_variable_has_its_default(monkeypatch):
    monkeypatch.delenv("ANYCANN_LOG", raising=False)
    assert options.LOG.get() == "warning"
    monkeypatch.setenv("ANYCANN_LOG", "  ")
    assert options.LOG.get() == "warning"
    assert not options.LOG.is_set()


def test_a_variable_is_read_when_asked_not_when_imported(monkeypatch):
    monkeypatch.setenv("ANYCANN_NUM_THREADS", "3")
    assert options.NUM_THREADS.get() == 3
    monkeypatch.setenv("ANYCANN_NUM_THREADS", "5")
    assert options.NUM_THREADS.get() == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²", "4097", "9" * 5000])
def test_a_wrong_number_of_threads_is_refused_with_what_is_accepted(monkeypatch, text):
    monkeypatch.setenv("ANYCANN_NUM_THREADS", text)
    with pytest.raises(UsageError, match=r"ANYCANN_NUM_THREADS is .* accepted: a whole number from 1 to 4096"):
        options.NUM_THREADS.get()


def test_a_log_level_is_taken_in_any_case_and_an_unknown_one_is_refused(monkeypatch):
    monkeypatch.setenv("ANYCANN_LOG", "Debug")
    assert options.LOG.get() == "debug"
    monkeypatch.setenv("ANYCANN_LOG", "loud")
    with pytest.raises(UsageError, match="accepted: debug, info, warning, error"):
        options.LOG.get()


def test_the_flag_false_is_an_answer_not_a_refusal(monkeypatch):
    monkeypatch.setenv("ANYCANN_DEBUG", "0")
    assert options.DEBUG.get() is False
    monkeypatch.setenv("ANYCANN_DEBUG", "maybe")
    with pytest.raises(UsageError):
        options.DEBUG.get()


def test_a_path_may_begin_with_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANYCANN_CACHE_DIR", "~/kernels")
    assert options.CACHE_DIR.get() == str(tmp_path / "kernels")


def test_declaring_a_variable_twice_is_refused():
    with pytest.raises(ValueError, match=r"ANYCANN_LOG is declared twice"):
        options.option("ANYCANN_LOG", options.word(), None, "again")


def test_the_list_names_every_variable_with_its_value(monkeypatch):
    monkeypatch.setenv("ANYCANN_TARGET", "avx2")
    text = options.describe_options()
    assert "ANYCANN_TARGET = avx2" in text
    assert [declared.name for declared in options.all_options()] == sorted(declared.name for declared in options.all_options())
    assert all(declared.name in text and declared.help in text for declared in options.all_options())


def test_importing_with_wrong_values_in_the_environment_is_fine():
    code = "import anycann.support.options, anycann.support.cache, anycann.support.logging"
    environment = {"ANYCANN_NUM_THREADS": "none", "ANYCANN_LOG": "loud", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=600)
