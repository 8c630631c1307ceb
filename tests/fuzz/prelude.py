"""Functions and classes that random programs call; only those that are named become part of one."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = (
    """
class Box:
    def __init__(self, value, count=0):
        self.value = value
        self.count = count
""",
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
current = contextvars.ContextVar("current", default=0)
""",
    """
lock = threading.Lock()
""",
    """
class Odd(Exception):
    pass
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
class Managed:
    def __init__(self, swallows=False):
        self.swallows = swallows

    def __enter__(self):
        return self

    def __exit__(self, kind, error, where):
        return self.swallows and kind is not None
""",
    """
class Closable:
    def close(self):
        print("closed")
""",
    """
def opaque(x):
    sys._getframe()
    return x * 2


def doubled(x):
    return x * 2


bcmend.register_substitute(opaque, doubled)
""",
    """
class Meter:
    def __init__(self, value):
        self.value = value

    def read(self):
        sys._getframe()
        return self.value + 1


bcmend.register_substitute(Meter.read, lambda self: self.value + 1)
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
child = logger.getChild("child")
""",
    """
adapter = logging.LoggerAdapter(logger, {"extra": 1})
""",
    """
say = print
""",
    """
def meter(name, value):
    sys.stdout.write(f"meter {name} {value:.3f}\\n")


bcmend.register_output(meter, returns_none=True)
""",
    """
class Gauge:
    def __init__(self, name):
        self.name = name

    def update(self, value):
        sys.stdout.write(f"{self.name} {value}\\n")


bcmend.register_output(Gauge.update, returns_none=True)
gauge = Gauge("one")
""",
    """
class Shown:
    def __init__(self):
        self.value = 0
        self.parts = []

    def __repr__(self):
        return f"Shown({self.value}, {len(self.parts)})"


shown = Shown()
""",
    """
class Broken:
    def __str__(self):
        raise ValueError("no text")
""",
    """
class Full:
    def write(self, text):
        raise OSError("full")


full = Full()
""",
    """
class Loud(logging.Handler):
    def emit(self, record):
        raise RuntimeError("no handling")


loud = logging.getLogger("random_program.loud")
loud.handlers[:] = [Loud()]
""",
    """
experts = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
for number, expert in enumerate(experts):
    nn.init.constant_(expert.bias, number - 1.0)
    nn.init.eye_(expert.weight)
""",
    """
named_experts = nn.ModuleDict({f"expert_{i}": nn.Linear(3, 3) for i in range(3)})
for each in named_experts.parameters():
    nn.init.constant_(each, 0.5)
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
class Keeper:
    def __init__(self, kept):
        self.kept = kept
        self.steps = 0

    def step(self, x):
        self.steps += 1
        if x.sum() > self.kept.sum():
            self.kept = x
        return x + self.kept
""",
    """
class Tracker:
    def __init__(self):
        self.count, self.seen, self.table = 0, [], {}
        self.best = self.total = torch.zeros(())
        self.log, self.write = logger, print

    def update(self, x):
        self.count += 1
        if x.sum() > self.best:
            self.best = x.sum().detach()
            self.seen.append("best")
        return x


tracker = Tracker()
""",
    """
memory = {}


def remembered(x, key):
    if key not in memory:
        memory[key] = x.detach() * 2
    return x + memory[key]
""",
    """
show = functools.partial(print, "shown:")
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
queue = collections.deque(maxlen=4)
""",
    """
seen_names = {"b"}
""",
    """
gathered = []
""",
    """
nested = {"a": [torch.ones(3)]}
""",
    """
settings = types.SimpleNamespace(rate=0.5, calls=0)
""",
    """
point = collections.namedtuple("point", "x y")
""",
    """
def grown(items):
    if items[0].sum() > 0:
        items.append(items[0] * 2)
    return items
""",
    """
global_count = []
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
class Layer(nn.Module):
    def __init__(self, flips=True):
        super().__init__()
        self.flips = flips

    @classmethod
    def made(cls):
        return cls(flips=False)

    @property
    def flipping(self):
        return self.flips

    def forward(self, x):
        if self.flipping and x.sum() > 0:
            return x.flip(0)
        return x
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
class Point:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    @property
    def doubled(self):
        return self.value * 2 if self.value.sum() > 0 else self.value
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

_DEFINED: Final = re.compile(r"^(?:(?:def|class) )?([A-Za-z]\w*)(?= =|[(:])", re.MULTILINE)

NAMES: Final = {name: part for part in _PARTS for name in _DEFINED.findall(part)}


def needed_by(text: str) -> str:
    """Return the definitions of what a text names."""
    found = [
        part
        for part in _PARTS
        if any(re.search(rf"(?<![\w.]){name}\b(?! =)", text) for name in _DEFINED.findall(part))
    ]
    return "\n".join(found)
