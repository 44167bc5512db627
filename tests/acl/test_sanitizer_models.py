from __future__ import annotations

from pathlib import Path

import pytest

from tests.acl.seeded import check

FIXED = """
model, _ = acl.mdl.load_from_file(folder + "/fixed.om")
given, wanted = dataset(24), dataset(24)
"""
GEARS = """
model, _ = acl.mdl.load_from_file(folder + "/gears.om")
given, wanted = dataset(48, 4), dataset(48)
"""
END = """
acl.mdl.unload(model)
end(given, wanted)
"""
MISTAKES = {
    "memory of an input was freed": FIXED
    + """
kept = address(given, 0)
acl.rt.free(kept)
acl.mdl.execute(model, given, wanted)  #! use-after-free
ptr, _ = acl.rt.malloc(24, 0)
acl.update_data_buffer(acl.mdl.get_dataset_buffer(given, 0), ptr, 24)
"""
    + END,
    "an input was never written": FIXED
    + """
ptr, _ = acl.rt.malloc(24, 0)
acl.rt.free(address(given, 0))
acl.update_data_buffer(acl.mdl.get_dataset_buffer(given, 0), ptr, 24)
acl.mdl.execute(model, given, wanted)  #! uninitialised-read
"""
    + END,
    "a batch is not full": FIXED
    + """
end(given)
for written, index in ((12, 0), (8, 1)):
    given = dataset(24)
    ptr, _ = acl.rt.malloc(24, 0)
    acl.rt.free(address(given, 0))
    acl.update_data_buffer(acl.mdl.get_dataset_buffer(given, 0), ptr, 24)
    acl.rt.memset(ptr, 24, 1, written)
    if index:
        acl.mdl.execute(model, given, wanted)  #! uninitialised-read
    else:
        acl.mdl.execute(model, given, wanted)  #? uninitialised-read
    end(given)
given = dataset(24)
"""
    + END,
    "a data buffer is smaller than the model needs": FIXED
    + """
small = dataset(20)
acl.mdl.execute(model, given, small)  #! buffer-too-small
end(small)
"""
    + END,
    "a dataset that is used again has too many buffers": FIXED
    + """
ptr, _ = acl.rt.malloc(24, 0)
acl.mdl.add_dataset_buffer(given, acl.create_data_buffer(ptr, 24))
acl.mdl.execute(model, given, wanted)  #! wrong-buffer-count
"""
    + END,
    "a data buffer was destroyed": FIXED
    + """
buffer = acl.mdl.get_dataset_buffer(given, 0)
acl.rt.free(address(given, 0))
acl.destroy_data_buffer(buffer)
acl.mdl.execute(model, given, wanted)  #! use-after-destroy
acl.mdl.destroy_dataset(given)
acl.mdl.unload(model)
end(wanted)
""",
    "an input lies on the host": FIXED
    + """
array = np.ones((2, 3), np.float32)
own = acl.mdl.create_dataset()
buffer = acl.create_data_buffer(acl.util.numpy_to_ptr(array), 24)
acl.mdl.add_dataset_buffer(own, buffer)
acl.mdl.execute(model, own, wanted)  #! host-memory-for-model
acl.destroy_data_buffer(buffer)
acl.mdl.destroy_dataset(own)
"""
    + END,
    "a data buffer is larger than its memory": FIXED
    + """
buffer = acl.create_data_buffer(address(given, 0), 25)  #! out-of-bounds
acl.destroy_data_buffer(buffer)
"""
    + END,
    "no gear was chosen": GEARS
    + """
acl.mdl.execute(model, given, wanted)  #! gear-not-set
"""
    + END,
    "a model is unloaded while it may run": FIXED
    + """
stream, _ = acl.rt.create_stream()
acl.mdl.execute_async(model, given, wanted, stream)
acl.mdl.unload(model)  #! unloaded-while-pending
acl.rt.synchronize_stream(stream)
acl.rt.destroy_stream(stream)
end(given, wanted)
""",
    "a model runs after it was unloaded": FIXED
    + """
acl.mdl.unload(model)
acl.mdl.execute(model, given, wanted)  #! use-after-unload
acl.mdl.unload(model)  #! double-unload
end(given, wanted)
""",
    "a description is asked after its model was unloaded": FIXED
    + """
desc = acl.mdl.create_desc()
acl.mdl.get_desc(desc, model)
acl.mdl.unload(model)
acl.mdl.get_cur_output_dims(desc, 0)  #! use-after-unload
acl.mdl.destroy_desc(desc)
end(given, wanted)
""",
    "the value of a load that failed is used": """
model, ret = acl.mdl.load_from_file(folder + "/none.om")
desc = acl.mdl.create_desc()
acl.mdl.get_desc(desc, model)  #! failure-ignored
acl.mdl.destroy_desc(desc)
""",
}
CLEAN = {
    "a run, and a description after it": FIXED
    + """
desc = acl.mdl.create_desc()
acl.mdl.get_desc(desc, model)
host, _ = acl.rt.malloc_host(24)
for turn in range(3):
    assert acl.mdl.execute(model, given, wanted) == 0
    acl.rt.memcpy(host, 24, address(wanted, 0), 24, 2)
acl.rt.free_host(host)
acl.mdl.unload(model)
acl.mdl.destroy_desc(desc)
end(given, wanted)
""",
    "a gear is chosen": GEARS
    + """
array = np.ones((1, 3), np.float32)
acl.mdl.set_dynamic_batch_size(model, given, 1, 1)
assert acl.mdl.execute(model, given, wanted) == 0
acl.rt.memcpy(acl.util.numpy_to_ptr(array), 12, address(wanted, 0), 12, 2)
"""
    + END,
}


@pytest.mark.parametrize("program", MISTAKES.values(), ids=list(MISTAKES))
def test_the_line_of_a_mistake_is_found(tmp_path: Path, program: str) -> None:
    check(program, tmp_path)


@pytest.mark.parametrize("program", CLEAN.values(), ids=list(CLEAN))
def test_nothing_is_said_of_a_program_without_mistakes(tmp_path: Path, program: str) -> None:
    assert check(program, tmp_path).endswith("AnyCANN sanitizer: 0 errors, 0 notes\n")
