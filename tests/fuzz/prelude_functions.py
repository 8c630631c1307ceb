"""Functions that random programs may call, each with what it needs."""

from __future__ import annotations

from typing import Final

FUNCTIONS: Final = (
    """
def note(x):
    print("note", x.sum().item())
""",
    """
def require(x, most=50.0):
    if x.max() > most:
        raise ValueError("too large", most)
    return x
""",
    """
def is_positive(x):
    return x.sum() > 0
""",
    """
def kept(x):
    if x.sum() > 0:
        return x * 2
    return None
""",
    """
def level(x):
    if x.sum() > 4:
        return 2
    if x.sum() > 0:
        return 1
    return 0
""",
    """
def signed(x):
    if x.min() < 0:
        return x.abs(), "negative"
    return x, "positive"
""",
    """
def scaled(x, *others, by=2.0, **options):
    for other in others:
        x = x + other
    if options.get("flip", False):
        x = x.flip(0)
    return x * by
""",
    """
def shift_(x):
    x.add_(1)
    return x
""",
    """
def store(table, key, x):
    if x.sum() > 0:
        table[key] = x
    return len(table)
""",
    """
def pieces(x):
    for row in x:
        if row > 0:
            yield row * 2
        else:
            yield row
""",
    """
@contextlib.contextmanager
def managed(name):
    print("enter", name)
    try:
        yield name
    finally:
        print("exit", name)
""",
    """
def opaque(x):
    sys._getframe()
    return x * 2


def doubled(x):
    return x * 2


bcmend.register_capture(opaque, doubled)
""",
    """
def bounded(x, limit=50.0):
    torch._check_value(bool((x.abs() < limit).all()), lambda: f"over {limit}")
    if torch.isnan(x).any():
        raise ValueError("nan")
    return x
""",
    """
def self_check(x, box):
    if box.count > 3 and x.sum() > 0:
        raise RuntimeError("count")
    assert x.dim() == 1
""",
    """
def meter(name, value):
    sys.stdout.write(f"meter {name} {value:.3f}\\n")


bcmend.register_output(meter, returns_none=True)
""",
    """
def host_spans(lengths, size=4):
    spans = numpy.zeros((3, size), dtype=bool)
    for row, length in enumerate(lengths.tolist()):
        for start in range(min(abs(length), size)):
            spans[row, start] = True
    return torch.from_numpy(spans)
""",
    """
@torch.autocast("cpu", dtype=torch.bfloat16)
def halved(x):
    if x.sum() > 2:
        return (x @ torch.eye(3)).float() / 2
    return x
""",
    """
@torch.no_grad()
def quietly(x):
    return x * 2 if x.sum() > 0 else x
""",
    """
memory = {}


def remembered(x, key):
    if key not in memory:
        memory[key] = x.detach() * 2
    return x + memory[key]
""",
    """
def warned(x):
    if x.sum() > 0:
        warnings.warn("positive", stacklevel=2)
    logger.warning("warned", stacklevel=2)
    return x
""",
    """
def failing(n):
    if n > 1:
        raise ValueError("fails", n)
    return n
""",
    """
def grown(items):
    if items[0].sum() > 0:
        items.append(items[0] * 2)
    return items
""",
    """
def chosen_by(x, mode):
    table = {"a": lambda v: v + 1, "b": lambda v: v - 1}
    return table[mode](x)
""",
    """
def either(x, *, first=True):
    return x.abs() if first and x.sum() < 0 else x * 2
""",
    """
def _part(x, y, by):
    return x * by + y if x.max() > 1 else y


partly = functools.partial(_part, y=1.0, by=2)
""",
    """
def walked(x):
    for i in range(3):
        if x[i] > 0:
            yield x * i
    yield x
""",
    """
@functools.wraps(print)
def once(x):
    if x.sum() > 1:
        return x - 1
    return x
""",
    """
def recursive(x, n):
    if n == 0 or x.sum() > 20:
        return x
    return recursive(x.abs() + 1, n - 1)
""",
    """
def tower(x, mask=None):
    for _ in range(2):
        out = x * 2
        if mask is not None:
            out = out + mask
        if torch.isinf(out).any() or torch.isnan(out).any():
            out = out.clamp(min=-5.0, max=5.0)
        x = out
    return x
""",
    """
def either_or_none(x):
    return x * 2 if x.sum() > 0 else None
""",
    """
def name_of(x):
    return "a" if x.sum() > 0 else "b"
""",
    """
def judged(x):
    if x.sum() > 3:
        return "good"
    elif x.sum() < 0:
        return "bad"
    return ""
""",
    """
def two_of(x):
    if x.min() < 0:
        return True, x.abs()
    return False, x
""",
    """
def no(x):
    if x.sum() < 0:
        raise ValueError("no")
    return x


def yes(x):
    return x + 1
""",
)
