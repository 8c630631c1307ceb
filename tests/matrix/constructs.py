"""Constructs whose condition is a tensor, and ways to observe later what was done in them.

Constructs in the order of "Compound statements" and "Expressions" of the Python reference.

In a construct, ``PREDICATE`` is the condition on the tensor ``p``, whose items are all positive or
all negative; ``ACT`` stands where the effect is, ``OTHER`` where the other side is, ``RETURN``
where the call ends early, ``CALL`` is an expression with the effect that gives the new ``y``, and
``DECLARE`` begins a function in which the effect is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Construct:
    """A construct: statements, and the function, if any, that they call.

    `group` is the column of the table that it belongs to.
    """

    name: str
    group: str
    body: str
    helper: str = ""
    is_method: bool = False


def _of(group: str, **bodies: str) -> tuple[Construct, ...]:
    return tuple(Construct(name.rstrip("_"), group, body) for name, body in bodies.items())


_FUNCTION: Final = """
def helper(s, x, p, y):
    DECLARE
    if PREDICATE:
        ACT
    else:
        OTHER
    return y
"""

_BRANCHES: Final = _of(
    "branches",
    if_="""
if PREDICATE:
    ACT
""",
    if_else="""
if PREDICATE:
    ACT
else:
    OTHER
""",
    elif_="""
if p.sum() > 50:
    OTHER
elif PREDICATE:
    ACT
else:
    y = y * 2
""",
    nested_if="""
if p.sum() > -50:
    y = y + 1
    if PREDICATE:
        ACT
    else:
        y = y * 3
""",
    both_sides="""
if PREDICATE:
    y = y + 2
    ACT
else:
    ACT
""",
    early_return="""
if PREDICATE:
    ACT
    RETURN
OTHER
""",
    match="""
match PREDICATE:
    case flag if flag:
        ACT
    case _:
        OTHER
""",
    two_sites="""
if PREDICATE:
    ACT
y = y + 1
if p.max() < 0:
    y = y * 2
else:
    y = y + 3
""",
)
_LOOPS: Final = _of(
    "loops",
    while_="""
t = p.sum()
while t > 0:
    ACT
    t = t - 2
""",
    while_true="""
t = p.sum()
while True:
    if t <= 0:
        break
    ACT
    t = t - 2
""",
    for_break="""
for i in range(3):
    if i * 2 > p.sum():
        break
    ACT
""",
    for_continue="""
for e in p:
    if e < 0:
        continue
    ACT
""",
    for_else="""
for e in p:
    if e < 0:
        break
else:
    ACT
""",
    for_arm="""
for i in range(2):
    if PREDICATE:
        ACT
    y = y + 1
""",
)
_ERRORS: Final = _of(
    "exceptions and contexts",
    try_except="""
try:
    if PREDICATE:
        raise ValueError('p')
    OTHER
except ValueError:
    ACT
""",
    try_finally="""
try:
    if PREDICATE:
        ACT
finally:
    y = y + 1
""",
    finally_="""
try:
    if p.sum() < 0:
        y = y * 2
        RETURN
    y = y + 1
finally:
    ACT
""",
    raise_="""
if PREDICATE:
    ACT
    raise ValueError('behind')
""",
    check_behind="""
if PREDICATE:
    ACT
assert p.sum() < 50, 'too large'
""",
    with_="""
with contextlib.nullcontext():
    if PREDICATE:
        ACT
    else:
        OTHER
""",
    with_in_arm="""
if PREDICATE:
    with torch.enable_grad():
        ACT
""",
)
_EXPRESSIONS: Final = _of(
    "expressions",
    comprehension="""
for z_ in [CALL for e in p if e > 0]:
    y = y + z_
""",
    generator_expression="""
for z_ in (CALL for e in p if e > 0):
    y = y + z_
""",
    and_="""
PREDICATE and CALL.dim()
""",
    or_="""
p.sum() <= 0 or CALL.dim()
""",
    conditional="""
y = CALL if PREDICATE else y - 1
""",
    lambda_="""
f = lambda y: CALL if PREDICATE else y
y = f(y)
""",
    number="""
if p.sum().item() > 0:
    ACT
else:
    OTHER
""",
)
_FUNCTIONS: Final = (
    Construct("function", "functions", "y = helper(s, x, p, y)\n", _FUNCTION),
    Construct("method", "functions", "y = self.helper(s, x, p, y)\n", _FUNCTION, is_method=True),
    Construct(
        "nested_function",
        "functions",
        """
def inner(y):
    DECLARE
    if PREDICATE:
        ACT
        return y
    return y - 1
y = inner(y)
""",
    ),
    Construct(
        "generator_function",
        "functions",
        """
for z_ in helper(s, x, p, y):
    y = y + z_
""",
        """
def helper(s, x, p, y):
    DECLARE
    for e in p:
        if e > 0:
            ACT
        yield y
""",
    ),
    Construct(
        "recursion",
        "functions",
        "y = helper(s, x, p, y, 2)\n",
        """
def helper(s, x, p, y, n):
    DECLARE
    if n == 0:
        return y
    if PREDICATE:
        ACT
    return helper(s, x, p, y + 1, n - 1)
""",
    ),
)

CONSTRUCTS: Final = (*_BRANCHES, *_LOOPS, *_ERRORS, *_EXPRESSIONS, *_FUNCTIONS)
GROUPS: Final = tuple(dict.fromkeys(each.group for each in CONSTRUCTS))


@dataclass(frozen=True, slots=True)
class Observer:
    """A way to see an effect later: statements before the construct, and behind it.

    ``LOOK`` and ``THING`` in them are the expressions of the effect. The caller looks after each
    call in any case; `backward` has it go backward first, `thread` call in a thread of its own.
    """

    name: str
    before: str = ""
    after: str = ""
    backward: bool = False
    thread: bool = False


OBSERVERS: Final = (
    Observer("behind the call"),
    Observer("in the call", after="seen.append(kept(LOOK))"),
    Observer("printed", after="print('seen', LOOK)"),
    Observer(
        "decides",
        before="before = kept(LOOK)",
        after="if same(LOOK, before):\n    y = y * 2\nelse:\n    y = y + 10",
    ),
    Observer("next call", before="seen.append(kept(LOOK))"),
    Observer(
        "by a function",
        before="def reader():\n    return LOOK",
        after="y = y + 1\nseen.append(kept(reader()))",
    ),
    Observer("raised", after="raise Seen(LOOK)"),
    Observer(
        "identity",
        before="first = THING",
        after="seen.append(THING is first)\nseen.append(y is x)\ny = y.add_(1)\nseen.append(THING)",
    ),
    Observer("thread", thread=True),
    Observer("backward", backward=True),
)

#: Conditions with the sign of the items of ``p``.
PREDICATES: Final = (
    "p.sum() > 0",
    "p[0] > 0",
    "(p > 0).all()",
    "not p.mean() < 0",
    "p.max() > 0 and p[0] > -9",
    "0 < p.sum()",
)
#: What the other side does.
OTHERS: Final = ("y = y - 1", "pass", "s.other = y - 1")
#: How the two calls in the middle differ from the rest.
VARIATIONS: Final = ("plain", "shape", "no_grad", "eval")
