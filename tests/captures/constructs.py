"""What code does with numbers that it reads out of tensors, after Python's and torch's references.

Operators, builtins, functions of ``math``, methods, formats and containers of Python; functions of
torch that take numbers. No row stands for these: they are what the handlers capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bcmend.knowledge.domains import Domain, constants, domain, read

_FLOAT: Final = read("2.5", "nan", "-0.0", "inf", "-3.0", "0.5", "7.25")
_INTEGER: Final = read("2", "0", "-7", "3", "1")
_ANY_INTEGER: Final = read("2", "0", "-7", "2**63 - 1", "-2**63", "1")
_TRUTH: Final = read("True", "False")
_COUNT: Final = read("0", "1", "2", "5")
_SOME_FLOATS: Final = constants("2", "0.5", "0", "-1.0", "True")
_SOME_INTEGERS: Final = constants("2", "-1", "0", "3")


def _operators() -> Iterator[tuple[str, Domain]]:
    for sign in "+ - * / // % ** == < >= != and or".split():
        yield f"float {sign} c", domain(f"n {sign} c", n=_FLOAT, c=_SOME_FLOATS)
        yield f"c {sign} float", domain(f"c {sign} n", n=_FLOAT, c=_SOME_FLOATS)
        yield f"integer {sign} c", domain(f"n {sign} c", n=_INTEGER, c=_SOME_FLOATS)
        yield f"c {sign} integer", domain(f"c {sign} n", n=_INTEGER, c=_SOME_FLOATS)
        yield f"float {sign} integer", domain(f"n {sign} m", n=_FLOAT, m=_INTEGER)
        yield f"integer {sign} integer", domain(f"n {sign} m", n=_INTEGER, m=_INTEGER)
        yield f"truth {sign} integer", domain(f"n {sign} m", n=_TRUTH, m=_INTEGER)
        yield f"float {sign} truth", domain(f"n {sign} m", n=_FLOAT, m=_TRUTH)
        if sign not in ("and", "or"):
            yield f"tensor {sign} float", domain(f"x {sign} n", n=_FLOAT)
            yield f"integer {sign} tensor", domain(f"n {sign} x", n=_INTEGER)
    for sign in "& | ^ << >>".split():
        yield f"integer {sign} c", domain(f"n {sign} c", n=_INTEGER, c=_SOME_INTEGERS)
        yield f"c {sign} integer", domain(f"c {sign} n", n=_COUNT, c=_SOME_INTEGERS)
        yield f"truth {sign} truth", domain(f"n {sign} m", n=_TRUTH, m=_TRUTH)


def _builtins() -> Iterator[tuple[str, Domain]]:
    kinds = {"float": _FLOAT, "integer": _ANY_INTEGER, "truth": _TRUTH}
    for kind, values in kinds.items():
        for name in "int float bool round abs str repr complex type".split():
            yield f"{name}({kind})", domain(f"{name}(n)", n=values)
        yield f"hash({kind})", domain("hash(n) if n == n else 0", n=values)  # else it is an address
        yield f"signs of {kind}", domain("(-n, +n, not n)", n=values)
        yield (
            f"types of {kind}",
            domain("(isinstance(n, int), isinstance(n, float), type(n) is bool)", n=values),
        )
    digits = constants("0", "1", "-1", "None")
    yield "round to digits", domain("round(n, c)", n=_FLOAT, c=digits)
    yield "divmod(float)", domain("divmod(n, c)", n=_FLOAT, c=constants("2", "0.75", "0"))
    yield "divmod(integer)", domain("divmod(n, c)", n=_INTEGER, c=_SOME_INTEGERS)
    yield "pow", domain("pow(n, c)", n=_INTEGER, c=constants("2", "0", "3", "-1"))
    yield "pow of three", domain("pow(n, c, 7)", n=_INTEGER, c=constants("2", "0", "3"))
    for kind, values in (("floats", _FLOAT), ("integers", _INTEGER)):
        extremes = "(min(n, m), max(n, m), min(n, 1), max(0, m))"
        yield f"min and max of {kind}", domain(extremes, n=values, m=values)
        yield f"sum of {kind}", domain("sum([n, m, 1])", n=values, m=_INTEGER)
        yield f"sorted {kind}", domain("sorted([n, m, 1])", n=values, m=_INTEGER)
        yield f"{kind} in", domain("(n in [1, 2.5], n in (0, m), n in {3, 1})", n=values, m=values)
        yield f"chain of {kind}", domain("0 < n <= m", n=values, m=values)
        yield f"choice of {kind}", domain("'a' if n > m else n", n=values, m=values)


def _containers() -> Iterator[tuple[str, Domain]]:
    calls = (
        "[1, 2, 0].index(n)",
        "[1, 2, n, 0].count(2)",
        "{1: 'a', 2: 'b', 0: 'c'}.get(n)",
        "{1: 'a', 2: 'b', 0: 'c'}[n]",
        "{n: 1, 5: 3}",
        "{n, 5}",
        "[1, 2, 0][n]",
        "[1, 2, 0][n:]",
        "(1, 2, 3, 4)[:n]",
        "'abcd'[n]",
        "[x, x + 1, x * 2][n]",
        "(1, 2) * n",
        "'ab' * n",
        "list(range(n))",
        "list(range(0, 5, n))",
        "len(range(n))",
        "[each for each in (3, 2, n) if each > 2]",
        "sorted([n, 4, 1], key=lambda each: -each)",
        "dict(zip('ab', (n, 1)))",
        "next(iter((n, 2)))",
        "any([n, 0])",
        "all([n, 1])",
        "list(enumerate('ab', n))",
        "list(reversed([n, 1]))",
        "getattr(x, 'shape')[0] + n",
        "f'key {n}' in {'key 2': 1}",
    )
    for each in calls:
        yield each, domain(each, n=_INTEGER)


def _texts() -> Iterator[tuple[str, Domain]]:
    yield "f-string", domain("f'{n} {n:.3f} {m:d} {m:>5} {n!r}'", n=_FLOAT, m=_INTEGER)
    yield "%", domain("'%s %.2e %d' % (n, n, m)", n=_FLOAT, m=_INTEGER)
    yield "format", domain("'{:+.1f} {}'.format(n, m)", n=_FLOAT, m=_INTEGER)
    for each in (".1f", ".0f", "g", ".3g", "e", "%", "10.2f", ",", "+"):
        yield f"float:{each}", domain(f"f'{{n:{each}}}'", n=_FLOAT)
    for each in ("d", "x", "b", "05d", ",", "o", "+", "e", ">4"):
        yield f"integer:{each}", domain(f"f'{{n:{each}}}'", n=_ANY_INTEGER)


def _math() -> Iterator[tuple[str, Domain]]:
    one = (
        "sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos atan sinh cosh tanh floor ceil"
        " trunc fabs gamma lgamma erf erfc degrees radians isnan isinf isfinite modf frexp exp2"
        " cbrt ulp"
    )
    for name in one.split():
        yield f"math.{name}(float)", domain(f"math.{name}(n)", n=_FLOAT)
        yield f"math.{name}(integer)", domain(f"math.{name}(n)", n=_INTEGER)
    for name in "pow fmod atan2 hypot copysign remainder isclose nextafter ldexp".split():
        yield (
            f"math.{name}(float, c)",
            domain(f"math.{name}(n, c)", n=_FLOAT, c=constants("2.0", "0.0", "-1.5", "3")),
        )
        yield (
            f"math.{name}(c, integer)",
            domain(f"math.{name}(c, n)", n=_INTEGER, c=constants("2.0", "0.0", "-1.5")),
        )
    for name in "factorial isqrt".split():
        yield f"math.{name}", domain(f"math.{name}(n)", n=_INTEGER)
    for name in "gcd comb perm lcm".split():
        yield f"math.{name}", domain(f"math.{name}(n, c)", n=_INTEGER, c=constants("4", "0", "1"))
    for name in "prod fsum".split():
        yield f"math.{name}", domain(f"math.{name}([n, m])", n=_FLOAT, m=_INTEGER)
    for name in "is_integer() hex() as_integer_ratio() conjugate() real imag __add__(1)".split():
        yield f"float.{name}", domain(f"n.{name}", n=_FLOAT)
    for name in "bit_length() bit_count() conjugate() numerator denominator real".split():
        yield f"integer.{name}", domain(f"n.{name}", n=_ANY_INTEGER)


#: Calls with an integer.
_OF_INTEGERS: Final = (
    *("x[n]", "x[:n]", "x[n:m]", "x[::n]", "x[-n:]", "x.view(2, 3)[:, n]", "x[[n, 0]]"),
    *("torch.zeros(n)", "torch.arange(n)", "torch.eye(n)", "torch.full((2,), n)", "x.new_ones(n)"),
    *("torch.roll(x, n)", "torch.topk(x, n)", "torch.chunk(x, n)", "torch.split(x, n)"),
    *("torch.narrow(x, 0, 0, n)", "torch.clamp(x, min=n)", "torch.pow(x, n)", "x.cumsum(n)"),
    *("x.view(n, -1)", "x.expand(n, 6)", "x.repeat(n)", "x.select(0, n)", "x.unsqueeze(n)"),
    *("x.sum(n)", "x.tile(n)", "torch.triu(x.view(2, 3), n)", "torch.nn.functional.pad(x, (n, 0))"),
    *("x.masked_fill(x > 0, n)", "x.div(n)", "x.kthvalue(n)", "x.unflatten(0, (n, -1))"),
    *("x.flip((n,))", "x.view(2, 3).diagonal(n)", "torch.add(x, x, alpha=n)", "x.lt(n)"),
    *("torch.where(x > 0, n, x)", "torch.lerp(x, x + 1, n)", "torch.combinations(x, n)"),
    *("torch.nn.functional.one_hot(torch.tensor([0, 1]), n)", "torch.tensor([n, m])"),
    *("torch.nn.functional.interpolate(x.view(1, 1, 6), size=n)", "torch.randint(n, (2,))"),
    *("torch.nn.functional.avg_pool1d(x.view(1, 1, 6), n)", "torch.linspace(0, 1, n)", "x.clone()"),
    *(
        "torch.randperm(n)",
        "torch.stack([x] * n)",
        "torch.cat([x] * n)",
        "x.index_fill(0, x.long(), n)",
    ),
    *("x.view(2, 3).transpose(0, n)", "x.squeeze(n)", "x.movedim(0, n)", "x.argsort(n)"),
    *("x.unfold(0, n, 1)", "torch.tensor_split(x, n)", "x.softmax(n)", "x.bincount(minlength=n)"),
    *(
        "torch.histc(x, n)",
        "torch.vander(x, n)",
        "torch.tril_indices(n, 2)",
        "x.repeat_interleave(n)",
    ),
)
#: Calls with a floating number.
_OF_FLOATS: Final = (
    *("torch.clamp(x, max=n)", "torch.pow(x, n)", "torch.pow(n, x)", "x.masked_fill(x > 0, n)"),
    *("x.div(n)", "torch.quantile(x, n)", "torch.add(x, x, alpha=n)", "torch.lerp(x, x + 1, n)"),
    *("torch.where(x > 0, n, x)", "x.lt(n)", "torch.full((2,), n)", "x.addcmul(x, x, value=n)"),
    *("torch.nn.functional.leaky_relu(x, n)", "torch.nn.functional.threshold(x, n, 1.0)"),
    *("torch.nn.functional.hardshrink(x, n)", "torch.nn.functional.elu(x, n)", "x.clamp(-n, n)"),
    *("torch.nn.functional.huber_loss(x, x + 1, delta=n)", "torch.nan_to_num(x, n)", "x.fmod(n)"),
    *("torch.nn.functional.layer_norm(x, (6,), eps=n)", "x.isclose(x + 1, n)", "x.copysign(n)"),
    *("torch.renorm(x.view(2, 3), 2, 0, n)", "x.remainder(n)", "x.float_power(n)", "x.norm(n)"),
    *("torch.cdist(x.view(2, 3), x.view(2, 3), n)", "torch.nn.functional.normalize(x, n, 0)"),
    *("torch.nn.functional.interpolate(x.view(1, 1, 6), scale_factor=n)", "torch.tensor([n, 1])"),
    *("torch.normal(n, 1.0, (2,))", "x.clone().uniform_(0, n)", "x.clone().normal_(n)"),
    *("x.clone().bernoulli_(n)", "x.clone().exponential_(n)", "torch.nn.functional.gelu(x) * n"),
    *(
        "torch.arange(0, n, 0.5)",
        "torch.linspace(0, n, 4)",
        "x.full_like(x, n)",
        "x.softmax(0) / n",
    ),
    *("torch.nn.functional.dropout(x, n)", "torch.tensor(n, dtype=torch.float16)", "x[x > n]"),
    *("torch.heaviside(x, x.new_tensor(n))", "x.clone().fill_(n)", "x.clone().mul_(n)", "x.eq(n)"),
    *("numpy.float32(n)", "numpy.sqrt(n)", "numpy.clip(n, 0, 1)", "numpy.array([n, 1.0])"),
    *("torch.nn.functional.softplus(x, n)", "torch.nn.functional.celu(x, n)", "x.logit(n)"),
)


def _calls() -> Iterator[tuple[str, Domain]]:
    for each in _OF_INTEGERS:
        values = {"m": _COUNT} if "m]" in each else {}
        yield f"{each}, integer", domain(each, n=_INTEGER, **values)
    for each in _OF_FLOATS:
        yield f"{each}, float", domain(each, n=_FLOAT)


CONSTRUCTS: Final = dict(
    each for part in (_operators, _builtins, _containers, _texts, _math, _calls) for each in part()
)
