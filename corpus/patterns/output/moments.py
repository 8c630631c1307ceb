"""Output of values that are changed, bound again or deleted afterwards."""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.output.shown_objects import Described, Meter
from corpus.patterns.pattern import OUTPUT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


@pattern(signs, OUTPUT)
def print_of_a_tensor_changed_later() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        print(y)
        y.add_(1)
        print(y)
        y[0] = 7
        return y

    return program


@pattern(signs, OUTPUT)
def print_of_a_list_appended_later() -> Program:
    def program(x: Tensor) -> Tensor:
        items = [1, "two"]
        print(items)
        items.append(3)
        print(items, len(items))
        items.clear()
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_of_an_attribute_changed_later() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.label = "start"

        def forward(self, x: Tensor) -> Tensor:
            print(self.label, f"{self.total.sum().item():.1f}")
            self.total = self.total + x.detach()
            print(self.label, f"{self.total.sum().item():.1f}")
            return x * self.total

    return Net()


Pair = namedtuple("Pair", ["first", "second"])


_STEPS = 0


class Average:
    """A running average, as training loops keep one."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.total += value
        self.count += 1

    def __str__(self) -> str:
        return f"{self.total / max(self.count, 1):.3f} of {self.count}"


@pattern(signs, OUTPUT)
def tensor_before_a_view_of_it_is_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 2
        view = y[1:]
        print("before", y)
        view.mul_(10)
        print("after", y, view)
        view[0] = -1
        return y + x

    return program


@pattern(signs, OUTPUT)
def view_before_its_base_is_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() + 1
        print(y.flip(0), y[:2], y.unsqueeze(0).expand(2, 3)[1], sep="\n")
        y.zero_()
        return y + x

    return program


@pattern(signs, OUTPUT, training=False)
def argument_before_it_is_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        print("given", x)
        x.clamp_(min=0)
        print("clamped", x, x.sum())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def buffer_before_it_is_changed() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            print("seen", self.seen, self.seen.tolist())
            self.seen.add_(x.detach())
            print(f"now {self.seen}")
            self.seen.mul_(0.5)
            return x + self.seen

    return Net()


@pattern(signs, OUTPUT)
def nested_containers_changed_afterwards() -> Program:
    def program(x: Tensor) -> Tensor:
        inner = [1]
        outer = {"items": inner, "pair": (inner, "fixed")}
        print(outer)
        inner.append(2)
        print(outer)
        outer["items"] = None  # type: ignore[assignment]
        print(outer, list(outer), len(outer))
        return x * 2

    return program


@pattern(signs, OUTPUT)
def list_of_tensors_changed_afterwards() -> Program:
    def program(x: Tensor) -> Tensor:
        parts = [x.detach() * step for step in range(2)]
        print("parts", parts)
        parts[0].add_(5)
        parts.append(x.detach())
        print("parts", parts)
        parts.pop(0)
        print("parts", parts)
        return x + parts[0]

    return program


@pattern(signs, OUTPUT)
def views_of_a_dictionary() -> Program:
    def program(x: Tensor) -> Tensor:
        settings = {"rate": 0.5, "steps": 3}
        print(settings.keys(), settings.values(), settings.items())
        settings["more"] = 1
        print(list(settings.keys()), len(settings))
        return x * settings["rate"]

    return program


@pattern(signs, OUTPUT)
def object_changed_after_it_was_shown() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.average = Average()

        def forward(self, x: Tensor) -> Tensor:
            self.average.total, self.average.count = 0.0, 0
            print("average", self.average)
            self.average.update(2.0)
            print("average", self.average)
            self.average.update(3.0)
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def object_made_in_the_call_and_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        meter = Meter("made", x.detach() * 2)
        print(meter)
        meter.name = "renamed"
        meter.value = meter.value + 1
        print(meter)
        return x * meter.value

    return program


@pattern(signs, OUTPUT)
def lazy_arguments_of_a_logger() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 2
        logger.info("y %s of %s, %5.2f", y, tuple(y.shape), y.sum())
        logger.info("%(mean).2f", {"mean": y.mean().item()})
        y.add_(1)
        logger.warning("now %r", y)
        return x + y

    return program


@pattern(signs, OUTPUT)
def array_before_its_memory_is_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 2
        print(y.numpy())
        y.add_(1)
        print(y.numpy(), y.numpy().mean())
        y.zero_()
        return x + y

    return program


@pattern(signs, OUTPUT)
def attribute_of_a_module_that_counts() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0
            self.history: list[str] = []

        def forward(self, x: Tensor) -> Tensor:
            self.steps = 1
            self.history.clear()
            print(f"step {self.steps}", self.history)
            self.history.append(f"{self.steps}")
            self.steps += 1
            print(f"step {self.steps}", self.history, self.training)
            self.steps = 0
            self.history.clear()
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def variable_bound_again_afterwards() -> Program:
    def program(x: Tensor) -> Tensor:
        value: Any = x.detach().sum()
        print(f"{value.item():.1f}", value)
        value = "text"
        print(value)
        value = None
        print(value)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def variable_deleted_afterwards() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 3
        print(f"{y.sum().item()}", y)
        del y
        return x * 2

    return program


@pattern(signs, OUTPUT)
def messages_about_a_slice_that_is_set() -> Program:
    def program(x: Tensor) -> Tensor:
        y = torch.zeros(2, 3)
        for row in range(2):
            y[row] = x.detach() + row
            print(row, y)
        return x * y.sum()

    return program


@pattern(signs, OUTPUT)
def tensor_with_a_history_before_it_is_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        print(y, [y])
        y.add_(1)
        print(y)
        y[1:].mul_(3)
        print(y, y[1:])
        return y

    return program


@pattern(signs, OUTPUT, training=False)
def numbers_bound_again_in_a_module() -> Program:
    def program(x: Tensor) -> Tensor:
        global _STEPS
        _STEPS = 1
        print(f"{_STEPS!r} of {x.sum().item():.1f}", _STEPS)
        _STEPS = 2
        print(f"{_STEPS!r} of {x.max().item():.1f}")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def object_whose_list_and_tensor_change() -> Any:
    class History:
        def __init__(self) -> None:
            self.steps: list[int] = []
            self.best = torch.zeros(3)

        def __repr__(self) -> str:
            return f"{self.steps} {self.best}"

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history = History()

        def forward(self, x: Tensor) -> Tensor:
            print(self.history)
            self.history.steps.append(1)
            self.history.best.add_(x.detach())
            print(f"now {self.history}")
            self.history.steps.clear()
            self.history.best.zero_()
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def progress_shown_in_each_iteration() -> Program:
    class Bar:
        def __init__(self) -> None:
            self.count, self.seen = 0, [0]

        def update(self) -> None:
            self.count += 1
            self.seen.append(self.count)

        def __str__(self) -> str:
            return "#" * self.count + f" {self.seen}"

    def program(x: Tensor) -> Tensor:
        bar = Bar()
        for _ in range(3):
            x = x + 1
            bar.update()
            print(bar, bar.count, f"{x.sum().item():.1f}", sep=" | ")
        return x

    return program


@pattern(signs, OUTPUT)
def dictionaries_with_a_default() -> Program:
    def program(x: Tensor) -> Tensor:
        groups: defaultdict[str, list[Any]] = defaultdict(list)
        groups["sum"].append(x.detach().sum())
        ordered = OrderedDict(first=x.detach() * 1)
        groups["more"].append(1)
        print(groups, ordered, len(groups))
        ordered["first"].add_(1)
        print(dict(groups), ordered, ordered.keys(), ordered.items())
        return x * 2

    return program


@pattern(signs, OUTPUT, WHERE, training=False)
def what_an_arm_shows_is_changed_afterwards() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            print("before", y.mean(), y)
        y.add_(10)
        return y

    return program


@pattern(signs, OUTPUT)
def what_operations_return_before_it_is_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 2
        ranked, most = y.sort(), y.max(0)
        pair = Pair(y, ranked)
        print(ranked, f"{most}", "%s" % (y.min(0),), pair)  # noqa: UP031
        ranked.values.mul_(3)
        pair.first.add_(1)
        print(ranked, pair, most.values)
        return x + y

    return program


@pattern(signs, OUTPUT)
def print_of_an_object_changed_later() -> Program:
    def program(x: Tensor) -> Tensor:
        described = Described()
        print("first", described)
        described.count += 2
        print("second", described)
        return x * described.count

    return program


PATTERNS = patterns_among(list(vars().values()))
