"""What random programs may call that Dynamo does not trace: of the host, or with a substitute."""

from __future__ import annotations

from typing import Final

CALLS: Final = (
    """
def spans(lengths, size=4, value=1.0, rows=(3,)):
    table = numpy.zeros((rows[0], size))
    for row, length in enumerate(lengths.tolist()[: rows[0]]):
        table[row, : max(min(length, size), 0)] = value
    return table
""",
    """
def sampled_spans(lengths, most=4, share=0.5):
    table = numpy.zeros((3, most), dtype=bool)
    for row, length in enumerate(lengths.tolist()):
        places = numpy.random.choice(numpy.arange(most), min(length, most), replace=False)
        table[row, places[: max(round(most * share), 1)]] = True
    return table
""",
    """
def as_many_as(count):
    number = max(min(count.sum().item(), 3), 0)
    return numpy.random.choice(numpy.arange(number + 1), number, replace=False) * 1.0
""",
    """
def overwritten(lengths):
    array = numpy.array([min(each, 9) for each in lengths.tolist()])
    view = lengths.numpy()
    view[0] = 7
    return array
""",
    """
def histogram(x, low=0.0, high=3.0):
    array = numpy.zeros(3, dtype=numpy.float32)
    for each in x.tolist():
        if low < each < high:
            array[int(each)] += 1
    return array
""",
    """
class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("stride", torch.tensor(2))
        self.register_buffer("form", torch.tensor([1, 3]))
        self.register_buffer("ratio", torch.tensor(0.5))
        self.register_buffer("table", torch.arange(20))

    def forward(self, x):
        extra = (x.shape[-1] + 1) * self.stride - x.shape[-1]
        x = functional.pad(x, (0, extra))[: int(self.form[1])]
        if self.form.prod() > 2:
            x = x.view(tuple(self.form.tolist())).flatten()
        return x * self.stride.item()


codec = Codec()
""",
    """
def framed(x, own=False):
    return sys._getframe().f_code.co_name and (x.abs() if own else x - 1)


def plain_framed(x, own=False):
    return x.abs() if own else x - 1


bcmend.register_capture(framed, plain_framed)
""",
    """
def cautious(x):
    sys._getframe()
    return x * 2


def careful(x):
    return x * 2 if x.sum() > 0 else cautious(x)


bcmend.register_capture(cautious, careful)
""",
    """
class Probe:
    def __init__(self, step):
        self.step = step

    def measure(self, x):
        sys._getframe()
        return x + self.step

    @staticmethod
    def level(x):
        sys._getframe()
        return x.abs()

    def __call__(self, x):
        sys._getframe()
        return x - self.step


probe = Probe(1)
other_probe = Probe(2)
bcmend.register_capture(probe.measure, lambda x: x + 1)
bcmend.register_capture(Probe.level, torch.abs)
bcmend.register_capture(other_probe, lambda x: x - 2)
""",
    """
@torch.compiler.disable
def apart(x):
    return x + 3


def untraced(x):
    sys._getframe()
    return x + 3


bcmend.register_capture(untraced, apart)
""",
    """
import dataclasses

Pairing = dataclasses.make_dataclass("Pairing", [("first", object), ("second", object, None)])
""",
    """
shared_norm = nn.BatchNorm1d(3)
""",
)
