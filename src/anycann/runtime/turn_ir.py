"""LLVM IR of the kernels that count the turns of a loop and cut and stack what it scans (`link_loops.py`)."""

from __future__ import annotations

# args: count, back (turns that are still to come), going, complete (bools), most (turns), condition (a bool)
_TURN = """
define void @anycann_turn(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
  %count_at = load ptr, ptr %args
  %back_slot = getelementptr ptr, ptr %args, i64 1
  %back_at = load ptr, ptr %back_slot
  %going_slot = getelementptr ptr, ptr %args, i64 2
  %going_at = load ptr, ptr %going_slot
  %complete_slot = getelementptr ptr, ptr %args, i64 3
  %complete_at = load ptr, ptr %complete_slot
  %most_slot = getelementptr ptr, ptr %args, i64 4
  %most_at = load ptr, ptr %most_slot
  %condition_slot = getelementptr ptr, ptr %args, i64 5
  %condition_at = load ptr, ptr %condition_slot
  %before = load i64, ptr %count_at, align 1
  %most = load i64, ptr %most_at, align 1
  %bool = load i8, ptr %condition_at
  %count = add i64 %before, 1
  %fewer = sub i64 %most, 1
  %back = sub i64 %fewer, %count
  %holds = icmp ne i8 %bool, 0
  %more = icmp slt i64 %count, %most
  %going = and i1 %holds, %more
  %complete = xor i1 %more, true
  %going_byte = zext i1 %going to i8
  %complete_byte = zext i1 %complete to i8
  store i64 %count, ptr %count_at, align 1
  store i64 %back, ptr %back_at, align 1
  store i8 %going_byte, ptr %going_at
  store i8 %complete_byte, ptr %complete_at
  ret void
}
"""

# args: a part, the whole, the number of the part; one task for each byte of a part, all of them at once
_PART = """
define void @anycann_$NAME$_part(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
  %first = load ptr, ptr %args
  %second_slot = getelementptr ptr, ptr %args, i64 1
  %second = load ptr, ptr %second_slot
  %number_slot = getelementptr ptr, ptr %args, i64 2
  %number_at = load ptr, ptr %number_slot
  %number = load i64, ptr %number_at, align 1
  %skipped = mul i64 %number, %end
  %place = getelementptr i8, ptr $WHOLE$, i64 %skipped
  %a = call ptr @memcpy(ptr $TO$, ptr $FROM$, i64 %end)
  ret void
}
"""


def turn_ir() -> str:
    """`@anycann_turn`, `@anycann_read_part(part, whole, number)` and `@anycann_write_part(whole, part, number)`; they need `@memcpy`."""
    read = {"NAME": "read", "WHOLE": "%second", "TO": "%first", "FROM": "%place"}
    write = {"NAME": "write", "WHOLE": "%first", "TO": "%place", "FROM": "%second"}
    return "\n".join((_TURN, *(_filled(_PART, words) for words in (read, write))))


def _filled(text: str, words: dict[str, str]) -> str:
    for name, word in words.items():
        text = text.replace(f"${name}$", word)
    return text
