"""Canonical form of compiled functions."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

import pytest
from bytecode import BinaryOp, Compare

from bcmend.bytecode import behavior
from bcmend.bytecode import decode as decode_module
from bcmend.bytecode.decode import decode, slot_names, unfused
from bcmend.bytecode.instructions import DecodeError, Instruction, Label, Location, UnknownOpcode


def ops(function: Any) -> list[str]:
    return [each.op for each in decode(function.__code__).instructions]


def only(function: Any, op: str) -> Instruction:
    (found,) = (each for each in decode(function.__code__).instructions if each.op == op)
    return found


def compiled(source: str, *path: str) -> CodeType:
    """Compile ``source`` and follow the names of nested code objects."""
    code = compile(source, "source.py", "exec")
    for name in path:
        (code,) = (
            each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name
        )
    return code


def test_what_dis_shows_of_fused_instructions_is_taken_apart() -> None:
    def program(a, b):
        c, d = a, b
        return [c, d, c]

    found = list(unfused(program.__code__))
    accesses = [(each.opname, each.argval) for each in found if "_FAST" in each.opname]
    stores = [("STORE_FAST", name) for name in ("d", "c")]
    loads = [("LOAD_FAST", name) for name in ("a", "b", "c", "d", "c")]
    assert sorted(accesses) == sorted([*stores, *loads])
    assert [each.opname for each in found if each.opname == "RETURN_VALUE"]


def test_plain_function_has_nothing_but_meaning() -> None:
    def add(a, b):
        return a + b

    assert ops(add) == ["RESUME", "LOAD_FAST", "LOAD_FAST", "BINARY_OP", "RETURN_VALUE"]
    assert [each.arg for each in decode(add.__code__).instructions] == [
        0,
        "a",
        "b",
        BinaryOp.ADD,
        None,
    ]


def test_call_is_one_instruction_and_its_global_says_that_a_null_comes_along() -> None:
    def call(a):
        return len(a)

    assert "PRECALL" not in ops(call)
    assert only(call, "CALL").arg == 1
    assert only(call, "LOAD_GLOBAL").arg == (True, "len")


def test_attributes_and_methods() -> None:
    def attribute(a):
        return a.real

    def method(a):
        return a.conjugate()

    if behavior.HAS_LOAD_METHOD:
        assert only(attribute, "LOAD_ATTR").arg == "real"
        assert only(method, "LOAD_METHOD").arg == "conjugate"
    else:
        assert only(attribute, "LOAD_ATTR").arg == (False, "real")
        assert only(method, "LOAD_ATTR").arg == (True, "conjugate")


def test_comparison_is_an_enumeration_member() -> None:
    def less(a, b):
        return a < b

    def not_equal(a, b):
        return a != b

    assert only(less, "COMPARE_OP").arg is Compare.LT
    assert only(not_equal, "COMPARE_OP").arg is Compare.NE


def test_comparison_that_makes_a_bool() -> None:
    def choose(a, b):
        return 1 if a >= b else 2

    expected = "GE_CAST" if behavior.COMPARE_OP_CARRIES_BOOL else "GE"
    assert only(choose, "COMPARE_OP").arg is Compare[expected]


def test_jumps_have_no_direction_and_go_to_instructions() -> None:
    def loop(items):
        for item in items:
            if item:
                print(item)

    function = decode(loop.__code__)
    jumps = [each for each in function.instructions if each.target is not None]
    assert not any("FORWARD" in each.op or "BACKWARD" in each.op for each in jumps)
    (head,) = (i for i, each in enumerate(function.instructions) if each.op == "FOR_ITER")
    back = [each for each in jumps if each.op == "JUMP"]
    assert back and all(each.target == head for each in back)


def test_targets_are_the_instructions_that_dis_names() -> None:
    function = decode(dis._unpack_opargs.__code__)
    raw = {each.offset: each for each in dis.get_instructions(dis._unpack_opargs)}
    jumps = [each for each in function.instructions if each.target is not None]
    assert len(jumps) > 3
    for each in jumps:
        # A jump to EXTENDED_ARG or PRECALL goes to the instruction that follows it.
        offset = raw[each.offset].argval
        while raw[offset].opname in ("EXTENDED_ARG", "PRECALL"):
            offset = min(other for other in raw if other > offset)
        assert function.instructions[each.target].offset == offset


def test_wide_arguments_are_put_together() -> None:
    names = [f"name_{number}" for number in range(300)]
    code = compiled("def f():\n" + "".join(f"    {name}()\n" for name in names), "f")
    called = [e.arg[1] for e in decode(code).instructions if e.op == "LOAD_GLOBAL"]
    assert called == names
    assert any(each.opname == "EXTENDED_ARG" for each in dis.get_instructions(code))


def test_fused_instructions_are_taken_apart() -> None:
    def swap(a, b):
        c, d = b, a
        return c, d

    assert not any(op.count("_FAST") > 1 for op in ops(swap))
    touched = [(e.op, e.arg) for e in decode(swap.__code__).instructions if "FAST" in e.op]
    assert touched[:2] == [("LOAD_FAST", "b"), ("LOAD_FAST", "a")]
    assert sorted(touched[2:4]) == [("STORE_FAST", "c"), ("STORE_FAST", "d")]


def test_cells_are_loaded_as_closures_and_read_as_cells() -> None:
    def outer(argument):
        local = 1
        return argument, local, lambda: (argument, local)

    function = decode(outer.__code__)
    loads = [(e.op, e.arg) for e in function.instructions if e.op.startswith("LOAD_")]
    assert loads.count(("LOAD_CLOSURE", "argument")) == 1
    assert loads.count(("LOAD_CLOSURE", "local")) == 1
    assert loads.count(("LOAD_DEREF", "argument")) == 1
    assert loads.count(("LOAD_DEREF", "local")) == 1
    assert "LOAD_FAST" not in [op for op, _ in loads]


def test_free_variables_by_name() -> None:
    captured = object()

    def inner():
        return captured

    assert only(inner, "LOAD_DEREF").arg == "captured"
    assert only(inner, "COPY_FREE_VARS").arg == 1
    assert decode(inner.__code__).shape.freevars == ("captured",)


def test_local_of_an_inlined_comprehension_beside_a_free_variable_of_that_name() -> None:
    source = "def f():\n x = 1\n def g():\n  y = [x for x in z]\n  return x, y\n return g"
    function = decode(compiled(source, "f", "g"))
    assert ("LOAD_DEREF", "x") in [(e.op, e.arg) for e in function.instructions]
    if behavior.COMPREHENSIONS_ARE_INLINED:
        assert ("LOAD_FAST_AND_CLEAR", "x") in [(e.op, e.arg) for e in function.instructions]


def test_a_name_that_is_a_cell_and_a_free_variable_is_refused() -> None:
    source = "def f():\n x = 1\n def g():\n  y = [lambda: x for x in z]\n  return x, y\n return g"
    code = compiled(source, "f", "g")
    if behavior.COMPREHENSIONS_ARE_INLINED:
        with pytest.raises(DecodeError, match=r"f\.<locals>\.g"):
            decode(code)
    else:
        assert decode(code).shape.freevars == ("x",)


def test_unknown_opcode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compiled("def f(a): return -a", "f")
    monkeypatch.delitem(decode_module._OPCODES, dis.opmap["UNARY_NEGATIVE"])
    with pytest.raises(UnknownOpcode, match="UNARY_NEGATIVE"):
        decode(code)


def test_locations_and_offsets_are_those_of_the_code() -> None:
    code = compiled("def f(a):\n    return (a +\n        1)\n", "f")
    (add,) = (each for each in decode(code).instructions if each.op == "BINARY_OP")
    assert add.location == Location(2, 3, 12, 9)
    assert code.co_code[add.offset] == dis.opmap["BINARY_OP"]


def test_try_ranges_are_indices() -> None:
    def guarded(a):
        try:
            a()
        except ValueError:
            return 1
        return 2

    function = decode(guarded.__code__)
    called = next(i for i, each in enumerate(function.instructions) if each.op == "CALL")
    first = next(entry for entry in function.tries if entry.start <= called < entry.end)
    assert first.depth == 0 and not first.push_lasti
    assert function.instructions[first.handler].op == "PUSH_EXC_INFO"


def test_depth_of_a_try_range_counts_what_lies_below() -> None:
    def guarded(items):
        for item in items:
            with item:
                item()

    tries = decode(guarded.__code__).tries
    # Below the body lie the iterator and what the context manager is left by.
    assert (1 + behavior.WITH_KEEPS, True) in [(entry.depth, entry.push_lasti) for entry in tries]


def test_shape() -> None:
    code = compiled("def f(a, /, b, *c, d=1, **e):\n    'Text.'\n    g = a\n    return g", "f")
    shape = decode(code).shape
    assert (shape.name, shape.qualname, shape.filename) == ("f", "f", "source.py")
    assert (shape.argcount, shape.posonlyargcount, shape.kwonlyargcount) == (2, 1, 1)
    assert shape.argnames == ("a", "b", "d", "c", "e")
    assert shape.varnames == ("a", "b", "d", "c", "e", "g")
    assert shape.docstring == "Text."
    assert decode(compiled("def f():\n    return 'Text.'", "f")).shape.docstring is None


def test_slot_names_share_arguments_that_are_cells() -> None:
    assert slot_names(("a", "b"), ("b", "c"), ("d",)) == ("a", "b", "c", "d")


def test_labels_are_themselves_only() -> None:
    assert Label("x") != Label("x")
    assert repr(Label("x")) == "<Label x>"


def _with_bytes(code: CodeType, op: str, argument: int) -> CodeType:
    """Return code with another argument of the first instruction of a kind."""
    at = next(each.offset for each in dis.get_instructions(code) if each.opname == op)
    data = bytearray(code.co_code)
    data[at + 1] = argument
    return code.replace(co_code=bytes(data))


def test_an_argument_that_stands_for_nothing_is_refused() -> None:
    code = compiled("def f(a):\n    return g(a)", "f")
    names = [each.opname for each in dis.get_instructions(code)]
    for op in [each for each in names if each.startswith(("LOAD_GLOBAL", "LOAD_FAST"))]:
        with pytest.raises(DecodeError, match="stands for nothing"):
            decode(_with_bytes(code, op, 200))


def test_a_jump_out_of_the_code_is_refused() -> None:
    code = compiled("def f(a):\n    while a:\n        a = g(a)\n    return a", "f")
    names = [each.opname for each in dis.get_instructions(code)]
    backward = next(name for name in names if "JUMP_BACKWARD" in name)
    forward = next(name for name in names if name.endswith("IF_FALSE"))
    for op in (backward, forward):
        with pytest.raises(DecodeError, match="stands for nothing"):
            decode(_with_bytes(code, op, 250))
