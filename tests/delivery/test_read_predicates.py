"""How often conditions are read: once for each accelerator, whoever reads them.

There need not be an accelerator: a tensor says that it is on one and counts how often it is read.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from bcmend.delivery.read_predicates import truths
from bcmend.delivery.records import Buffer, deliver
from bcmend.tracing.deopt.side_exits import SideExit, take_first

NOTHING_TO_PUT_BACK = ((), False)
NO_SIDES = None, ()


class Distant(Tensor):
    """A tensor that pretends to be on an accelerator."""

    reads: ClassVar[Counter[torch.device]] = Counter()
    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, device: str) -> Distant:
        made: Distant = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, dtype=inner.dtype, device=device
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves(args)
        device = next(each.device for each in given if isinstance(each, Distant))

        def near(value: Any) -> Any:
            return value.inner if isinstance(value, Distant) else value

        result = func(*tree_map(near, args), **tree_map(near, kwargs or {}))
        if func.overloadpacket is torch.ops.aten._local_scalar_dense:
            cls.reads[device] += 1
            return result
        if func.overloadpacket is torch.ops.aten._to_copy:
            cls.reads[device] += 1
            return result
        return Distant(result, str(device))


@pytest.fixture(autouse=True)
def _nothing_read() -> None:
    Distant.reads.clear()


def on(device: str, *values: bool) -> list[Tensor]:
    """Return boolean tensors that are on ``device``, or say so."""
    tensors = [torch.tensor(each) for each in values]
    return tensors if device == "cpu" else [Distant(each, device) for each in tensors]


def test_the_conditions_of_one_accelerator_are_read_at_once() -> None:
    assert list(truths(on("cuda:0", False, True, False))) == [False, True, False]
    assert Distant.reads.total() == 1


def test_a_single_condition_is_read_as_it_is() -> None:
    assert list(truths(on("cuda:0", True))) == [True]
    assert Distant.reads.total() == 1


def test_conditions_of_several_devices_are_read_once_for_each_and_keep_their_order() -> None:
    first, second = on("cuda:0", True, False)
    third, fourth = on("cuda:1", True, True)
    near, nearer = on("cpu", False, True)
    assert list(truths([near, first, third, nearer, second, fourth])) == [
        False,
        True,
        True,
        True,
        False,
        True,
    ]
    assert Distant.reads == {torch.device("cuda:0"): 1, torch.device("cuda:1"): 1}


def test_conditions_on_the_cpu_and_none_at_all_ask_no_accelerator() -> None:
    assert list(truths(on("cpu", True, False))) == [True, False]
    assert list(truths([])) == []
    assert Distant.reads.total() == 0


def test_all_records_of_a_call_are_one_read() -> None:
    said: list[str] = []

    def fail(text: str) -> None:
        raise ValueError(text)

    never, holds, later = on("cuda:0", False, True, True)
    buffer: Buffer = [
        ("always", None, False, said.append, ("always",)),
        ("guard 1", never, True, fail, ("first",)),
        ("output", holds, False, said.append, ("taken",)),
        ("guard 2", later, True, fail, ("second",)),
        ("output", holds, False, said.append, ("too late",)),
    ]
    with pytest.raises(ValueError, match="second"):
        deliver(buffer)
    assert said == ["always", "taken"]
    assert not buffer
    assert Distant.reads.total() == 1


def test_all_side_exits_of_a_call_are_one_read() -> None:
    keys = ("one", "two", "three")
    with pytest.raises(SideExit) as taken:
        found = on("cuda:0", False, True, True)
        take_first(keys, True, True, NOTHING_TO_PUT_BACK, (), NO_SIDES, *found)
    assert taken.value.key == "two"
    assert Distant.reads.total() == 1
    assert not take_first(
        keys, True, True, NOTHING_TO_PUT_BACK, (), NO_SIDES, *on("cuda:0", False, False, False)
    )
