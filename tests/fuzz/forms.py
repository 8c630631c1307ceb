"""Forms of simple statements, the plainest first; in braces stands the kind of an expression."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import templates
from tests.fuzz.values import (
    BOOL,
    BOX,
    FLOAT,
    INT,
    LIST,
    MASK,
    MATRIX,
    MAYBE,
    PAIR,
    SCALAR,
    TABLE,
    TEXT,
    VECTOR,
)

NEW: Final = {
    VECTOR: ("y", "z", "out", "w"),
    MATRIX: ("grid",),
    SCALAR: ("total", "peak"),
    INT: ("k", "steps"),
    FLOAT: ("rate",),
    BOOL: ("flag", "done"),
    TEXT: ("mode",),
    MAYBE: ("extra", "cache"),
    LIST: ("parts", "seen"),
    PAIR: ("both",),
    TABLE: ("named",),
    BOX: ("holder",),
    MASK: ("chosen",),
}
OFTEN: Final = (VECTOR, VECTOR, VECTOR, SCALAR, INT, FLOAT, BOOL, MAYBE, LIST, TEXT, PAIR)
SELDOM: Final = (MATRIX, MASK, TABLE, BOX)

IN_PLACE: Final = (
    "{vector}.add_(1)",
    "{vector}.mul_({vector})",
    "{vector}[0] = {float}",
    "{vector}[{mask}] = 0.0",
    "{vector}.copy_({vector})",
    "{vector}.clamp_(min=0)",
    "{vector}[1:].sub_(2)",
    "{vector}.view(-1).neg_()",
    "{vector}.zero_()",
    "{list}[0].add_(1)",
    "{box}.value.add_(1)",
    "shift_({vector})",
)
STORES: Final = (
    "{list}.append({vector})",
    "{list}[0] = {vector}",
    "{list}.pop()",
    "{table}['a'] = {vector}",
    "{table}['c'] = {vector}",
    "{table}.update(b={vector})",
    "del {table}['b']",
    "{box}.value = {vector}",
    "{box}.count += 1",
    "{box}.count = {int}",
    "{list}.insert(0, {vector})",
    "store({table}, 'd', {vector})",
)
OUTPUT: Final = (
    "print('here')",
    "print('sum', {vector}.sum().item())",
    "print({vector}.detach())",
    "print({int}, {text}, sep='-')",
    "print(f'''{{scalar}.item():.2f}''')",
    "note({vector})",
    "logger.info('mean %s', {vector}.mean().item())",
    "logger.warning('at %d', {int})",
    "warnings.warn('odd')",
    "print({vector}.shape, end=';')",
    "print({any} is None)",
)
CHECKS: Final = (
    "require({vector})",
    "assert {data}",
    "assert {data}, 'not so'",
    "raise ValueError('bad', {int})",
    "raise RuntimeError('stop')",
)


#: Of programs in which gradients flow: what has none, or an infinite one, somewhere.
OF_TRAINING: Final = {
    VECTOR: (
        "{vector}.sqrt()",
        "{vector}.log()",
        "{vector}.abs().sqrt()",
        "{vector} / {vector}",
        "{vector}.pow(0.5)",
        "{vector} / {vector}.norm()",
        "{vector}.clamp(min=0).log1p()",
    ),
    SCALAR: ("{vector}.norm()", "{vector}.std()"),
}

OF_MODULES: Final = {
    VECTOR: ("self.linear({vector})", "{vector} * self.weight", "self.total + {vector}"),
    FLOAT: ("self.limit",),
    INT: ("self.count",),
    MAYBE: ("self.last",),
    LIST: ("self.kept",),
    SCALAR: ("self.weight.sum()",),
}
OF_MODULE_STORES: Final = (
    "self.count += 1",
    "self.last = {vector}.detach()",
    "self.last = None",
    "self.limit = {float}",
    "self.total = self.total + {vector}.detach()",
    "self.kept.append({vector}.detach())",
    "self.extra = {vector}.detach()",
    "self.count = {int}",
)

#: Of the module that has layers.
OF_LAYERS: Final = {
    VECTOR: (
        "self.drop({vector})",
        "self.norm({matrix})[0]",
        "self.norm({vector}.repeat(3, 1)).sum(0)",
        "self.blocks[0]({vector})",
        "self.norm.running_mean",
    ),
    BOOL: ("self.training", "self.norm.training"),
    INT: ("len(self.blocks)", "self.norm.num_batches_tracked.item()"),
}
OF_LAYER_STATEMENTS: Final = templates(
    r"""
for block in self.blocks:
    {v:=vector} = block({v})
    if {v}.sum() > 6:
        break

for block in self.blocks:
    if torch.rand(()) < 0.3:
        continue
    {v:=vector} = block({v})

for index, block in enumerate(self.blocks):
    {v:=vector} = block({v})
    self.kept.append({v}.detach())

if {data}:
    {v:=vector} = self.norm(torch.stack([{v}, {v} + 1]))[0]

if {data}:
    self.total.add_({vector}.detach())

if {data}:
    self.total = self.total * 0.5 + {vector}.detach()

with torch.no_grad():
    self.total.copy_({vector})

if {data}:
    {v:=vector} = self.drop({v})
else:
    {v} = self.linear({v})

if self.training and {data}:
    self.count += 1

self.register_buffer('extra_buffer', {vector}.detach().clone())

if {data}:
    self.last = {vector}.detach()
else:
    self.last = None

logger.info('count %d of %s', self.count, type(self).__name__)

print(self.last is None, self.limit, self.count)
"""
)
