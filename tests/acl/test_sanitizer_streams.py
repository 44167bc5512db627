from __future__ import annotations

from pathlib import Path

import pytest

from tests.acl.seeded import check

BEGIN = """
stream, _ = acl.rt.create_stream()
device, _ = acl.rt.malloc(64, 0)
host, _ = acl.rt.malloc_host(64)
acl.rt.memset(host, 64, 1, 64)
acl.rt.memset(device, 64, 2, 64)
"""
END = """
acl.rt.synchronize_stream(stream)
acl.rt.destroy_stream(stream)
acl.rt.free(device)
acl.rt.free_host(host)
"""
MISTAKES = {
    "a result is read before the stream is waited for": """
acl.rt.memcpy_async(host, 64, device, 64, 2, stream)
acl.util.ptr_to_bytes(host, 64)  #! used-before-synchronize
""",
    "a result is copied on before the stream is waited for": """
acl.rt.memset_async(device, 64, 3, 64, stream)
acl.rt.memcpy(host, 64, device, 64, 2)  #! used-before-synchronize
""",
    "a model's result is read before the stream is waited for": """
model, _ = acl.mdl.load_from_file(folder + "/fixed.om")
given, wanted = dataset(24), dataset(24)
acl.mdl.execute_async(model, given, wanted, stream)
acl.rt.memcpy(host, 64, address(wanted, 0), 24, 2)  #! used-before-synchronize
acl.rt.synchronize_stream(stream)
acl.mdl.unload(model)
end(given, wanted)
""",
    "the source is overwritten while it may be read": """
acl.rt.memcpy_async(device, 64, host, 64, 1, stream)
acl.rt.memset(host, 64, 9, 64)  #! overwritten-while-pending
""",
    "Python writes the source while it may be read": """
array = np.ones(64, np.uint8)
acl.rt.memcpy_async(device, 64, acl.util.numpy_to_ptr(array), 64, 1, stream)
array[:] = 2
acl.rt.synchronize_stream(stream)  #! overwritten-while-pending
""",
    "the host buffer is freed while a copy is pending": """
other, _ = acl.rt.malloc_host(64)
acl.rt.memset(other, 64, 1, 64)
acl.rt.memcpy_async(device, 64, other, 64, 1, stream)
acl.rt.free_host(other)  #! freed-while-pending
""",
    "a function lets its array go while a copy is pending": """
def work():
    array = np.ones(64, np.uint8)
    acl.rt.memcpy_async(device, 64, array.ctypes.data, 64, 1, stream)  #! temporary-gone
    del array
    acl.rt.synchronize_stream(stream)

work()
""",
    "the array is let go while a copy is pending": """
array = np.ones(64, np.uint8)
acl.rt.memcpy_async(device, 64, acl.util.numpy_to_ptr(array), 64, 1, stream)  #! temporary-gone
del array
acl.rt.synchronize_stream(stream)
""",
    "a stream is destroyed with work in it": """
other, _ = acl.rt.create_stream()
acl.rt.memset_async(device, 64, 3, 64, other)
acl.rt.destroy_stream(other)  #! destroyed-while-pending
""",
    "an event is destroyed before it is reached": """
event, _ = acl.rt.create_event()
acl.rt.memset_async(device, 64, 3, 64, stream)
acl.rt.record_event(event, stream)
acl.rt.destroy_event(event)  #! destroyed-while-pending
""",
    "a context is destroyed with work in its streams": """
context, _ = acl.rt.create_context(0)
other, _ = acl.rt.create_stream()
acl.rt.memset_async(device, 64, 3, 64, other)
acl.rt.destroy_context(context)  #! destroyed-while-pending
acl.rt.set_device(0)
acl.rt.reset_device(0)
""",
    "two streams write the same memory": """
other, _ = acl.rt.create_stream()
acl.rt.memset_async(device, 64, 3, 64, stream)
acl.rt.memset_async(device, 64, 4, 64, other)  #! race-between-streams
acl.rt.synchronize_stream(other)
acl.rt.destroy_stream(other)
""",
    "a stream of another context": """
context, _ = acl.rt.create_context(0)
acl.rt.memset_async(device, 64, 3, 64, stream)  #! other-context
acl.rt.destroy_context(context)
acl.rt.set_device(0)
acl.rt.reset_device(0)
""",
    "a callback that no thread takes": """
acl.rt.launch_callback(print, None, 0, stream)  #! stream-not-subscribed
""",
    "a callback that its thread never takes": """
acl.rt.subscribe_report(threading.get_ident(), stream)
acl.rt.launch_callback(print, None, 0, stream)
acl.rt.unsubscribe_report(threading.get_ident(), stream)  #! callback-never-run
""",
    "a thread waits for callbacks that it takes itself": """
acl.rt.subscribe_report(threading.get_ident(), stream)
acl.rt.launch_callback(print, None, 0, stream)
acl.rt.synchronize_stream(stream)  #! callback-deadlock
acl.rt.process_report(1000)
acl.rt.unsubscribe_report(threading.get_ident(), stream)
""",
    "a stream that still reports at the end": """
acl.rt.subscribe_report(threading.get_ident(), stream)  #! still-subscribed
""",
    "a thread asks for reports that no stream makes": """
acl.rt.process_report(1)  #! thread-not-subscribed
""",
}
CLEAN = {
    "everything is waited for": """
acl.rt.memcpy_async(device, 64, host, 64, 1, stream)
acl.rt.memcpy_async(host, 64, device, 64, 2, stream)
acl.rt.synchronize_stream(stream)
acl.util.ptr_to_bytes(host, 64)
""",
    "a stream waits for another by an event": """
other, _ = acl.rt.create_stream()
event, _ = acl.rt.create_event()
acl.rt.memset_async(device, 64, 3, 64, stream)
acl.rt.record_event(event, stream)
acl.rt.stream_wait_event(other, event)
acl.rt.memcpy_async(host, 64, device, 64, 2, other)
acl.rt.synchronize_stream(other)
acl.util.ptr_to_bytes(host, 64)
acl.rt.destroy_event(event)
acl.rt.destroy_stream(other)
""",
    "a callback reads what its stream made": """
context, _ = acl.rt.get_context()
done = threading.Event()

def reports(arguments):
    acl.rt.set_context(context)
    while not done.is_set():
        acl.rt.process_report(10)

def read(data):
    acl.util.ptr_to_bytes(host, 64)

thread, _ = acl.util.start_thread(reports, [])
acl.rt.subscribe_report(thread, stream)
acl.rt.memcpy_async(host, 64, device, 64, 2, stream)
acl.rt.launch_callback(read, None, 1, stream)
acl.rt.synchronize_stream(stream)
acl.rt.unsubscribe_report(thread, stream)
done.set()
acl.util.stop_thread(thread)
""",
}


@pytest.mark.parametrize("program", MISTAKES.values(), ids=list(MISTAKES))
def test_the_line_of_a_mistake_is_found(tmp_path: Path, program: str) -> None:
    check(BEGIN + program + END, tmp_path)


@pytest.mark.parametrize("program", CLEAN.values(), ids=list(CLEAN))
def test_nothing_is_said_of_a_program_without_mistakes(tmp_path: Path, program: str) -> None:
    assert check(BEGIN + program + END, tmp_path).endswith("AnyCANN sanitizer: 0 errors, 0 notes\n")
