"""What a message shows: values of many types, as they are at the moment of the call."""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import CHOICE, NO_MERGE, OUTPUT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]
Pair = namedtuple("Pair", ["first", "second"])

logger = logging.getLogger("corpus.patterns.messages")
logger.setLevel(logging.INFO)
_STEPS = 0


class Meter:
    """An object that shows a tensor that it holds."""

    def __init__(self, name: str, value: Tensor) -> None:
        self.name, self.value = name, value

    def __repr__(self) -> str:
        return f"Meter({self.name}={self.value.sum().item():.2f})"

    def __str__(self) -> str:
        return f"{self.name}: {self.value.mean().item():.3f}"

    def __format__(self, spec: str) -> str:
        return format(self.value.sum().item(), spec or ".1f")


class Average:
    """A running average, as training loops keep one."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.total += value
        self.count += 1

    def __str__(self) -> str:
        return f"{self.total / max(self.count, 1):.3f} of {self.count}"


@dataclass
class Scores:
    """A dataclass, whose `repr` shows its fields."""

    best: Tensor
    label: str = "none"


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
def dictionary_of_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        losses = OrderedDict(one=x.detach().sum(), two=x.detach().mean())
        print(dict(losses))
        print({name: round(value.item(), 2) for name, value in losses.items()})
        losses["one"] = losses["one"] + 1
        print(", ".join(f"{name}={value.item():.2f}" for name, value in losses.items()))
        return x * 2

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
def object_that_shows_its_tensor() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.meter = Meter("held", torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            print(self.meter, repr(self.meter), [self.meter], f"{self.meter:.4f} {self.meter!r}")
            return x * self.meter.value

    return Net()


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
def object_made_in_the_call() -> Program:
    def program(x: Tensor) -> Tensor:
        meter = Meter("made", x.detach() * 2)
        print(meter, [meter])
        return x * meter.value

    return program


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
def dataclass_of_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        scores = Scores(x.detach().max())
        print(scores)
        print(scores.label, scores.best.item())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def named_tuple_of_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        pair = Pair(x.detach().sum(), "second")
        print(pair, pair.first, pair._asdict())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def format_specifications() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        print(f"{total.item():+.2e}|{total.item():>12.3f}|{total.item():<9.1%}|{int(total):05d}")
        print(f"{total.detach():.3f} {x.shape[0]:3d} {x.shape!s:>20} {x.dtype!r:.5} {'text':*^10}")
        width = 8
        print(f"{total.item():{width}.{width // 4}f}")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def percent_formatting() -> Program:
    def program(x: Tensor) -> Tensor:
        print("%s has %d elements, mean %.2f" % ("x", x.numel(), x.mean()))  # noqa: UP031
        print("%(name)s=%(value)6.2f" % {"name": "sum", "value": x.sum().item()})  # noqa: UP031
        print("%s" % x.detach())  # noqa: UP031
        return x * 2

    return program


@pattern(signs, OUTPUT)
def formatting_by_a_method() -> Program:
    def program(x: Tensor) -> Tensor:
        print("{} {:.2f} {name}".format(x.shape, x.mean().item(), name="x"))
        template = "{0!r:>8} {1[0]} {2.shape}"
        print(template.format("a", x.tolist(), x))
        return x * 2

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
def representations_of_numbers() -> Program:
    def program(x: Tensor) -> Tensor:
        print(float(x.sum()), int(x.max()), bool(x.any()), round(x.mean().item(), 3))
        print(str(x.sum().item()), repr(x[0].item()), abs(x.min().item()), -x[1].item())
        print(x.int().tolist(), x.detach().numpy(), x.detach().to(torch.float64).tolist())
        return x * 2

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
def facts_of_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        print(x.shape, x.size(), x.size(0), x.shape[0], x.dim(), x.ndim, x.numel(), len(x))
        print(x.dtype, x.device, x.device.type, x.layout, x.is_contiguous(), x.stride())
        print(x.element_size(), x.is_floating_point(), type(x), type(x).__name__)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def whether_gradients_flow() -> Program:
    def program(x: Tensor) -> Tensor:
        print(x.requires_grad, x.is_leaf, torch.is_grad_enabled(), (x * 2).requires_grad)
        with torch.enable_grad():
            print(torch.is_grad_enabled())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def map_and_generator_as_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        print(*map(str, range(3)), *(step * step for step in range(3)))
        print(" ".join(str(step) for step in x.tolist()))
        print(list(map(float, x)), sorted(x.tolist()), max(x.tolist()))
        print(*[f"{value:.1f}" for value in x.tolist()], sep=", ")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def enumeration_in_an_argument() -> Program:
    def program(x: Tensor) -> Tensor:
        names = ["a", "b", "c"]
        print({name: value for name, value in zip(names, x.tolist(), strict=True)})  # noqa: C416
        print([(index, name) for index, name in enumerate(names)])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def choice_in_an_argument() -> Program:
    def program(x: Tensor) -> Tensor:
        print("up" if x.sum().item() > 0 else "down", x.max().item() > 2 and "large")
        print(f"{'many' if x.numel() > 2 else 'few'}: {x.sum().item() or 'nothing'}")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def arithmetic_of_numbers_in_an_argument() -> Program:
    def program(x: Tensor) -> Tensor:
        step = 3
        print(f"{x.sum().item() / (step + 1):.3f}", step % 2, step**2, 100.0 * x.mean().item())
        step += 1
        print("step", step, f"{(x > 0).float().mean().item():.0%}", x.norm().item() ** 2)
        return x * step

    return program


@pattern(signs, OUTPUT)
def text_built_beforehand() -> Program:
    def program(x: Tensor) -> Tensor:
        text = f"{tuple(x.shape)} of {x.dtype}"
        text += "!"
        print(text)
        text = text.upper()
        logger.info(text)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def special_values() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach()
        print(y / 0, y.sqrt(), (y * 0).log(), y.new_tensor([]), (y > 0), y.to(torch.int8))
        print(f"{(y[0] / 0).item()} {y.sqrt().sum().item()} {(y.max() * 1e30).item():g}")
        print(torch.complex(y, -y), y.to(torch.bfloat16), y.half().sum().item())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def large_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        table = x.detach().repeat(40, 20)
        print(table)
        table[0, 0] = 99
        print(table[0, :5], table.shape)
        return x * 2

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
def parameter_and_its_name() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            print(self.weight)
            for name, parameter in self.named_parameters():
                print(
                    name, tuple(parameter.shape), parameter.requires_grad, parameter.norm().item()
                )
            return x * self.weight

    return Net()


@pattern(signs, OUTPUT)
def module_as_an_argument() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def extra_repr(self) -> str:
            return "checked"

        def forward(self, x: Tensor) -> Tensor:
            print(self.layer, type(self).__name__, self.__class__.__qualname__.split(".")[-1])
            print(self)
            return self.layer(x)

    return Net()


@pattern(signs, OUTPUT, WHERE)
def result_of_a_branch_in_a_message() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 2 if x.sum() > 0 else x.detach() - 1
        print("y", y, f"{y.sum().item():.2f}")
        return x + y

    return program


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
def message_in_a_function_that_is_called() -> Program:
    def show(name: str, value: Tensor, *rest: Any, digits: int = 2) -> None:
        print(f"{name:>6}: {value.mean().item():.{digits}f}", *rest)

    def program(x: Tensor) -> Tensor:
        show("x", x)
        y = x.detach() + 1
        show("y", y, "and", y, digits=4)
        y.zero_()
        show("zero", y)
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
def set_and_range_and_slice() -> Program:
    def program(x: Tensor) -> Tensor:
        print({1}, frozenset([2]), range(2, 5), slice(1, None), ..., b"bytes", 1 + 2j)
        print(torch.float32, torch.Size([2]), torch.device("cpu"), int, None, True, "text"[1:])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def tensors_with_a_history() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            print(x, x * 2, y, y.sum(), y.tanh(), torch.relu(y), y[0], y.detach())
            print({"loss": y.mean()}, [y.t(), (y.exp(), y.softmax(-1))])
            logger.info("%s of %r", y.std(), y.view(1, 2))
            print(f"{y}", str(y.max()), y.requires_grad, (y > 0), y.argmax())
            return y

    return Net()


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


@pattern(signs, OUTPUT, WHERE, zero_gradients=True)
def tensors_with_a_history_in_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        if x.sum() > 0:
            print("in", y, y * 2)
            z = y * 3
        else:
            z = y - 1
            print("else", z, y)
        return z

    return program


@pattern(signs, OUTPUT)
def message_about_what_the_result_does_not_need() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            print("auxiliary", self.other(x), f"{self.other(x).sum().item():.3f}")
            return self.head(x)

    return Net()


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
def progress_shown_in_each_turn() -> Program:
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


@pattern(signs, NO_MERGE, OUTPUT, zero_gradients=True)
def statistics_shown_by_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        if x.sum() > 0:
            size = y.abs()
            print("large", size.max(), f"{size.mean().item():.3f}", size.std(), y)
        else:
            print("small", {"least": y.min().item()}, [y.argmax(), y > 1])
        z = y * 2
        return z + y.max()

    return program


@pattern(signs, OUTPUT, WHERE, zero_gradients=True)
def difference_shown_beside_the_result() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 3
        if y.max() > 2:
            z = y.clamp(max=2.0)
            print("cut by", (y - z).sum().item(), z)
            y = z
        return y + 1

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


@pattern(signs, NO_MERGE, OUTPUT, zero_gradients=True)
def named_tuples_made_and_shown_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            pair = Pair(y + 1, y.sort())
            print(pair, pair.second.indices, y.max(0))
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


@pattern(signs, CHOICE)
def named_tuple_of_either_side_is_returned() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            return Pair(x + 1, (x * 2).max(0).values)
        return Pair(x - 1, (x * 3).min(0).values)

    return program


PATTERNS = patterns_among(list(vars().values()))
