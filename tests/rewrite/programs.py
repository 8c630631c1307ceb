"""Functions over numbers that between them use the statements that model code uses.

``PROGRAMS`` holds each with the arguments that take it along its different paths. A first argument
called ``log`` is a list that the program may append to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True)
class Program:
    """A function and lists of arguments for it."""

    function: FunctionType
    calls: tuple[tuple[Any, ...], ...]

    @property
    def takes_log(self) -> bool:
        return self.function.__code__.co_varnames[:1] == ("log",)


PROGRAMS: dict[str, Program] = {}


def called_with(*calls: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Register a function with its arguments."""

    def register(function: Any) -> Any:
        PROGRAMS[function.__name__] = Program(function, calls)
        return function

    return register


SIGNS = ((-2,), (0,), (3,))
PAIRS = ((-2, 1), (0, 0), (0, 5), (3, -1), (3, 4))


@called_with(*SIGNS)
def if_else(x):
    if x > 0:
        y = x + 1
    else:
        y = x - 1
    return y


@called_with(*SIGNS)
def if_without_else(x):
    y = 1
    if x > 0:
        y = x * 2
    return x + y


@called_with(*SIGNS)
def swapped(x):
    a, b = 1, x
    if x > 0:
        a, b = b, a
    return a, b


@called_with(*PAIRS)
def nested_ifs(x, y):
    result = 0
    if x > 0:
        if y > 0:
            result = x + y
        else:
            result = x - y
    elif y > 2:
        result = y
    else:
        if x == y:
            result = 100
    return result


@called_with((-5,), (-1,), (0,), (1,), (7,))
def elif_chain(x):
    if x < -3:
        name = "very low"
    elif x < 0:
        name = "low"
    elif x == 0:
        name = "zero"
    elif x < 5:
        name = "high"
    else:
        name = "very high"
    return name


@called_with(*PAIRS)
def early_returns(x, y):
    if x > 2:
        return "a", x
    z = x + y
    if z > 2:
        return "b", z
    if z == 0:
        return None
    return "c"


@called_with(*PAIRS)
def returns_in_both(x, y):
    if x > y:
        z = x * 2
        return z - y
    else:
        return y


@called_with(*SIGNS)
def falls_off(x):
    if x:
        x += 1


@called_with(*SIGNS)
def ternary_in_call(x):
    return max(1, x if x > 0 else -x, 2) + (10 if x else 20)


@called_with(*PAIRS)
def ternaries_in_displays(x, y):
    return [x, (y if x else "n"), {x: (1 if y > 0 else 2)}, f"{x if y else y!r:>4}"]


@called_with(*PAIRS)
def ternary_of_ternaries(x, y):
    return (x if x > y else y) if x + y > 0 else (-x if x else -y)


@called_with(*PAIRS)
def and_or_not(x, y):
    a = x and y
    b = x or y
    c = (not x and not y) or x == y
    if (x and y) or not x:
        return a, b, c, 1
    return a, b, c, 2


@called_with(*PAIRS)
def chained(x, y):
    if -1 <= x < y <= 4:
        return "inside"
    return 0 < x < 10, x < y == 5


@called_with(*PAIRS)
def chained_with_results(x, y):
    z = 1 if -1 < x < y else 2
    if x < (w := x + y) < 9:
        z += w
    return z


@called_with(*SIGNS)
def walrus(x):
    if (y := x * 2) > 0:
        z = y
    else:
        z = -y
    return y, z


@called_with(*SIGNS)
def loop_with_branch(x):
    total = 0
    for each in range(4):
        if each > x:
            total += each
        else:
            total -= each
    return total


@called_with(*SIGNS)
def loop_with_continue(x):
    total = []
    for each in (-1, 2, 5):
        if each < x:
            continue
        total.append(each)
    return total


@called_with(*SIGNS)
def loop_with_break(x):
    seen = []
    for each in (5, 1, -4, 2):
        if each < x:
            seen.append("break")
            break
        seen.append(each)
    else:
        seen.append("else")
    return seen


@called_with(*SIGNS)
def loop_with_return(x):
    for index, each in enumerate((5, 1, -4)):
        if each == x + 1:
            return index
        if each < x:
            return -index, each
    return "end"


@called_with(*SIGNS)
def while_loop(x):
    count = 0
    while x < 6:
        x += 2
        if x == 4:
            count += 10
            continue
        if count > 100:
            break
        count += 1
    else:
        count = -count
    return x, count


@called_with(*SIGNS)
def while_true(x):
    while True:
        x += 1
        if x > 3:
            if x % 2:
                break
            else:
                x += 4
    return x


@called_with(*PAIRS)
def nested_loops(x, y):
    found = []
    for a in range(3):
        for b in range(3):
            if a * b == x:
                found.append((a, b))
                if b == y:
                    break
            elif a > b + y:
                continue
            found.append(a)
    return found


@called_with(*PAIRS)
def branch_in_comprehension(x, y):
    plain = [each + y for each in range(5) if each > x]
    dictionary = {each: (1 if each > y else 2) for each in range(4) if each != x if each}
    total = sum(each if each > 1 else x for each in plain)
    return plain, dictionary, total, {each for each in (x, y) if each}


@called_with(*PAIRS)
def comprehension_in_arm(x, y):
    if x > 0:
        result = [each * x for each in range(3) if each > y]
    else:
        result = [x for x in range(2)]  # noqa: C416
    return x, result


@called_with(*PAIRS)
def closure_read_in_arm(x, y):
    def add(value):
        return value + y

    if x > 0:
        z = add(x)
    else:
        z = y - 1
    return z


@called_with(*PAIRS)
def closure_written_in_arm(x, y):
    def read():
        return y

    if x > 0:
        y = y + 10
    else:
        y = -y
    return read(), y


@called_with(*PAIRS)
def nonlocal_in_nested(x, y):
    count = 0

    def bump(by):
        nonlocal count
        if by > 0:
            count += by
        else:
            count -= 1
        return count

    return bump(x), bump(y), count


@called_with(*PAIRS)
def function_made_in_arm(x, y):
    if x > y:

        def chosen(value):
            return value - y
    else:
        chosen = lambda value: value * 2 if value else x  # noqa: E731
    return chosen(x), chosen(0)


@called_with(*PAIRS)
def argument_in_cell(x, y):
    if x:
        x = x + 1
        y = (lambda: x * 2)()
    return x, y


@called_with((1,), (1, 2), (0, 2, 3), (-1, 2, 3, 4))
def star_arguments(x, *rest):
    if x > 0:
        rest = (*rest, x)
    return x, rest


@called_with(*SIGNS)
def starred_calls(x):
    arguments, keywords = [3, 1, 2], {"reverse": x > 0}
    if x:
        result = sorted(arguments, **keywords)
    else:
        result = list(map(str, [*arguments, *range(2)]))
    return result, dict(a=1, **({"b": 2} if x > 0 else {}))


@called_with(*PAIRS)
def formatted(x, y):
    text = f"{x}:{y:>3}"
    if x > y:
        text = f"{text!r} {x + y:{y + 5 if y > 0 else 4}d}"
    return text


@called_with(*PAIRS)
def deletes(x, y):
    z = x
    if x > y:
        w = z + 1
        del z
        z = w
        del w
    return z


@called_with((1, 0), (0, 0))
def deletes_what_is_read(x, y):
    if x > y:
        del y
    return y


@called_with((1,), (0,))
def unbound(x):
    if x:
        y = 1
    return y


@called_with((1, 1), (1, 0), (0, 1), (0, 0))
def unbound_through_arms(x, y):
    if x:
        z = 1
    if y:
        w = 2
    else:
        w = z
    return w


@called_with(*PAIRS)
def matches(x, y):
    match (x, y):
        case (0, _):
            z = "no x"
        case (a, b) if a > b:
            z = a
        case (3, int() as b):
            z = b
        case _:
            z = None
    match {"x": x, "y": [y, x]}:
        case {"x": 3, "y": [*most, last]}:
            z = z, most, last
        case {"y": [first, *_]}:
            z = first, z
    return z


@called_with(*PAIRS)
def try_around(x, y):
    try:
        if x > 0:
            z = x // y
        else:
            z = 1 // x
    except ZeroDivisionError:
        z = "zero"
    return z


@called_with(*PAIRS)
def try_in_arm(x, y):
    z = 0
    if x > 0:
        try:
            z = x // (y + 1)
        except ZeroDivisionError as error:
            z = str(error)
        else:
            z += 1
        finally:
            z = (z, "finally")
    else:
        try:
            z = y // x
        finally:
            z = (z, x)
    return z


@called_with(*PAIRS)
def branch_in_handler(x, y):
    try:
        z = 10 // x
    except ZeroDivisionError as error:
        if y > 0:
            z = error.args
        else:
            z = "none"
    finally:
        if y:
            w = 1
        else:
            w = 2
    return z, w


@called_with(*PAIRS)
def return_in_try_finally(log, x, y):
    try:
        if x > 0:
            return log.append("return")
        log.append("goes on")
        if y > 0:
            return "second"
    finally:
        log.append("finally")
        if x + y > 2:
            log.append("more")
    return log


@called_with(*PAIRS)
def return_overrides_in_finally(x, y):
    try:
        return 1 // x
    finally:
        if y > 0:
            return "override"  # noqa: B012


@called_with(*PAIRS)
def raises_in_handler(x, y):
    try:
        if x > 0:
            raise ValueError(x)
    except ValueError:
        if y > 0:
            raise
        x = 7
    return x


@contextlib.contextmanager
def _logged(log: list[object], name: object, swallow: bool = False) -> Iterator[object]:
    log.append(("enter", name))
    try:
        yield name
    except ArithmeticError as error:
        log.append(("error", type(error).__name__))
        if not swallow:
            raise
    finally:
        log.append(("exit", name))


@called_with(*PAIRS)
def with_around(log, x, y):
    with _logged(log, "outer"), _logged(log, x) as name:
        if y > 0:
            z = name
        else:
            z = 0
    return z, log


@called_with(*PAIRS)
def with_in_arm(log, x, y):
    z = "none"
    if y > 0:
        with _logged(log, x, swallow=True) as name:
            z = 10 // name
    else:
        with _logged(log, y):
            z = 10 // (x + y)
    return z, log


@called_with(*PAIRS)
def return_in_with(log, x, y):
    with _logged(log, x):
        if y > 0:
            return "early"
        log.append("late")
    if x:
        return 1
    return 2


@called_with(*PAIRS)
def with_swallows(log, x, y):
    z = "before"
    with _logged(log, x, swallow=True):
        if x >= 0:
            log.append("in arm")
            w = 1 // y
        else:
            w = 2
        z = w
    return z, log


@called_with(*PAIRS)
def validates(x, y):
    if x < 0:
        raise ValueError(f"x is {x}")
    assert y >= 0, (x, y)
    if not y:
        message = "y is zero"
        raise KeyError(message, y)
    return x + y


@called_with(*PAIRS)
def asserts(x, y):
    assert x, y
    return y


@called_with(*PAIRS)
def validates_with_cause(x, y):
    if x > 0 and y > 0:
        try:
            x // 0
        except ZeroDivisionError as error:
            raise RuntimeError("wrapped") from error
    return y


@called_with(*PAIRS)
def fails_in_arm(x, y):
    if x > y:
        z = x
        z = z.missing
    else:
        z = y // (x - x)
    return z


@called_with(*PAIRS)
def guards_in_arms(x, y):
    if x > 0:
        if y < 0:
            raise ValueError("negative")
        return y
    elif x == y:
        raise LookupError
    return x


@called_with(*PAIRS)
def checks_chains(x, y):
    if not -2 < x < 5:
        raise ValueError(x, y)
    assert 0 <= y <= x + 1 <= 9, (x, y)
    if y < x < 3:
        raise LookupError
    return [x, y]


@called_with(*PAIRS)
def prints(log, x, y):
    if x > 0:
        log.append(x)
    print(x, y, sep="-", file=_Into(log))
    for each in range(2):
        print("each", each, f"{x:>3}", file=_Into(log))
        if y > each:
            print(each, x if y else None, file=_Into(log))
    return log


@dataclass(frozen=True)
class _Into:
    log: list[object]

    def write(self, text: str) -> None:
        self.log.append(text)


@called_with(*PAIRS)
def generator_inside(x, y):
    def numbers():
        for each in range(3):
            if each > x:
                yield each
            else:
                yield -each

    if y > 0:
        values = list(numbers())
    else:
        values = [*numbers(), *(each for each in (1, 2) if each > x)]
    return values


@called_with(*PAIRS)
def class_inside(x, y):
    if x > 0:

        class Inner:
            if y > 0:
                value = y
            else:
                value = x

            def get(self):
                return self.value if x else y
    else:

        class Inner:
            def get(self):
                return "other"

    return Inner().get()


@called_with(*PAIRS)
def lambdas(x, y):
    choose = lambda a, b=y: a if a > b else b  # noqa: E731
    if choose(x) > 0:
        return choose(x, 2)
    return (lambda *rest, key=None: rest or key)(key=y)


@called_with(*PAIRS)
def unpacking(x, y):
    if x > 0:
        first, *others = [x, y, x + y]
    else:
        *others, first = (y, x)
    (a, b), c = ((x, y), first) if y else ((y, x), others)
    return first, others, a, b, c


@called_with(*PAIRS)
def subscripts(x, y):
    data = {0: [1, 2, 3], "n": {}}
    if x > 0:
        data[0][1:] = [x, y]
        data["n"][x] = y
    else:
        del data[0][0]
        data["n"].setdefault(y, []).append(x)
    data[0][0] += 5 if y else 6
    return data


@called_with(*PAIRS)
def many_live_outs(x, y):
    a = b = c = d = 0
    if x > y:
        a, b, c = x, y, x + y
        e = a
    else:
        d = a = y
        e = x
    return a, b, c, d, e


@called_with(*PAIRS)
def same_block_shared(x, y):
    if x > 0 and (y > 0 or x > 2):
        z = "both"
    else:
        z = "else"
    if not (x or y):
        z += "!"
    return z


@called_with(*PAIRS)
def global_builtin_and_attribute(x, y):
    value = complex(x, y)
    if value.imag > 0:
        part = value.real
    else:
        part = abs(x)
    return part, isinstance(part, float)


class Base:
    """A class to call through ``super()``."""

    def method(self, x):
        return "base", x

    @classmethod
    def build(cls, x):
        return cls.__name__, x


class Derived(Base):
    """Calls its base from inside arms."""

    offset = 5

    def method(self, x):
        if x > 0:
            result = super().method(x)
        else:
            result = super().method(self.offset)
        return result

    def returns(self, x):
        if x:
            return super().method(x)
        self = Derived
        return __class__, self

    @classmethod
    def build(cls, x):
        if x > 0:
            return super().build(x)
        return cls

    def stores(self, x):
        if x > 0:
            self.offset = x
        elif x:
            self.offset -= 1
        return self.offset


class _Holder:
    """Has a function that is no method: what loads it for a call loads a NULL too."""

    def __init__(self):
        self.doubled = lambda value: value * 2


@called_with((1,), (-3,))
def has_a_handler_that_nothing_comes_to(x):
    try:
        pass
    except ValueError as error:
        x = error
    return x + 1


@called_with((1,), (-3,))
def calls_a_function_that_an_object_holds(x):
    holder = _Holder()
    y = holder.doubled(x + 1)
    return y, holder.doubled(y)
