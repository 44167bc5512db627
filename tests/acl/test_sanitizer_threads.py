"""The sanitizer: mistakes in threads, in callbacks, with pictures and with shapes of a run, each found at its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acl.seeded import check
from tests.acl.test_sanitizer_asynchronous import PICTURES, PICTURES_END
from tests.acl.test_sanitizer_models import END as MODEL_END
from tests.acl.test_sanitizer_models import FIXED, GEARS

STREAMS = """
context, _ = acl.rt.get_context()
stream, _ = acl.rt.create_stream()
other, _ = acl.rt.create_stream()
data, _ = acl.rt.malloc(1 << 20, 0)
source, _ = acl.rt.malloc(1 << 20, 0)
acl.rt.memset(source, 1 << 20, 1, 1 << 20)
host, _ = acl.rt.malloc_host(1 << 20)

def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""
STREAMS_END = """
acl.rt.synchronize_stream(stream)
acl.rt.synchronize_stream(other)
acl.rt.destroy_stream(other)
acl.rt.destroy_stream(stream)
acl.rt.free(source)
acl.rt.free_host(host)
"""
REPORTS = """
going = [True]
called = threading.Event()

def take_reports(arguments):
    acl.rt.set_context(context)
    while going[0]:
        acl.rt.process_report(100)

thread, _ = acl.util.start_thread(take_reports, [])
acl.rt.subscribe_report(thread, stream)
"""
REPORTS_END = """
called.wait(600)
acl.rt.unsubscribe_report(thread, stream)
going[0] = False
acl.util.stop_thread(thread)
"""
MISTAKES = {
    "another thread frees what a copy still writes": STREAMS
    + """
acl.rt.memcpy_async(data, 1 << 20, source, 1 << 20, 3, stream)

def work():
    acl.rt.set_context(context)
    acl.rt.free(data)  #! freed-while-pending

in_thread(work)
"""
    + STREAMS_END,
    "a copy fails because its memory was freed, and is waited for": STREAMS
    + """
acl.rt.memset(source, 8, 0, 8)
acl.rt.value_wait(source, 1, 1, stream)
acl.rt.memcpy_async(data, 64, host, 64, 1, stream)
acl.rt.free(data)  #! freed-while-pending
acl.rt.value_write(source, 1, 0, other)
"""
    + STREAMS_END,
    "a thread takes no context": STREAMS
    + """
def work():
    acl.rt.memcpy(host, 64, source, 64, 2)  #! no-context

in_thread(work)
acl.rt.free(data)
"""
    + STREAMS_END,
    "a worker reads what another thread launched": STREAMS
    + """
acl.rt.memcpy_async(data, 1 << 20, source, 1 << 20, 3, stream)

def work():
    acl.rt.set_context(context)
    acl.rt.synchronize_stream(other)  # the wrong one
    acl.rt.memcpy(host, 64, data, 64, 2)  #! used-before-synchronize

in_thread(work)
acl.rt.synchronize_stream(stream)
acl.rt.free(data)
"""
    + STREAMS_END,
    "the array of a thread is gone when the stream copies it": STREAMS
    + """
def work():
    acl.rt.set_context(context)
    content = np.ones(1 << 20, np.uint8)
    acl.rt.memcpy_async(data, 1 << 20, acl.util.numpy_to_ptr(content), 1 << 20, 1, stream)  #! temporary-gone

in_thread(work)
acl.rt.synchronize_stream(stream)
acl.rt.free(data)
"""
    + STREAMS_END,
    "a callback reads what another stream makes": STREAMS
    + REPORTS
    + """
def report(arguments):
    acl.rt.memcpy(host, 64, data, 64, 2)  #! used-before-synchronize
    called.set()

acl.rt.memcpy_async(data, 1 << 20, source, 1 << 20, 3, other)
acl.rt.launch_callback(report, [], 1, stream)
"""
    + REPORTS_END
    + STREAMS_END
    + "acl.rt.free(data)",
    "a callback frees what the program frees again": STREAMS
    + REPORTS
    + """
def report(arguments):
    acl.rt.free(data)
    called.set()

acl.rt.launch_callback(report, [], 1, stream)
"""
    + REPORTS_END
    + STREAMS_END
    + "acl.rt.free(data)  #! double-free",
    "two threads run a model into the same memory": FIXED
    + """
context, _ = acl.rt.get_context()
streams = [acl.rt.create_stream()[0] for _ in range(2)]

acl.mdl.execute_async(model, given, wanted, streams[0])

def work():
    acl.rt.set_context(context)
    acl.mdl.execute_async(model, given, wanted, streams[1])  #! race-between-streams

thread = threading.Thread(target=work)
thread.start()
thread.join()
for stream in streams:
    acl.rt.synchronize_stream(stream)
    acl.rt.destroy_stream(stream)
"""
    + MODEL_END,
    "a picture is larger than its memory": PICTURES
    + """
large, large_data, _ = picture(64, 32, True)
acl.media.dvpp_set_pic_desc_size(small, 64 * 32 * 3 // 2)
acl.media.dvpp_set_pic_desc_width(small, 64)
acl.media.dvpp_set_pic_desc_width_stride(small, 64)
acl.media.dvpp_set_pic_desc_height(small, 32)
acl.media.dvpp_set_pic_desc_height_stride(small, 32)
acl.media.dvpp_vpc_resize_async(channel, large, small, config, stream)  #! out-of-bounds
"""
    + PICTURES_END,
    "a JPEG file is said to be longer than its memory": PICTURES
    + """
large, large_data, _ = picture(64, 32, True)
file, _ = acl.media.dvpp_malloc(1000)
acl.rt.memset(file, 1000, 0, 1000)
acl.media.dvpp_jpeg_decode_async(channel, file, 2000, large, stream)  #! out-of-bounds
acl.media.dvpp_free(file)
"""
    + PICTURES_END,
    "a picture is described by what was destroyed": PICTURES
    + """
large, large_data, _ = picture(64, 32, True)
acl.media.dvpp_destroy_pic_desc(large)
acl.media.dvpp_vpc_resize_async(channel, large, small, config, stream)  #! use-after-destroy
large = acl.media.dvpp_create_pic_desc()
"""
    + PICTURES_END,
    "a gear is chosen for another dataset": GEARS
    + """
another = dataset(48, 4)
assert acl.mdl.set_dynamic_batch_size(model, another, 1, 4) == 0
acl.mdl.execute(model, given, wanted)  #! gear-not-set
end(another)
"""
    + MODEL_END,
    "a buffer is too small for the gear that was chosen": GEARS
    + """
short, _ = acl.rt.malloc(12, 0)
acl.rt.memset(short, 12, 1, 12)
acl.rt.free(address(given, 0))
acl.update_data_buffer(acl.mdl.get_dataset_buffer(given, 0), short, 12)
assert acl.mdl.set_dynamic_batch_size(model, given, 1, 4) == 0
acl.mdl.execute(model, given, wanted)  #! buffer-too-small
"""
    + MODEL_END,
    "a shape of a run is larger than its buffer": """
model, _ = acl.mdl.load_from_file(folder + "/open.om")
given, wanted = dataset(24), dataset(48)
desc = acl.create_tensor_desc(0, [4, 3], 2)
acl.mdl.set_dataset_tensor_desc(given, desc, 0)
acl.mdl.execute(model, given, wanted)  #! buffer-too-small
acl.destroy_tensor_desc(desc)
"""
    + MODEL_END,
    "more is read than the shape of a run made": """
model, _ = acl.mdl.load_from_file(folder + "/open.om")
given = dataset(48)
result, _ = acl.rt.malloc(48, 0)
wanted = acl.mdl.create_dataset()
acl.mdl.add_dataset_buffer(wanted, acl.create_data_buffer(result, 48))
desc = acl.create_tensor_desc(0, [2, 3], 2)
acl.mdl.set_dataset_tensor_desc(given, desc, 0)
acl.mdl.execute(model, given, wanted)
host, _ = acl.rt.malloc_host(48)
acl.rt.memcpy(host, 48, result, 48, 2)  #? uninitialised-read
acl.rt.free_host(host)
acl.destroy_tensor_desc(desc)
"""
    + MODEL_END,
}
FINE = {
    "threads with contexts, reports and pictures": STREAMS
    + REPORTS
    + """
acl.rt.memcpy_async(data, 1 << 20, source, 1 << 20, 3, stream)

def report(arguments):
    acl.rt.memcpy(host, 64, data, 64, 2)
    called.set()

acl.rt.launch_callback(report, [], 1, stream)

def work():
    acl.rt.set_context(context)
    acl.rt.synchronize_stream(stream)
    acl.rt.memcpy(host, 64, data, 64, 2)

in_thread(work)
"""
    + REPORTS_END
    + STREAMS_END
    + "acl.rt.free(data)",
    "shapes of runs": """
model, _ = acl.mdl.load_from_file(folder + "/open.om")
given, wanted = dataset(48), dataset(48)
for rows in (4, 2):
    desc = acl.create_tensor_desc(0, [rows, 3], 2)
    acl.mdl.set_dataset_tensor_desc(given, desc, 0)
    acl.destroy_tensor_desc(desc)
    assert acl.mdl.execute(model, given, wanted) == 0
    assert acl.get_tensor_desc_dim_v2(acl.mdl.get_dataset_tensor_desc(wanted, 0), 0) == (rows, 0)
"""
    + MODEL_END,
}


@pytest.mark.parametrize("program", MISTAKES.values(), ids=MISTAKES)
def test_the_line_of_a_mistake_is_found(tmp_path: Path, program: str) -> None:
    check(program, tmp_path)


@pytest.mark.parametrize("program", FINE.values(), ids=FINE)
def test_nothing_is_said_of_a_program_without_mistakes(tmp_path: Path, program: str) -> None:
    check(program, tmp_path)
