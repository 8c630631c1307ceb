"""The kinds of value that random programs handle, and arguments of each kind.

The arguments of a kind are so that a branch on them goes both ways, and hold the values at which
arithmetic changes its ways: infinities, NaN, signed zeros, empty tensors, the ends of int64.
"""

from __future__ import annotations

from typing import Final

VECTOR: Final = "vector"  # float32, three elements
MATRIX: Final = "matrix"  # float32, rows of three elements
SCALAR: Final = "scalar"  # float32, no dimension
HALF: Final = "half"  # float16, three elements
INTEGERS: Final = "integers"  # int64, three elements
MASK: Final = "mask"  # bool, three elements
INT: Final = "int"
FLOAT: Final = "float"
BOOL: Final = "bool"
TEXT: Final = "text"
MAYBE: Final = "maybe"  # a vector or None
LIST: Final = "list"  # of vectors
PAIR: Final = "pair"  # a vector and an int
TABLE: Final = "table"  # vectors by "a", "b" and more
BOX: Final = "box"
ANY: Final = "any"  # one of several kinds

TENSORS: Final = (VECTOR, MATRIX, SCALAR, HALF, INTEGERS, MASK)
FLOATING: Final = (VECTOR, MATRIX, SCALAR)

_VECTORS: Final = (
    "torch.tensor([1.0, 2.0, 3.0])",
    "torch.tensor([-1.0, -2.0, 0.5])",
    "torch.tensor([4.0, -3.0, 0.0])",
    "torch.tensor([-0.0, 0.0, -7.0])",
    "torch.tensor([60.0, -70.0, 30.0])",
    "torch.tensor([nan, 1.0, -1.0])",
    "torch.tensor([inf, -1.0, 2.0])",
    "torch.zeros(3)",
    "torch.tensor([0.25, 0.5, -0.125])",
    "torch.tensor([0.1, 0.7, 0.4])",
)

#: Texts of arguments by kind, the plainest first.
ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    VECTOR: _VECTORS,
    MATRIX: (
        "torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])",
        "torch.tensor([[-1.0, 0.5, -3.0], [2.0, -5.0, 1.0]])",
        "torch.tensor([[-1.0, -2.0, -3.0]])",
        "torch.tensor([[nan, 1.0, 2.0], [inf, 0.0, -1.0]])",
        "torch.zeros(0, 3)",
    ),
    SCALAR: tuple(
        f"torch.tensor({each})"
        for each in ("1.0", "-2.0", "0.0", "nan", "-inf", "9.5", "0.75", "-0.25")
    ),
    HALF: (
        "torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16)",
        "torch.tensor([-1.0, -2.0, 1.5], dtype=torch.float16)",
        "torch.tensor([60000.0, 30000.0, -1.0], dtype=torch.float16)",
    ),
    INTEGERS: (
        "torch.tensor([1, 2, 3])",
        "torch.tensor([-1, 0, -4])",
        "torch.tensor([0, 2, 1])",
        "torch.tensor([2**63 - 1, -(2**63), 1])",
    ),
    MASK: (
        "torch.tensor([True, False, True])",
        "torch.tensor([False, False, False])",
        "torch.tensor([True, True, True])",
    ),
    INT: ("1", "2", "0", "-1", "3"),
    FLOAT: ("1.0", "0.5", "-2.0", "0.0", "0.1"),
    BOOL: ("True", "False"),
    TEXT: ('"a"', '"b"', '"none"'),
    MAYBE: ("None", *_VECTORS[:4]),
    LIST: (
        f"[{_VECTORS[0]}, {_VECTORS[1]}]",
        f"[{_VECTORS[2]}, {_VECTORS[0]}, {_VECTORS[3]}]",
        f"[{_VECTORS[1]}]",
    ),
    PAIR: (f"({_VECTORS[0]}, 1)", f"({_VECTORS[1]}, 2)"),
    TABLE: (
        f'{{"a": {_VECTORS[0]}, "b": {_VECTORS[1]}}}',
        f'{{"a": {_VECTORS[1]}, "b": {_VECTORS[2]}}}',
    ),
    BOX: (f"Box({_VECTORS[0]})", f"Box({_VECTORS[1]}, 2)"),
}
