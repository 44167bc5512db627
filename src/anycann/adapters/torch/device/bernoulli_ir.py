"""The generated code of `bernoulli.py`: blocks of the Mersenne Twister, and pairs of its numbers compared with a threshold."""

from __future__ import annotations

BLOCK, _AHEAD = 624, 397  # words of the state; how far the recurrence looks ahead
_LANES = 16
_UPPER, _LOWER, _TWIST = 1 << 31, (1 << 31) - 1, 0x9908B0DF
_TEMPER = (("lshr", 11, -1), ("shl", 7, 0x9D2C5680), ("shl", 15, 0xEFC60000), ("lshr", 18, -1))


def bernoulli_ir() -> str:
    """`torch_npu_bernoulli(words, next, count, threshold, out)`: bytes 0 or 1 to `out`, and how many numbers of the block are consumed.

    `words` has the block, of which `next` numbers are consumed, and room for another one; the last block is there afterwards. Byte n is
    whether the lower 53 bits of the numbers 2n and 2n + 1 together, the first one being the upper half, are below the threshold.
    """
    return "\n".join((_next_block_ir(), _temper_ir(), _compare_ir(), _DRAW))


def _loop(body: str, steps: int) -> str:
    """`body` for every vector of a block, which begins at word %at."""
    return f"""
entry:
  br label %step

step:
  %at = phi i64 [0, %entry], [%at.next, %step]
{body}
  %at.next = add i64 %at, {_LANES}
  %more = icmp ult i64 %at.next, {steps * _LANES}
  br i1 %more, label %step, label %done

done:"""


def _same(value: int) -> str:
    """A constant vector; 32 bits have a sign in LLVM's text."""
    return f"splat (i32 {value - (1 << 32) if value >= 1 << 31 else value})"


def _next_block_ir() -> str:
    kind = f"<{_LANES} x i32>"
    reads = "\n".join(
        f"  %{name}.at = add i64 %at, {offset}\n  %{name}.p = getelementptr i32, ptr %words, i64 %{name}.at\n"
        f"  %{name} = load {kind}, ptr %{name}.p, align 4"
        for name, offset in (("here", 0), ("next", 1), ("ahead", _AHEAD))
    )
    body = f"""{reads}
  %upper = and {kind} %here, {_same(_UPPER)}
  %lower = and {kind} %next, {_same(_LOWER)}
  %mixed = or {kind} %upper, %lower
  %half = lshr {kind} %mixed, {_same(1)}
  %last = and {kind} %next, {_same(1)}
  %odd = sub {kind} zeroinitializer, %last
  %twist = and {kind} %odd, {_same(_TWIST)}
  %moved = xor {kind} %half, %twist
  %new = xor {kind} %ahead, %moved
  %new.at = add i64 %at, {BLOCK}
  %new.p = getelementptr i32, ptr %words, i64 %new.at
  store {kind} %new, ptr %new.p, align 4"""
    return f"""
define internal void @next_block(ptr %words) {{{_loop(body, BLOCK // _LANES)}
  %second = getelementptr i32, ptr %words, i64 {BLOCK}
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %second, i64 {4 * BLOCK}, i1 false)
  ret void
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"""


def _temper_ir() -> str:
    kind, lines, value = f"<{_LANES} x i32>", [], "%y0"
    for step, (shift, bits, mask) in enumerate(_TEMPER, 1):
        lines += [
            f"  %s{step} = {shift} {kind} {value}, {_same(bits)}",
            f"  %m{step} = and {kind} %s{step}, {_same(mask)}",
            f"  %y{step} = xor {kind} {value}, %m{step}",
        ]
        value = f"%y{step}"
    steps = "\n".join(lines)
    body = f"""  %word.p = getelementptr i32, ptr %words, i64 %at
  %y0 = load {kind}, ptr %word.p, align 4
{steps}
  %number.p = getelementptr i32, ptr %numbers, i64 %at
  store {kind} {value}, ptr %number.p, align 4"""
    return f"""
define internal void @temper(ptr %words, ptr %numbers) {{{_loop(body, BLOCK // _LANES)}
  ret void
}}"""


def _compare_ir() -> str:
    """Eight pairs at a time, then one."""
    return "\n".join(_compare_of(name, lanes) for name, lanes in (("compare", 1), ("compare_8", 8)))


def _compare_of(name: str, lanes: int) -> str:
    wide, byte, bit = (f"<{lanes} x {kind}>" for kind in ("i64", "i8", "i1"))
    return f"""
define internal void @{name}(ptr %numbers, i64 %threshold, ptr %out) alwaysinline {{
  %one = insertelement {wide} poison, i64 %threshold, i64 0
  %limit = shufflevector {wide} %one, {wide} poison, <{lanes} x i32> zeroinitializer
  %pair = load {wide}, ptr %numbers, align 4
  %upper = shl {wide} %pair, splat (i64 32)
  %lower = lshr {wide} %pair, splat (i64 32)
  %whole = or {wide} %upper, %lower
  %drawn = and {wide} %whole, splat (i64 {(1 << 53) - 1})
  %below = icmp slt {wide} %drawn, %limit
  %result = zext {bit} %below to {byte}
  store {byte} %result, ptr %out, align 1
  ret void
}}"""


# The numbers of a block stand behind one place for a number that the block before left over.
_DRAW = f"""
define i64 @torch_npu_bernoulli(ptr %words, i64 %next, i64 %count, i64 %threshold, ptr %out) {{
entry:
  %numbers = alloca [{BLOCK + 1} x i32], align 64
  %fresh = getelementptr i32, ptr %numbers, i64 1
  call void @temper(ptr %words, ptr %fresh)
  %first = add i64 %next, 1
  br label %block

block:
  %begin = phi i64 [%first, %entry], [%kept.begin, %renew]
  %done = phi i64 [0, %entry], [%n.last, %renew]
  %numbers.left = sub i64 {BLOCK + 1}, %begin
  %pairs.left = lshr i64 %numbers.left, 1
  %wanted = sub i64 %count, %done
  %enough = icmp ule i64 %wanted, %pairs.left
  %pairs = select i1 %enough, i64 %wanted, i64 %pairs.left
  %stop = add i64 %done, %pairs
  br label %eight

eight:
  %n = phi i64 [%done, %block], [%n.8, %eight.do]
  %at = phi i64 [%begin, %block], [%at.8, %eight.do]
  %n.8 = add i64 %n, 8
  %at.8 = add i64 %at, 16
  %eight.fit = icmp ule i64 %n.8, %stop
  br i1 %eight.fit, label %eight.do, label %single

eight.do:
  %eight.p = getelementptr i32, ptr %numbers, i64 %at
  %eight.out = getelementptr i8, ptr %out, i64 %n
  call void @compare_8(ptr %eight.p, i64 %threshold, ptr %eight.out)
  br label %eight

single:
  %n.last = phi i64 [%n, %eight], [%n.1, %single.do]
  %at.last = phi i64 [%at, %eight], [%at.1, %single.do]
  %single.fit = icmp ult i64 %n.last, %stop
  br i1 %single.fit, label %single.do, label %end_of_block

single.do:
  %single.p = getelementptr i32, ptr %numbers, i64 %at.last
  %single.out = getelementptr i8, ptr %out, i64 %n.last
  call void @compare(ptr %single.p, i64 %threshold, ptr %single.out)
  %n.1 = add i64 %n.last, 1
  %at.1 = add i64 %at.last, 2
  br label %single

end_of_block:
  %finished = icmp eq i64 %n.last, %count
  br i1 %finished, label %finish, label %renew

renew:
  %last.p = getelementptr i32, ptr %numbers, i64 {BLOCK}
  %last = load i32, ptr %last.p
  store i32 %last, ptr %numbers
  %kept.begin = sub i64 %at.last, {BLOCK}
  call void @next_block(ptr %words)
  call void @temper(ptr %words, ptr %fresh)
  br label %block

finish:
  %consumed = sub i64 %at.last, 1
  ret i64 %consumed
}}
"""
