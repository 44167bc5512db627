from __future__ import annotations

from pathlib import Path

import pytest

from tests.acl.seeded import check

PICTURES = """
def picture(width, height, written):
    desc, size = acl.media.dvpp_create_pic_desc(), width * height * 3 // 2
    data, _ = acl.media.dvpp_malloc(size)
    if written:
        acl.rt.memset(data, size, 128, size)
    for name, value in (("data", data), ("size", size), ("format", 1), ("width", width), ("height", height),
                        ("width_stride", width), ("height_stride", height)):
        assert getattr(acl.media, "dvpp_set_pic_desc_" + name)(desc, value) == 0
    return desc, data, size

channel = acl.media.dvpp_create_channel_desc()
acl.media.dvpp_create_channel(channel)
config = acl.media.dvpp_create_resize_config()
stream, _ = acl.rt.create_stream()
small, small_data, small_size = picture(32, 16, False)
host, _ = acl.rt.malloc_host(small_size)
"""
PICTURES_END = """
acl.rt.synchronize_stream(stream)
acl.media.dvpp_free(small_data)
acl.media.dvpp_free(large_data)
acl.media.dvpp_destroy_pic_desc(small)
acl.media.dvpp_destroy_pic_desc(large)
acl.media.dvpp_destroy_resize_config(config)
acl.media.dvpp_destroy_channel(channel)
acl.media.dvpp_destroy_channel_desc(channel)
acl.rt.destroy_stream(stream)
acl.rt.free_host(host)
"""
OPERATORS = """
stream, _ = acl.rt.create_stream()
given, wanted = dataset(24), dataset(24)
buffers = [acl.mdl.get_dataset_buffer(made, 0) for made in (given, wanted)]
desc = acl.create_tensor_desc(0, [2, 3], 2)
attr = acl.op.create_attr()
host, _ = acl.rt.malloc_host(24)
"""
OPERATORS_END = """
acl.rt.synchronize_stream(stream)
acl.op.destroy_attr(attr)
acl.destroy_tensor_desc(desc)
acl.rt.free_host(host)
acl.rt.destroy_stream(stream)
end(given, wanted)
"""
MISTAKES = {
    "a scaled picture is read before the stream is waited for": PICTURES
    + """
large, large_data, _ = picture(64, 32, True)
assert acl.media.dvpp_vpc_resize_async(channel, large, small, config, stream) == 0
acl.rt.memcpy(host, small_size, small_data, small_size, 2)  #! used-before-synchronize
"""
    + PICTURES_END,
    "a picture is scaled that nobody wrote": PICTURES
    + """
large, large_data, _ = picture(64, 32, False)
acl.media.dvpp_vpc_resize_async(channel, large, small, config, stream)  #! uninitialised-read
"""
    + PICTURES_END,
    "a picture is freed while it is scaled": PICTURES
    + """
large, large_data, _ = picture(64, 32, True)
acl.media.dvpp_vpc_resize_async(channel, large, small, config, stream)
acl.media.dvpp_free(large_data)  #! freed-while-pending
acl.rt.synchronize_stream(stream)
large_data, _ = acl.media.dvpp_malloc(64)
"""
    + PICTURES_END,
    "the result of an operator is read before the stream is waited for": OPERATORS
    + """
assert acl.op.execute_v2("Add", [desc] * 2, [buffers[0]] * 2, [desc], [buffers[1]], attr, stream) == 0
acl.rt.memcpy(host, 24, address(wanted, 0), 24, 2)  #! used-before-synchronize
"""
    + OPERATORS_END,
}
CLEAN = {
    "pictures": PICTURES
    + """
large, large_data, _ = picture(64, 32, True)
assert acl.media.dvpp_vpc_resize_async(channel, large, small, config, stream) == 0
acl.rt.synchronize_stream(stream)
acl.rt.memcpy(host, small_size, small_data, small_size, 2)
"""
    + PICTURES_END,
    "operators": OPERATORS
    + """
assert acl.op.execute_v2("Add", [desc] * 2, [buffers[0]] * 2, [desc], [buffers[1]], attr, stream) == 0
acl.rt.synchronize_stream(stream)
acl.rt.memcpy(host, 24, address(wanted, 0), 24, 2)
"""
    + OPERATORS_END,
}


@pytest.mark.parametrize("program", MISTAKES.values(), ids=list(MISTAKES))
def test_the_line_of_a_mistake_is_found(tmp_path: Path, program: str) -> None:
    check(program, tmp_path)


@pytest.mark.parametrize("program", CLEAN.values(), ids=list(CLEAN))
def test_nothing_is_said_of_a_program_without_mistakes(tmp_path: Path, program: str) -> None:
    assert check(program, tmp_path).endswith("AnyCANN sanitizer: 0 errors, 0 notes\n")
