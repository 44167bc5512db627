"""Machine code from a file is handed out only if this installation, or someone the user trusts, made it together with its programs."""

from dataclasses import replace
import os
from pathlib import Path
import subprocess
import sys

import pytest

from anycann.om import signature
from anycann.om.model import OfflineModel
from anycann.om.reader import read_offline_model
from anycann.support.errors import DeviceError, InternalError, UsageError
from tests.om.files import contents, file_bytes, seal
from tests.om.models import SYMBOLS, TARGET, program, small_model


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Go to another installation, with a key of its own."""

    def go() -> None:
        monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path / "elsewhere"))

    return go


def code_name(parts: dict[str, bytes]) -> str:
    return next(name for name in parts if name.startswith("code/"))


def test_code_of_this_installation_is_trusted():
    assert read_offline_model(file_bytes(small_model())).trusted_code(TARGET) == SYMBOLS


def test_code_of_another_installation_is_not_and_the_log_says_so(elsewhere, caplog):
    data = file_bytes(small_model())
    elsewhere()
    caplog.set_level("INFO", "anycann")
    read = read_offline_model(data)
    assert read.trusted_code(TARGET) is None
    assert not read.code
    assert "is not signed by this installation, nor by a key of ANYCANN_TRUSTED_KEYS" in caplog.text
    assert read.graph == small_model().graph


def test_changed_code_is_not_trusted():
    parts = contents(file_bytes(small_model()))
    name = code_name(parts)
    parts[name] = parts[name].replace(b"\x7fELF add", b"\x7fELF bad", 1)
    assert read_offline_model(seal(parts)).trusted_code(TARGET) is None


def test_true_code_with_other_programs_is_not_trusted():
    parts = contents(file_bytes(small_model()))
    made = small_model()
    weights = made.programs["float32[1,100]"].steps[0].tasks[0].arguments[1]
    other = replace(made, programs={"float32[4,100]": program(4, weights)})
    parts["programs"] = contents(file_bytes(replace(other, code={})))["programs"]
    assert read_offline_model(seal(parts)).trusted_code(TARGET) is None


def test_true_code_under_another_target_is_not_trusted():
    parts = contents(file_bytes(small_model()))
    other = contents(file_bytes(replace(small_model(), code={"T" * len(TARGET): SYMBOLS})))
    mine, theirs = code_name(parts), code_name(other)
    parts[theirs] = parts.pop(mine).replace(TARGET.encode(), b"T" * len(TARGET))
    read = read_offline_model(seal(parts))
    assert read.trusted_code("T" * len(TARGET)) is None


def test_code_of_another_compiler_or_calling_convention_is_compiled_again(monkeypatch, caplog):
    data = file_bytes(small_model())
    caplog.set_level("INFO", "anycann")
    monkeypatch.setattr(signature, "KERNEL_ABI", signature.KERNEL_ABI + 1)
    assert read_offline_model(data).trusted_code(TARGET) is None
    assert "it was compiled by llvmlite" in caplog.text


def test_a_claim_to_be_of_this_compiler_does_not_help(monkeypatch):
    monkeypatch.setattr(signature, "KERNEL_ABI", 8)
    parts = contents(file_bytes(small_model()))
    monkeypatch.undo()
    name = code_name(parts)
    parts[name] = parts[name].replace(b"kernel ABI 8", f"kernel ABI {signature.KERNEL_ABI}".encode())
    assert read_offline_model(seal(parts)).trusted_code(TARGET) is None


def test_code_without_any_mac_is_not_trusted():
    parts = contents(file_bytes(small_model()))
    name = code_name(parts)
    parts[name] = bytes(8) + parts[name][8 + 32 :]
    assert read_offline_model(seal(parts)).trusted_code(TARGET) is None


def test_programs_that_are_not_trusted_are_never_signed_here(elsewhere):
    data = file_bytes(small_model())
    elsewhere()
    read = read_offline_model(data)
    assert not any(name.startswith("code/") for name in contents(file_bytes(read)))
    with pytest.raises(InternalError, match="programs of a file that is not trusted"):
        file_bytes(replace(read, code={TARGET: SYMBOLS}))
    with pytest.raises(InternalError, match="programs of a file that is not trusted"):
        file_bytes(OfflineModel(read.metadata, read.graph, read.constants, dict(small_model().programs), read.regions, {TARGET: SYMBOLS}))


def test_a_trusted_model_can_be_written_again():
    again = read_offline_model(file_bytes(read_offline_model(file_bytes(small_model()))))
    assert again.trusted_code(TARGET) == SYMBOLS


def test_a_shared_key_makes_code_trusted_elsewhere(tmp_path, monkeypatch, elsewhere):
    keys = tmp_path / "keys"
    keys.write_text(f"# our build machine\n{'0' * 64}\n\n{'ab' * 40}  # the new one\n")
    monkeypatch.setenv("ANYCANN_TRUSTED_KEYS", str(keys))
    data = file_bytes(small_model())
    elsewhere()
    assert read_offline_model(data).trusted_code(TARGET) == SYMBOLS
    keys.write_text("ab" * 40)
    assert read_offline_model(data).trusted_code(TARGET) == SYMBOLS
    keys.write_text("ac" * 40)
    assert read_offline_model(data).trusted_code(TARGET) is None
    monkeypatch.delenv("ANYCANN_TRUSTED_KEYS")
    assert read_offline_model(data).trusted_code(TARGET) is None


@pytest.mark.parametrize("line", ["ab" * 31, "xy" * 32, "ab cd", "é" * 64])
def test_a_wrong_key_names_its_line_but_does_not_show_it(tmp_path, monkeypatch, line):
    keys = tmp_path / "keys"
    keys.write_text(f"{'0' * 64}\n{line}\n")
    monkeypatch.setenv("ANYCANN_TRUSTED_KEYS", str(keys))
    with pytest.raises(UsageError, match="accepted: ") as refused:
        file_bytes(small_model())
    assert line not in str(refused.value)
    assert refused.value.__cause__ is None or line not in str(refused.value.__cause__)
    assert str(keys) in str(refused.value)


def test_keys_that_others_can_write_or_that_are_missing_are_refused(tmp_path, monkeypatch):
    keys = tmp_path / "keys"
    monkeypatch.setenv("ANYCANN_TRUSTED_KEYS", str(keys))
    with pytest.raises(UsageError, match=r"can't read the trusted keys of .*: no such file"):
        file_bytes(small_model())
    keys.write_text("0" * 64)
    keys.chmod(0o666)
    with pytest.raises(UsageError, match="other users can write to"):
        file_bytes(small_model())


def test_the_key_is_secret_random_and_stays(cache):
    key = signature.installation_key()
    place = cache / "installation.key"
    assert place.read_bytes() == key
    assert len(key) == 32
    assert place.stat().st_mode & 0o777 == 0o600
    assert signature.installation_key() == key
    place.unlink()
    assert signature.installation_key() != key


def test_processes_that_race_for_the_key_get_the_same(cache):
    code = "from anycann.om.signature import installation_key; input(); print(installation_key().hex())"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    pipe = subprocess.PIPE
    racers = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=pipe, stdout=pipe, text=True) for _ in range(6)]
    keys = {racer.communicate("\n", timeout=600)[0] for racer in racers}
    assert keys == {signature.installation_key().hex() + "\n"}


@pytest.mark.parametrize("harm", ["readable", "short", "empty", "link"])
def test_a_key_unfit_for_use_is_replaced_with_a_warning(cache, caplog, harm, tmp_path):
    place = cache / "installation.key"
    key = signature.installation_key()
    if harm == "readable":
        place.chmod(0o644)
    elif harm == "link":
        (tmp_path / "theirs").write_bytes(bytes(32))
        (tmp_path / "theirs").chmod(0o600)
        place.unlink()
        place.symlink_to(tmp_path / "theirs")
    else:
        place.write_bytes(b"x" * 31 if harm == "short" else b"")
    new = signature.installation_key()
    assert new not in (key, bytes(32))
    assert f"{place} is replaced" in caplog.text
    assert not place.is_symlink()
    assert place.stat().st_mode & 0o777 == 0o600
    assert signature.installation_key() == new


def test_without_a_writable_cache_code_is_trusted_for_this_process_only(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert read_offline_model(file_bytes(small_model())).trusted_code(TARGET) == SYMBOLS
    assert "is not used" in caplog.text


def test_a_key_that_cannot_be_written_is_a_device_error(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise DeviceError("can't write installation.key: the disk is full")

    monkeypatch.setattr(signature, "write_whole", refuse)
    with pytest.raises(DeviceError, match="the disk is full"):
        file_bytes(small_model())


def test_no_part_of_a_signed_message_can_pass_for_another():
    assert signature.message("ab", "c", b"", b"") != signature.message("a", "bc", b"", b"")
    assert signature.message("a", "b", b"cd", b"") != signature.message("a", "b", b"c", b"d")


def test_importing_the_reader_makes_no_key(cache: Path):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", "import anycann.om.reader, anycann.om.writer"], env=environment, check=True, timeout=600)
    assert os.listdir(cache) == []
