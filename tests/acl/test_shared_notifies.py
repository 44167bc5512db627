"""Notifies that two processes have."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

IMPORT_NOTIFY = """
import sys
import acl
acl.init(), acl.rt.set_device(0)
stream, _ = acl.rt.create_stream()
first, second = sys.stdin.readline().split()
print(acl.rt.device_get_bare_tgid()[0], flush=True)
assert acl.rt.notify_import_by_key(first, 0) == (0, 107000)  # not named yet
print(flush=True)
assert sys.stdin.readline()
(asked, ret), (answer, other) = acl.rt.notify_import_by_key(first, 0), acl.rt.notify_import_by_key(second, 2)
assert (ret, other) == (0, 0), acl.get_recent_err_msg()
assert acl.rt.wait_and_reset_notify(asked, stream, 0) == 0
assert acl.rt.record_notify(answer, stream) == 0
assert acl.rt.synchronize_stream(stream) == 0
assert acl.rt.destroy_notify(asked) == 0
"""


def test_a_notify_is_recorded_by_one_process_and_waited_for_by_another(acl: ModuleType) -> None:
    stream, _ = acl.rt.create_stream()
    (asked, _), (answer, _) = acl.rt.create_notify(0), acl.rt.create_notify(0)
    assert acl.rt.notify_set_import_pid(asked, [1]) == 107000
    assert acl.rt.notify_get_export_key(asked, 8, 0) == ("", 107000)
    (first, ret), (second, other) = acl.rt.notify_get_export_key(asked, 65, 0), acl.rt.notify_get_export_key(answer, 65, 2)
    assert (ret, other) == (0, 0)
    path = os.pathsep.join(path for path in (*sys.path, os.path.dirname(acl.__path__[0])) if path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": {**os.environ, "PYTHONPATH": path}}
    with subprocess.Popen([sys.executable, "-c", IMPORT_NOTIFY], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdin is not None
        assert process.stdout is not None
        print(first, second, file=process.stdin, flush=True)
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "\n"
        assert acl.rt.notify_set_import_pid(asked, [pid]) == 0
        assert acl.rt.record_notify(asked, stream) == 0
        print(file=process.stdin, flush=True)
        assert acl.rt.wait_and_reset_notify(answer, stream, 0) == 0
        assert acl.rt.synchronize_stream(stream) == 0
        assert process.wait(600) == 0
    assert acl.rt.wait_and_reset_notify(asked, stream, 1) == 0  # the other process took it back
    assert acl.rt.synchronize_stream(stream) != 0
    assert [acl.rt.destroy_notify(asked), acl.rt.destroy_notify(answer)] == [0, 0]
    assert acl.rt.notify_import_by_key(first, 0) == (0, 107000)
    assert acl.rt.notify_import_by_key("x", 0) == (0, 107000)
