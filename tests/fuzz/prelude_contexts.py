"""What the themes of errors, contexts, shown objects and layers call."""

from __future__ import annotations

from typing import Final

CONTEXTS: Final = (
    """
class Coded(Exception):
    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code
""",
    """
class Lettered(KeyError):
    def __str__(self):
        return "no letter"
""",
    """
class Limited(nn.Module):
    def __init__(self, most):
        super().__init__()
        self.most = most

    def forward(self, x, n):
        if n > self.most:
            raise RuntimeError("over the limit", n)
        return x * 2
""",
    """
class Refusing:
    def __init__(self, n):
        if n > 1:
            raise ValueError("refused")
        self.n = n

    def __call__(self, x):
        if self.n == 0:
            raise IndexError("none is left")
        return x * self.n
""",
    """
def looked_up(names, key):
    try:
        return names[key]
    except KeyError:
        raise LookupError(key) from None
""",
    """
def passed_on(x, n):
    try:
        if n > 1:
            raise ValueError("too many", n)
    except ValueError as error:
        raise RuntimeError("passed on") from error
    return x + n
""",
    """
def checked(x, n):
    if n > 1:
        raise Wrong(n)
    return x


class Wrong(ValueError):
    def __init__(self, *parts):
        ValueError.__init__(self, "wrong", *parts)
""",
    """
def run_through(action, *given):
    return action(*given)
""",
    """
def failing_at(n):
    for each in range(3):
        yield each
        if each == n:
            raise ValueError("in a generator")
""",
    """
again = threading.RLock()
""",
    """
class Cached:
    def __init__(self, value):
        self.value = value

    @functools.cached_property
    def doubled(self):
        return self.value * 2
""",
    """
unset = contextvars.ContextVar("unset")
""",
    """
class Owner:
    def __init__(self):
        self.names = collections.OrderedDict(a=1)
        self.parts = [1, 2]
        self.kinds = {1, 2}
        self.recent = collections.deque([1], maxlen=3)
        self.inner = types.SimpleNamespace(n=1)
        self.weight = torch.ones(2)
        self.n = 0

    def __repr__(self):
        return (
            f"Owner({self.n}, {list(self.names)}, {self.parts}, {len(self.kinds)}, "
            f"{list(self.recent)}, {self.inner.n}, {self.weight.sum().item()})"
        )


owner = Owner()
""",
    """
class Slotted:
    __slots__ = ("held", "n")

    def __init__(self):
        self.held, self.n = [], 0

    def __str__(self):
        return f"Slotted({len(self.held)}, {self.n})"


slotted = Slotted()
""",
    """
class Filled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("known", torch.zeros(3))
        self.own = nn.Parameter(torch.ones(3))
        self.notes = {"a": 1}

    def extra_repr(self):
        return f"{len(self._buffers)}, {sorted(self.notes)}"


filled = Filled()
""",
    """
gru = nn.GRU(3, 3, batch_first=True)
for each in gru.parameters():
    nn.init.constant_(each, 0.25)
""",
    """
lstm = nn.LSTM(3, 3, num_layers=2, dropout=0.5)
for each in lstm.parameters():
    nn.init.constant_(each, -0.5)
""",
    """
elman = nn.RNN(3, 3)
for each in elman.parameters():
    nn.init.constant_(each, 0.5)
""",
    """
inner = nn.Linear(3, 3)
for each in inner.parameters():
    nn.init.constant_(each, 0.5)
""",
    """
catalog = {"a": torch.ones(3), "n": 1}
""",
    """
ordered = collections.OrderedDict(first=1, second=2)
""",
    """
grouped = collections.defaultdict(list)
""",
)
