"""Classes and objects that random programs may use."""

from __future__ import annotations

from typing import Final

OBJECTS: Final = (
    """
class Box:
    def __init__(self, value, count=0):
        self.value = value
        self.count = count
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
class Meter:
    def __init__(self, value):
        self.value = value

    def read(self):
        sys._getframe()
        return self.value + 1


bcmend.register_capture(Meter.read, lambda self: self.value + 1)
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
show = functools.partial(print, "shown:")
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
global_count = []
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
class Point:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    @property
    def doubled(self):
        return self.value * 2 if self.value.sum() > 0 else self.value
""",
)
