"""Arms that change something beside values: each program in eager execution and mended.

Each is called six times, with sides alternating, and what it has left in the process is looked at
after every call.
"""

from __future__ import annotations

import logging
import string
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bcmend

X = torch.tensor([1.0, 2.0, 4.0])
ORDERS = ((False, True, False, True, True, False), (True, False, True, False, False, True))

#: What is called, and what is to be seen in the process after a call.
Made = tuple[Callable[[Tensor], Any], Callable[[], object]]


@pytest.fixture(autouse=True)
def _process_is_left_as_it_was() -> Iterator[None]:
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    torch.set_warn_always(False)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cudnn.benchmark = False
    vars(string).pop("of_a_test", None)


def _history(made: Made, *, is_mended: bool, order: tuple[bool, ...]) -> list[str]:
    program, state = made
    torch._dynamo.reset()
    called = torch.compile(bcmend.patch(program), backend="aot_eager") if is_mended else program
    found = [repr(state())]
    for side in order:
        found.append(repr(called(X.clone() if side else X / 8)))
        found.append(repr(state()))
    return found


def _slugs(program: Any) -> set[str]:
    report = bcmend.report(program)
    return {each.refusal for each in report.sites if each.refusal is not None}


def _assert_as_in_eager(make: Callable[[], Made], slugs: set[str]) -> None:
    for order in ORDERS:
        expected = _history(make(), is_mended=False, order=order)
        made = make()
        assert _history(made, is_mended=True, order=order) == expected
        assert _slugs(made[0]) == slugs
        bcmend.unpatch()


# Settings


def _precision() -> Made:
    torch.set_float32_matmul_precision("highest")

    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            torch.set_float32_matmul_precision("high")
            x = x * 2
        return x - 1

    return program, torch.get_float32_matmul_precision


def _flash() -> Made:
    torch.backends.cuda.enable_flash_sdp(True)

    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            torch.backends.cuda.enable_flash_sdp(False)
        return x - 1

    return program, torch.backends.cuda.flash_sdp_enabled


def _same_as_it_is() -> Made:
    """Sets what is set already, which another call may find otherwise."""
    torch.set_warn_always(False)

    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            torch.set_warn_always(False)
        return x - 1

    return program, torch.is_warn_always_enabled


def _flag_of_a_back_end() -> Made:
    torch.backends.cudnn.benchmark = False

    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            torch.backends.cudnn.benchmark = True
        return x - 1

    return program, lambda: torch.backends.cudnn.benchmark


@pytest.mark.parametrize("make", [_precision, _flash, _same_as_it_is, _flag_of_a_back_end])
def test_a_setting_is_changed_on_its_side_only(make: Callable[[], Made]) -> None:
    _assert_as_in_eager(make, {"arm-setting"})


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
        (
            lambda: torch.use_deterministic_algorithms(True),
            torch.are_deterministic_algorithms_enabled,
        ),
        (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
        (lambda: torch.set_num_threads(1), torch.get_num_threads),
    ],
    ids=["default dtype", "deterministic", "grad mode", "threads"],
)
def test_a_setting_stays_where_its_side_is_not_taken(
    change: Callable[[], None], read: Callable[[], object]
) -> None:
    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            change()
            x = x * 2
        return x - 1

    before = read()
    compiled = torch.compile(bcmend.patch(program), backend="aot_eager")
    for _ in range(2):
        assert torch.equal(compiled(X / 8), X / 8 - 1)
        assert read() == before


def test_blocks_that_bring_a_setting_back_are_mended() -> None:
    def make() -> Made:
        def program(x: Tensor) -> Tensor:
            if x.max() > 1:
                before = torch.is_grad_enabled()
                torch.set_grad_enabled(False)
                x = x * 2
                torch.set_grad_enabled(before)
            else:
                with torch.no_grad(), torch.autocast("cpu"):
                    x = x * 3
            return x - 1

        return program, torch.is_grad_enabled

    _assert_as_in_eager(make, set())


# Hooks and gradients


class _Weighted(nn.Module):
    """Calls ``act`` on its parameter, or on a product of it, on one side."""

    def __init__(self, act: Callable[[Tensor], object], *, inner: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.act, self.inner = act, inner

    def forward(self, x: Tensor) -> Tensor:
        product = self.weight * x
        if x.max() > 1:
            self.act(product if self.inner else self.weight)
        return product * 2


def _with_backward(module: nn.Module, is_mended: bool, order: tuple[bool, ...]) -> list[object]:
    torch._dynamo.reset()
    called = torch.compile(bcmend.patch(module), backend="aot_eager") if is_mended else module
    found: list[object] = []
    weight = module.weight
    for side in order:
        called(X.clone() if side else X / 8).sum().backward()
        hooks = len(getattr(weight, "_backward_hooks", None) or ())
        found.append((None if weight.grad is None else weight.grad.tolist(), hooks))
    return found


_seen: list[int] = []


def _tripled(weight: Tensor) -> None:
    weight.register_hook(lambda gradient: gradient * 3)


def _counted(weight: Any) -> None:
    weight.register_post_accumulate_grad_hook(lambda each: _seen.append(1))


def _forgotten(weight: Tensor) -> None:
    weight.grad = None


def _set(weight: Tensor) -> None:
    weight.grad = torch.full((3,), 5.0)


@pytest.mark.parametrize(
    ("act", "inner", "slug"),
    [
        (_tripled, False, "arm-hook"),
        (_tripled, True, "arm-hook"),
        (_counted, False, "arm-hook"),
        (_forgotten, False, "arm-gradient"),
        (_set, False, "arm-gradient"),
    ],
    ids=["hook", "hook of a product", "hook behind accumulation", "no gradient", "gradient"],
)
def test_hooks_and_gradients_of_an_arm(act: Any, inner: bool, slug: str) -> None:
    for order in ORDERS:
        _seen.clear()
        expected = _with_backward(_Weighted(act, inner=inner), False, order), len(_seen)
        _seen.clear()
        module = _Weighted(act, inner=inner)
        assert (_with_backward(module, True, order), len(_seen)) == expected
        assert _slugs(module) == {slug}
        bcmend.unpatch()


def test_a_hook_is_removed_on_one_side() -> None:
    class Module(_Weighted):
        def forward(self, x: Tensor) -> Tensor:
            handle = self.weight.register_hook(lambda gradient: gradient * 2)
            if x.max() > 1:
                handle.remove()
            return self.weight * x

    expected = _with_backward(Module(_set), False, ORDERS[0])
    module = Module(_set)
    assert _with_backward(module, True, ORDERS[0]) == expected
    assert _slugs(module) == {"arm-hook"}


# Stores to classes, modules and thread-local data


def _class_flag() -> Made:
    class Module(nn.Module):
        warned = False

        def forward(self, x: Tensor) -> Tensor:
            if x.max() > 1 and not Module.warned:
                Module.warned = True
            return x * 2

    return Module(), lambda: Module.warned


def _inherited_count() -> Made:
    class Base(nn.Module):
        count = 0

    class Module(Base):
        def forward(self, x: Tensor) -> Tensor:
            if x.max() > 1:
                type(self).count += 1
            return x * 2

    return Module(), lambda: (Base.count, vars(Module).get("count"))


def _default_of_the_class() -> Made:
    class Module(nn.Module):
        count = 0

        def forward(self, x: Tensor) -> Tensor:
            if x.max() > 1:
                self.count = self.count + 1
            return x * 2

    module = Module()
    return module, lambda: (Module.count, vars(module).get("count"))


def _of_a_thread() -> Made:
    held = threading.local()
    held.side = 0

    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            held.side = 1
            held.seen = True
        else:
            held.side = 0
        return x * 2

    return program, lambda: dict(sorted(vars(held).items()))


def _of_a_module() -> Made:
    string.of_a_test = 0  # type: ignore[attr-defined]

    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            string.of_a_test = 1  # type: ignore[attr-defined]
        return x * 2

    return program, lambda: string.of_a_test  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "make", [_class_flag, _inherited_count, _default_of_the_class, _of_a_thread, _of_a_module]
)
def test_stores_to_classes_modules_and_threads_are_merged(make: Callable[[], Made]) -> None:
    _assert_as_in_eager(make, set())


def test_a_metaclass_sees_a_store_on_its_side_only() -> None:
    def make() -> Made:
        seen: list[str] = []

        class Meta(type):
            def __setattr__(cls, name: str, value: object) -> None:
                seen.append(name)
                type.__setattr__(cls, name, value)

        class Flags(metaclass=Meta):
            warned = False

        def program(x: Tensor) -> Tensor:
            if x.max() > 1:
                Flags.warned = True
            return x * 2

        return program, lambda: (Flags.warned, list(seen))

    _assert_as_in_eager(make, {"arm-effects"})


# Containers and tensors


def _key_added_again() -> Made:
    held = {"a": 1, "b": 2, "c": 3}

    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            held["a"] = held.pop("a")
        return x * 2

    return program, lambda: list(held.items())


def _first_item_dropped() -> Made:
    held = OrderedDict(a=1, b=2, c=3, d=4)

    def program(x: Tensor) -> Tensor:
        if x.max() > 1 and len(held) > 1:
            held.popitem(last=False)
        return x * 2

    return program, lambda: list(held.items())


def _orders_of_a_new_dictionary() -> Made:
    def program(x: Tensor) -> Any:
        made = {"a": x, "b": x + 1}
        if x.max() > 1:
            made["a"] = made.pop("a")
        return list(made), next(iter(made.values())) * x

    return program, lambda: None


@pytest.mark.parametrize(
    "make", [_key_added_again, _first_item_dropped, _orders_of_a_new_dictionary]
)
def test_the_order_of_a_dictionary_is_that_of_the_side(make: Callable[[], Made]) -> None:
    _assert_as_in_eager(make, set())


def test_a_conjugate_view_keeps_its_flag() -> None:
    def program(x: Tensor) -> Tensor:
        z = torch.complex(x, x)
        if x.max() > 1:
            z = z.conj()
        else:
            z = z * 2
        return z

    compiled = torch.compile(bcmend.patch(program), backend="aot_eager")
    for side in ORDERS[0]:
        x = X if side else X / 8
        expected, found = program(x), compiled(x)
        assert torch.equal(found, expected)
        assert (found.is_conj(), found.is_neg()) == (expected.is_conj(), expected.is_neg())


# Output that the call can see


class _Writer:
    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)


def _writer_changed() -> Made:
    writer = _Writer()

    def program(x: Tensor) -> Tensor:
        print("a", file=writer)
        writer.written.append("b")
        return x * 2

    return program, lambda: list(writer.written)


def _text_that_counts() -> Made:
    class Counted:
        count = 0

        def __str__(self) -> str:
            self.count += 1
            return f"count {self.count}"

    counted = Counted()

    def program(x: Tensor) -> Tensor:
        print(counted)
        return x * counted.count

    return program, lambda: counted.count


def _handler_that_counts() -> Made:
    class Handler(logging.Handler):
        count = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.count += 1

    handler, logger = Handler(), logging.getLogger("tests.closed_world")
    logger.handlers[:], logger.propagate = [handler], False
    logger.setLevel(logging.INFO)

    def program(x: Tensor) -> Tensor:
        logger.info("called")
        return x * handler.count

    return program, lambda: handler.count


_level = 0


def _text_of_a_global() -> Made:
    class Shown:
        def __repr__(self) -> str:
            return f"level {_level}"

    global _level
    _level, shown, writer = 0, Shown(), _Writer()

    def program(x: Tensor) -> Tensor:
        global _level
        print(shown, file=writer)  # type: ignore[call-overload]
        _level += 1
        return x * 2

    return program, lambda: (_level, list(writer.written))


@pytest.mark.parametrize(
    "make", [_writer_changed, _text_that_counts, _handler_that_counts, _text_of_a_global]
)
def test_output_is_not_delayed_where_the_call_sees_what_it_changes(
    make: Callable[[], Made],
) -> None:
    _assert_as_in_eager(make, {"cannot-snapshot"})


def test_a_writer_that_the_call_does_not_look_at_is_deferred() -> None:
    def make() -> Made:
        writer = _Writer()

        def program(x: Tensor) -> Tensor:
            print("a", file=writer)
            return x * 2

        return program, lambda: list(writer.written)

    _assert_as_in_eager(make, set())


# Frames and locks


def _added(x: Tensor, doubled: Tensor, size: int) -> Tensor:
    return x + doubled


def test_locals_have_the_names_of_the_program() -> None:
    def make() -> Made:
        def program(x: Tensor) -> Tensor:
            doubled = x * 2
            size = x.shape[0]
            if size > 100:
                raise ValueError("large")
            return _added(**dict(locals())) - _added(**vars())

        return program, lambda: None

    _assert_as_in_eager(make, set())


@pytest.mark.parametrize("kind", ["check", "output"])
def test_a_checkpoint_in_a_second_module_of_a_class_runs_as_it_was(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.linear(x)
            if kind == "output":
                print("shape", y.shape)
            elif y.isnan().any():
                raise ValueError("not a number")
            return y

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = Block(), Block()

        def forward(self, x: Tensor) -> Any:
            x = checkpoint(self.first, x, use_reentrant=False)
            return checkpoint(self.second, x, use_reentrant=False)

    module, mended = Module(), bcmend.patch(Module())
    compiled = torch.compile(mended, backend="aot_eager")
    for _ in range(2):
        module(X).sum().backward()
        written = capsys.readouterr().out
        compiled(X).sum().backward()
        assert capsys.readouterr().out == written
        for one, other in zip(module.parameters(), mended.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]
    assert _slugs(mended) == {"not-captured"}
