"""Themes about tensors that share memory, and are changed."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import MATRIX, SCALAR, VECTOR

VIEWS_ALIASES: Final = Theme(
    "views and aliases",
    {
        VECTOR: (
            "{matrix}[-1]",
            "{matrix}.t()[:, 0]",
            "{vector}.unsqueeze(0).squeeze()",
            "{vector}.expand(3)",
            "{vector}.reshape(3)",
            "{matrix}.view(-1)[:3]",
            "{vector}.as_strided((3,), (1,))",
        ),
        MATRIX: (
            "{vector}[None]",
            "{matrix}.t().t()",
            "{vector}.repeat(2, 1)",
            "{matrix}[:1]",
        ),
        SCALAR: (
            "{vector}[1]",
            "{matrix}[0, 1]",
            "{vector}.select(0, 2)",
        ),
    },
    templates(
        r"""
own = {vector} * 1
if {data}:
    own.add_(1)
else:
    own[0] = {float}
{v:=vector} = own + 0

own = {vector} * 1
view = own[1:]
if {data}:
    view.mul_(2)
{v:=vector} = own + 0

own = {vector} * 1
view = own.view(-1)
if {data}:
    own.add_({vector})
{v:=vector} = view + 0

own = {matrix} * 1
if {data}:
    own[0] = {vector}
{v:=vector} = own.sum(0)

own = {matrix} * 1
if {data}:
    own.t_()
{v:=vector} = own.flatten()[:3]

own = {vector} * 1
other = own if {data} else {vector}
other = other * 2
{v:=vector} = other

own = {vector} * 1
if {data}:
    own.index_fill_(0, torch.tensor([0]), 1.0)
    own.masked_fill_({mask}, 0.0)
{v:=vector} = own

own = torch.zeros(3)
own.copy_({vector}) if {data} else own.fill_(1.0)
{v:=vector} = own

own = {vector} * 1
if {data}:
    shift_(own)
{v:=vector} = own

own = {vector}.detach().clone()
if {data}:
    own.resize_(2)
print(own.shape)

own = {vector} * 1
if {data}:
    own += 1
    own *= {vector}
{v:=vector} = own

out = torch.empty(3)
if {data}:
    torch.add({vector}.detach(), 1, out=out)
else:
    out.zero_()
{v:=vector} = out + {v}

ids = torch.arange(3)
if {data}:
    ids[0] = 5
    ids.add_(1)
{v:=vector} = {v} + ids

# behind same:vector
view = {vector}.view(3)
same = view if {data} else view * 1

# behind first:vector
first, *others = {list}
if {data}:
    first = others[0] if others else first
"""
    ),
)
SHARED_MEMORY: Final = Theme(
    "memory that several tensors share",
    {
        VECTOR: (
            "torch.zeros(2, 3).index_put((torch.tensor([0]),), {vector})[0]",
            "{matrix}.unbind(0)[0]",
        ),
    },
    templates(
        r"""
base = {vector}.repeat(2)
first, second = base.chunk(2)
if {data}:
    first.add_(second)
else:
    second.mul_(2)
{v:=vector} = base[:3] + second

base = {vector} * 1
head, tail = base[:2], base[1:]
if {data}:
    head.add_(1)
    {v:=vector} = {v} + tail.sum()
{v} = {v} + base

base = torch.stack([{vector}, {vector}])
row, column = base[0], base[:, 1]
if {data}:
    row.copy_({vector})
    column.mul_(2)
else:
    row.zero_()
{v:=vector} = base.sum(0)

base = {vector} * 1
same = base.view(3)
other = base if {data} else same
other.mul_(2)
{v:=vector} = base + same

own = {vector} * 1
other = own if {data} else {vector}
own.add_(1)
{v:=vector} = other + own

own = {vector} * 1
if {data}:
    other = own
else:
    other = {vector} * 2
own[0] = {float}
print(other.detach())
{v:=vector} = other

own = {vector} * 1
kept = [own if {data} else {vector} * 1, own]
kept[0].mul_(3)
{v:=vector} = kept[1] + 0

cache = torch.zeros(2, 3)
slot = cache[{int} % 2]
if {data}:
    slot.copy_({vector}.detach())
elif {data}:
    cache[1].add_(1)
    {v:=vector} = {v} + slot
{v:=vector} = {v} + cache.sum(0)

cache = {'keys': torch.zeros(3), 'seen': torch.tensor(0)}
if {data}:
    cache['keys'][cache['seen']] = 1.5
    cache['seen'] += 1
{v:=vector} = {v} + cache['keys'] + cache['seen']

own = {vector} * 1
print(own.detach(), 'before')
own.add_(1)
print(own.detach(), 'behind')

own = {vector}.detach().clone()
logger.info('kept %s', own)
if {data}:
    own.mul_(2)
{v:=vector} = {v} + own

own = {vector}.detach().clone()
message = f'''as {own}'''
own.add_(1)
print(message, own)

ids = torch.arange(3)
view = ids[1:]
if {data}:
    view.add_(ids[:-1])
{v:=vector} = {v} + ids

own = torch.zeros(3)
for step in range(3):
    own[step] = {vector}.sum().detach()
    if own[step] > 4:
        break
{v:=vector} = {v} + own
"""
    ),
)
