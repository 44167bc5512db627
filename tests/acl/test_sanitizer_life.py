from __future__ import annotations

from pathlib import Path
import re

import pytest

from tests.acl.seeded import BEGIN, check, run

MISTAKES = {
    "what is left at the end": """
ptr, _ = acl.rt.malloc(64, 0)  #? leaked-memory
stream, _ = acl.rt.create_stream()
context, _ = acl.rt.create_context(0)  #! leaked-context
event, _ = acl.rt.create_event()  #! leaked-event
made = acl.mdl.create_dataset()  #! leaked-dataset
buffer = acl.create_data_buffer(ptr, 64)  #! leaked-data-buffer
desc = acl.mdl.create_desc()  #! leaked-model-description
tensor = acl.create_tensor_desc(0, [1], 2)  #! leaked-tensor-description
model, _ = acl.mdl.load_from_file(folder + "/fixed.om")  #! leaked-model
""",
    "what is destroyed twice or used afterwards": """
stream, _ = acl.rt.create_stream()
acl.rt.destroy_stream(stream)
acl.rt.destroy_stream(stream)  #! double-destroy
acl.rt.synchronize_stream(stream)  #! use-after-destroy
made = acl.mdl.create_dataset()
acl.mdl.destroy_dataset(made)
acl.mdl.get_dataset_num_buffers(made)  #! use-after-destroy
""",
    "the context of this thread is gone": """
context, _ = acl.rt.create_context(0)
acl.rt.destroy_context(context)
acl.rt.malloc(64, 0)  #! destroyed-context
acl.rt.set_context(context)  #! use-after-destroy
""",
    "the value of a failed call is used": """
ptr, ret = acl.rt.malloc(1 << 50, 0)
acl.rt.memset(ptr, 64, 0, 64)  #! failure-ignored
""",
    "a null is given": """
acl.rt.free(0)  #! null-value
""",
    "a thread has no context": """
def work():
    ptr, ret = acl.rt.malloc(64, 0)  #! no-context

thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    "a handle of another kind is destroyed": """
made = acl.mdl.create_dataset()
acl.destroy_data_buffer(made)  #! wrong-handle
acl.mdl.destroy_dataset(made)
""",
    "initialised twice": """
acl.init()  #! repeated-init
""",
}


@pytest.mark.parametrize("program", MISTAKES.values(), ids=list(MISTAKES))
def test_the_line_of_a_mistake_is_found(tmp_path: Path, program: str) -> None:
    check(program, tmp_path)


def test_a_process_that_is_forked_after_the_beginning_has_no_device(tmp_path: Path) -> None:
    # It prints what it finds (#! used-after-fork); the file is its parent's.
    printed = check(
        """
import os
ptr, _ = acl.rt.malloc(64, 0)
if os.fork() == 0:
    acl.rt.memset(ptr, 64, 0, 64)  # used-after-fork
    sys.exit()
os.wait()
acl.rt.free(ptr)
""",
        tmp_path,
    )
    assert re.search(r"error: used-after-fork: acl.rt.memset: .*\n    here .*# used-after-fork\n    initialised .*acl.init", printed)
    assert "leaked" not in printed


def test_calls_before_the_beginning_and_after_the_end(tmp_path: Path) -> None:
    begin = "import acl\nacl.rt.get_device_count()\nacl.rt.get_device()\nacl.rt.set_device(0)  #! before-init\nacl.init()\n"
    body = "acl.rt.reset_device(0)\nacl.finalize()\nacl.rt.free(0x1000)  #! after-finalize #! mismatched-free\n"
    check(body + "acl.finalize()  #! repeated-finalize", tmp_path, begin, "")


def test_a_device_that_is_not_reset_makes_leaks_of_its_memory(tmp_path: Path) -> None:
    begin = "import acl\nacl.init()\nacl.rt.set_device(0)  #! device-not-reset\n"
    check("ptr, _ = acl.rt.malloc(64, 0)  #! leaked-memory\nacl.finalize()", tmp_path, begin, "")


def test_a_program_that_never_finalizes_is_told_what_is_left(tmp_path: Path) -> None:
    begin = "import acl\nacl.init()  #? not-finalized\nacl.rt.set_device(0)\n"
    check("made = acl.mdl.create_dataset()  #! leaked-dataset\nacl.rt.reset_device(0)", tmp_path, begin, "")


def test_a_mistake_in_a_loop_is_said_once(tmp_path: Path) -> None:
    body = "for turn in range(5):\n    acl.rt.free(0)  #! null-value\n"
    assert check(body, tmp_path).count("null-value") == 2  # the finding, and the mark in its line
    assert '"count": 5' in (tmp_path / "findings.json").read_text()


def test_a_program_may_give_everything_back_when_its_objects_go(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import acl

class Resource:
    def __init__(self):
        acl.init()
        acl.rt.set_device(0)
        self.ptr, _ = acl.rt.malloc(64, 0)

    def __del__(self):
        acl.rt.free(self.ptr)
        acl.rt.reset_device(0)
        acl.finalize()
        print("gone", flush=True)

resource = Resource()
""")
    done = run(program, {"ANYCANN_SANITIZE": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "gone\n", "AnyCANN sanitizer: 0 errors, 0 notes\n")


def test_a_program_may_finalize_while_python_ends(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import acl

class Resource:
    def __init__(self):
        acl.init()
        acl.rt.set_device(0)

    def __del__(self):
        acl.rt.reset_device(0)
        acl.finalize()

class Holder:
    held = Resource()
""")
    done = run(program, {"ANYCANN_SANITIZE": "1"})
    assert (done.returncode, "sanitizer-failed" in done.stderr) == (0, False), done.stderr


def test_threads_that_take_the_frames_of_a_channel_are_subscribed(tmp_path: Path) -> None:
    check(
        """
desc = acl.media.vdec_create_channel_desc()
assert acl.media.vdec_set_channel_desc_thread_id(desc, threading.get_ident()) == 0
acl.rt.process_report(1)
acl.media.vdec_destroy_channel_desc(desc)
""",
        tmp_path,
    )


def test_a_check_that_fails_does_not_end_the_program(tmp_path: Path) -> None:
    check(
        """
from anycann.acl.sanitizer.state import BEFORE

def broken(state, call):
    raise ValueError("no idea")

BEFORE["acl.rt.get_run_mode"] = [broken]
assert acl.rt.get_run_mode() == (1, 0)  #? sanitizer-failed
""",
        tmp_path,
    )


def test_a_program_without_the_sanitizer_has_no_watcher(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(BEGIN + """
from anycann.acl.entries import BORDER
from anycann.acl.process import PROCESS
print(BORDER.watchers, PROCESS.handles.created, PROCESS.allocations.created, [name for name in sys.modules if "sanitizer" in name])
""")  # fmt: skip
    done = run(program, {"ANYCANN_SANITIZE": "0"})
    assert (done.stdout, done.stderr) == ("() [] [] []\n", "")


def test_coded_frames_that_the_channel_took_memory_for_are_written(tmp_path: Path) -> None:
    pytest.importorskip("av")
    check(
        """
def taken(picture, frame, data):
    size = acl.media.dvpp_get_stream_desc_size(frame)
    host, _ = acl.rt.malloc_host(size)
    assert acl.rt.memcpy(host, size, acl.media.dvpp_get_stream_desc_data(frame), size, 2) == 0
    acl.rt.free_host(host)

def reports(_):
    acl.rt.set_device(0)
    while running:
        acl.rt.process_report(50)
    acl.rt.reset_device(0)

running = [True]
thread, _ = acl.util.start_thread(reports, [])
channel = acl.media.venc_create_channel_desc()
settings = {"thread_id": thread, "entype": 2, "pic_format": 1, "pic_width": 128, "pic_height": 128, "key_frame_interval": 1}
settings["callback"] = taken
for name, setting in settings.items():
    assert getattr(acl.media, f"venc_set_channel_desc_{name}")(channel, setting) == 0
assert acl.media.venc_create_channel(channel) == 0
size = 128 * 128 * 3 // 2
pixels, _ = acl.media.dvpp_malloc(size)
acl.rt.memset(pixels, size, 90, size)
picture = acl.media.dvpp_create_pic_desc()
settings = {"data": pixels, "size": size, "format": 1, "width": 128, "height": 128, "width_stride": 128, "height_stride": 128}
for name, setting in settings.items():
    assert getattr(acl.media, f"dvpp_set_pic_desc_{name}")(picture, setting) == 0
config = acl.media.venc_create_frame_config()
assert acl.media.venc_send_frame(channel, picture, 0, config, None) == 0
assert acl.media.venc_set_frame_config_eos(config, 1) == 0
assert acl.media.venc_send_frame(channel, 0, 0, config, None) == 0
assert acl.media.venc_destroy_channel(channel) == 0
running.clear()
assert acl.util.stop_thread(thread) == 0
acl.media.venc_destroy_channel_desc(channel)
acl.media.venc_destroy_frame_config(config)
acl.media.dvpp_destroy_pic_desc(picture)
acl.media.dvpp_free(pixels)
""",
        tmp_path,
    )
