"""Programs that once differed from eager execution or from stock torch.compile."""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bcmend.patching.installer import analysed
from bcmend.policy import DEFAULT
from tests.equivalence import assert_equivalent, call, leave_unpatched, run_compiled

POSITIVE, NEGATIVE = torch.ones(3), -torch.ones(3)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


@torch.compiler.disable
def _say(text: str) -> None:
    print(text)


def test_output_around_a_graph_break_keeps_its_order() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            print("before")
            _say("in between")
            print("after")
            return x + 1

        return program

    assert_equivalent(make, lambda: [call(POSITIVE), call(NEGATIVE)], fullgraph=False, graphs=None)


def test_nothing_after_a_graph_break_runs_when_a_check_before_it_has_failed() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            assert x.sum() > 0, "not positive"
            _say("in between")
            return x + 1

        return program

    assert_equivalent(make, lambda: [call(POSITIVE), call(NEGATIVE)], fullgraph=False, graphs=None)


def test_a_record_in_a_frame_without_operations_makes_no_graph() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor | None:
            if x.sum() > 0:
                print(x)
                return x
            return None

        return program

    inputs = [call(POSITIVE), call(NEGATIVE)]
    stock = run_compiled(make, lambda: inputs, fullgraph=False, way=leave_unpatched)
    assert_equivalent(
        make, lambda: inputs, fullgraph=False, graphs=stock.graphs, recompiles=stock.later_frames
    )


def test_output_before_a_graph_break_shows_tensors_as_they_were() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            print("first", x)
            x.add_(1)
            torch._dynamo.graph_break()
            print("second", x)
            torch._dynamo.graph_break()
            return x.add_(1)

        return program

    assert_equivalent(
        make, lambda: [call(POSITIVE.clone())], fullgraph=False, graphs=None, recompiles=None
    )


class _Counting(nn.Module):
    """Changes its state before a check that may fail, and breaks the graph inside ``no_grad``."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[Tensor] = []
        self.table: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        assert x.max() < 100, "too big"
        self.calls += 1
        self.seen.append(x)
        self.table["last"] = x
        with torch.no_grad():
            assert x.sum() > 0, "not positive"
            _say("in between")
        return x + 1


def test_changes_before_a_check_that_fails_at_a_graph_break_are_made() -> None:
    inputs = [call(POSITIVE), call(NEGATIVE), call(POSITIVE.clone())]
    assert_equivalent(_Counting, lambda: inputs, fullgraph=False, graphs=None, recompiles=None)
    assert torch.is_grad_enabled()


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1  # a new value at every call: Dynamo compiles again, up to its limit
        if x.sum() > 1:
            return x * 2
        return x + 1


class _CallsPastTheLimit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = _Layer()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2 * torch._dynamo.config.recompile_limit):
            x = self.layer(x)
            torch._dynamo.graph_break()
        return x


def test_a_frame_beyond_the_limit_of_recompilations_runs_uncompiled() -> None:
    inputs = [call(POSITIVE * 0.1), call(NEGATIVE), call(POSITIVE)]
    assert_equivalent(
        _CallsPastTheLimit, lambda: inputs, fullgraph=False, graphs=None, recompiles=None
    )


def _with_a_long_jump_at_the_start_of_a_try_range() -> Any:
    """Return a function whose first ``try`` ends by jumping over more than 256 instructions."""
    lines = [
        "def program(x):",
        "    try:",
        "        y = x + 1",
        "    except ValueError:",
        *[f"        y = x + {number}" for number in range(90)],
        "    finally:",
        "        torch._dynamo.graph_break()",
        "        if x.sum() > 0:",
        "            y = y * 2",
        "    torch._dynamo.graph_break()",
        "    return y",
    ]
    names: dict[str, Any] = {"torch": torch, "__name__": "long_jump"}
    exec("\n".join(lines), names)
    return names["program"]


def test_a_try_range_begins_with_an_instruction_that_dynamo_can_place() -> None:
    program = _with_a_long_jump_at_the_start_of_a_try_range()
    assert_equivalent(
        lambda: program,
        lambda: [call(POSITIVE), call(NEGATIVE)],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="its compiler writes no such range")
def test_no_try_range_of_a_body_begins_with_a_jump() -> None:
    program = _with_a_long_jump_at_the_start_of_a_try_range()
    mended = analysed(program, DEFAULT)
    assert mended is not None and mended.has_lowerings
    assert _first_of_try_ranges(program.__code__) & _JUMPS
    assert not _first_of_try_ranges(mended.body) & _JUMPS


_JUMPS = {dis.opname[number] for number in (*dis.hasjrel, *dis.hasjabs)}


def _first_of_try_ranges(code: CodeType) -> set[str]:
    found: Any = dis.Bytecode(code)
    starts = {entry.start for entry in found.exception_entries}
    operations = [each for each in found if each.opname != "EXTENDED_ARG"]
    return {next(each.opname for each in operations if each.offset >= start) for start in starts}


def test_output_of_a_number_that_becomes_symbolic() -> None:
    """Dynamo cannot put a number that became symbolic into a string, and breaks the graph there."""

    def make() -> Any:
        def program(x: Tensor, n: int) -> Tensor:
            y = x + n
            print(f"number {n}")
            return y

        return program

    inputs = [call(POSITIVE, number) for number in (3, 5, 7)]
    assert_equivalent(make, lambda: inputs, fullgraph=False, graphs=None, recompiles=None)


def test_a_graph_break_in_an_argument_of_output() -> None:
    """The frame behind the break records what the frame before it has prepared."""

    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            print(torch.is_inference_mode_enabled(), x.sum().item())
            return x + 1

        return program

    inputs = [call(POSITIVE), call(NEGATIVE)]
    assert_equivalent(make, lambda: inputs, fullgraph=False, graphs=None, recompiles=None)


def _level(x: Tensor) -> int:
    if x.sum() > 0:
        return 2
    return 1


def test_code_is_split_inside_two_with_blocks() -> None:
    """Dynamo takes an instruction without a handler for the end of all blocks."""

    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            with torch.no_grad():
                with torch.enable_grad():
                    total = x.sum() + _level(x)
                x = x + total
            return x

        return program

    assert_equivalent(make, lambda: [call(POSITIVE), call(NEGATIVE)], graphs=1, recompiles=None)
