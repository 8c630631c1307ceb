"""Themes about what only the data tell: sizes, the turns of loops, memory that tensors share."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, INT, INTEGERS, MASK, MATRIX, SCALAR, VECTOR

SIZES: Final = Theme(
    "sizes that only the data tell",
    {
        VECTOR: (
            "torch.masked_select({vector}, {mask}).mean() + {vector}",
            "{vector}[torch.nonzero({mask}).flatten()].sum() * {vector}",
            "{vector}.new_zeros({mask}.sum()).sum() + {vector}",
            "torch.zeros(int({mask}.sum()), 3).sum(0) + {vector}",
            "torch.repeat_interleave({vector}, {integers}.abs() % 4).sum() + {vector}",
            "torch.unique({integers}).float().sum() + {vector}",
            "{vector}.masked_scatter({mask}, {vector}[{mask}])",
            "torch.cat([{vector}[{mask}], {vector}[~{mask}]])",
            "{vector}.index_add(0, torch.where({mask})[0], {vector}[{mask}])",
            "{vector}[{mask}].max() + {vector}",
            "functional.pad({vector}, (0, int({mask}.sum())))[:3]",
            "torch.linspace(0, 1, int({mask}.sum()) + 1).sum() + {vector}",
            "{vector}.narrow(0, 0, int({mask}.sum())).sum() + {vector}",
            "torch.split({vector}, [int({mask}.sum()), 3 - int({mask}.sum())])[1].sum() + {vector}",
            "{matrix}[({matrix} > 0).any(-1)].sum(0)",
            "functional.dropout({vector}[{mask}], 0.5).sum() + {vector}",
            "{vector}[{mask}].squeeze().sum() + {vector}",
            "{vector}[{mask}].view(1, -1).softmax(-1).sum() * {vector}",
            "torch.ones({mask}.sum()).cumsum(0).sum() + {vector}",
            "{vector}[{integers}.max() % 3 :].sum() + {vector}",
            "torch.eye({mask}.sum().item()).sum() + {vector}",
            "{vector}.expand({mask}.sum().item(), 3).sum(0)",
            "{vector}[{mask}].sort()[0].sum() * {vector}",
            "torch.stack([{vector}] * 2).view(-1, {mask}.numel()).sum(0)",
        ),
        INT: (
            "{vector}[{mask}].numel()",
            "len(torch.nonzero({mask}))",
            "{vector}[{mask}].shape[0]",
            "torch.unique({integers}).numel()",
            "{mask}.count_nonzero().item()",
            "torch.tensor([[2, 3], [1, 2]]).prod(-1).sum().item()",
            "torch.tensor([{int}, 2])[0].item()",
            "torch.arange(4)[{int}].item()",
        ),
        BOOL: (
            "{vector}[{mask}].numel() > 0",
            "(len({vector}[{mask}]) == 1)",
            "({vector}[{mask}].shape == (2,))",
            "bool(torch.nonzero({mask}).shape[0] > 1)",
        ),
        FLOAT: (
            "{vector}.sum().item() * {vector}.mean().item()",
            "{vector}.sum().item() / {int}",
            "-abs({vector}.min().item() - {float})",
            "{scalar}.item() // 2",
            "max({vector}.tolist())",
            "{vector}.mean().item() ** 2",
        ),
        SCALAR: ("{vector}[{mask}].sum()", "{vector}[{mask}].prod()"),
        MATRIX: ("{vector}[{mask}][:, None].expand(-1, 3)", "{matrix}[{matrix}[:, 0] > 0]"),
    },
    templates(
        r"""
picked = {vector}[{mask}]
if picked.numel() > 1:
    {v:=vector} = {v} + picked.sum()

picked = {vector}[{mask}]
if len(picked) == 0:
    return {vector}
{v:=vector} = {v} + picked.max()

picked = {vector}[{mask}]
if {data}:
    picked = picked * 2
{v:=vector} = {v} + picked.sum()

at = torch.nonzero({mask}).squeeze(-1)
{v:=vector} = {v} + {vector}[at].sum()
print(at.numel())

(at,) = torch.where({vector} > 0)
if at.shape[0] > 0 and {data}:
    {v:=vector} = {v}.index_fill(0, at, {float})

count = int({mask}.sum())
torch._check(count >= 0)
{v:=vector} = {v} + torch.zeros(count).sum() + {vector}[:count].sum()

count = {integers}.abs().max().item() % 4
rows = torch.arange(count)
{v:=vector} = {v} + rows.sum() + count

heights, widths = torch.tensor([[2, 3], [1, {int}]]).unbind(-1)
area = (heights * widths).sum().item()
if area > 7:
    {v:=vector} = {v} + torch.ones(area).sum()

sizes = torch.tensor([[2, 1], [1, 3]])
for h, w in sizes.tolist():
    {v:=vector} = {v} + torch.ones(h, w).sum()

sizes = torch.tensor([2, 1])
for part in {vector}.split(sizes.tolist()):
    if part.sum() > 0:
        {v:=vector} = {v} + part.sum()

own = {vector} * 1
own[{mask}] = {vector}[{mask}] * 2
{v:=vector} = own

own = {vector} * 1
if {mask}.any():
    own[{mask}] = own[{mask}].mean()
{v:=vector} = own

if {data}:
    kept = {vector}[{mask}]
else:
    kept = {vector}
{v:=vector} = {v} * kept.sum()

span = host_spans({integers})
{v:=vector} = {v} * span.float().sum(-1)

start, end = {mask}.sum().item(), {int}
if start < end:
    {v:=vector} = {v} + {vector}[start:end].sum()

level = {vector}.mean().item()
scale = level * 0.5 - 1.0
if scale > {float}:
    {v:=vector} = {v} * scale
else:
    {v} = {v} + abs(level)

level = {vector}.sum().item()
kept = [level, level + 1]
if {data}:
    kept[0] = level * 2
print(kept[0] > {float})
{v:=vector} = {v} + kept[0]
"""
    ),
)
INDEX_LOOPS: Final = Theme(
    "loops over the numbers of a mask",
    {
        VECTOR: (
            "experts[{int} % 3]({vector})",
            "sum([experts[i]({vector}) for i in {mask}.nonzero().flatten().tolist()]) + {vector}",
        ),
        MASK: (
            "functional.one_hot({integers}.abs() % 3, 3).sum(0) > 0",
            "torch.zeros(3).index_fill(0, {integers}.abs() % 3, 1.0).bool()",
        ),
    },
    templates(
        r"""
# inside i:int, loop
for i in torch.nonzero({mask}).flatten().tolist():
    <block>

# inside i:int, loop
for i in {mask}.nonzero(as_tuple=True)[0].tolist():
    <block>

out = torch.zeros(3)
for i in torch.where({mask})[0].tolist():
    out = out + experts[i]({vector})
{v:=vector} = out

for row in {mask}.nonzero():
    {v:=vector} = experts[row[0]]({v})

for row in torch.nonzero({mask}):
    if row == 1:
        continue
    {v:=vector} = {v} + row

hits = functional.one_hot({integers}.abs() % 3, 3).T
out = torch.zeros(3)
for row in hits.sum(-1).nonzero():
    (at,) = torch.where(hits[row[0]])
    out.index_add_(0, at, experts[row[0]]({vector})[at])
{v:=vector} = {v} + out

hits = functional.one_hot({integers}.abs() % 3, 3).T
out = torch.zeros(3)
for i in (hits.sum(-1) > 0).nonzero(as_tuple=True)[0].tolist():
    (at,) = torch.where(hits[i])
    out = out.index_add(0, at, functional.dropout({vector}[at], 0.5))
{v:=vector} = {v} + out

hits = functional.one_hot({integers}.abs() % 3, 3).T.bool()
for i in range(3):
    if hits[i].any():
        {v:=vector} = {v} + torch.where(hits[i], experts[i]({v}), 0.0)

for i in {mask}.nonzero().flatten().tolist():
    if {data}:
        break
    {v:=vector} = {v} * 2 + i

for i in {mask}.nonzero().flatten().tolist():
    print('hit', i)
    {v:=vector} = {v} + i

for i in {mask}.nonzero().flatten():
    {v:=vector} = {v} + named_experts[f'expert_{i}']({v})

for i, row in enumerate({mask}.nonzero()):
    {v:=vector} = {v} + i * row

total = 0
for i in {mask}.nonzero().flatten().tolist():
    total += i
    if total > 1:
        {v:=vector} = {v} - 1

for i in {mask}.nonzero().flatten().tolist():
    {list}.append(experts[i]({vector}))

for i in range(int({mask}.sum())):
    own = {vector} * 1
    own[i] = {float}
    {v:=vector} = {v} + own

marks = {vector} * 0
for i in range({mask}.sum().item()):
    marks.add_(i + 1)
{v:=vector} = {v} + marks

for i in {integers}.tolist():
    if i > 0:
        {v:=vector} = {v} + i
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
message = f'as {own}'
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
MIXED: Final = Theme(
    "values of other kinds on each side",
    {
        INT: ("({int} if {data} else {int})", "(1 if {data} else 2)", "(0 if {data} else 3)"),
        FLOAT: ("(1 if {data} else 1.0)", "({float} if {data} else {int})", "float({int})"),
        BOOL: ("(True if {data} else 1)", "(False if {data} else None)", "({int} == 1 or {bool})"),
        INTEGERS: ("({integers} if {data} else {integers} * 2)",),
        VECTOR: (
            "({vector} if {data} else {vector}.half()).float()",
            "({vector} if {data} else {integers}) * 1",
            "({vector} if {data} else {vector}.double()) * 1",
            "({mask} if {data} else {integers}) + {vector}",
        ),
    },
    templates(
        r"""
# behind k:any
k = {int}
if {data}:
    k = {float}

# behind k:any
k = 1
if {data}:
    k = 1.0
print(k, k * 2)

# behind k:any
k = {float}
if {data}:
    k = {bool}

# behind w:any
if {data}:
    w = {vector}
else:
    w = {integers}

# behind w:any
w = {vector}
if {data}:
    w = w.double()

# behind w:any
w = {half}
if {data}:
    w = w.float()
print(w.dtype)

# behind w:any
w = {vector}
if {data}:
    w = w.long()
w = w + 1

# behind mode:text
mode = 'low'
if {data}:
    mode = 'high'
elif {data}:
    mode = {text}
print('mode', mode)

size = 2 if {data} else 3
{v:=vector} = {v} + torch.ones(size).sum()

found = {vector} if {data} else None
if found is not None:
    {v:=vector} = {v} + found
else:
    <block>

found = {maybe}
if {data}:
    found = None
{v:=vector} = {v} * 2 if found is None else {v} - 1

shape = (3,) if {data} else (1, 3)
{v:=vector} = {v}.view(shape).flatten()

names = ['a'] if {data} else ['b', 'c']
for name in names:
    print('name', name)

step = 0
if {data}:
    step = step + 1
if {data}:
    step = step + 1
if step == 2:
    {v:=vector} = {v} * 2
elif step == 1:
    <block>

flag, reason = False, ''
if {data}:
    flag, reason = True, 'one'
if flag:
    {v:=vector} = {v} + 1
print(reason)

function = torch.sin if {data} else torch.cos
{v:=vector} = function({v})

drop = True if {data} else False
if not drop:
    fresh = {vector}
if drop:
    fresh = None
print(fresh is None)

pair = ({vector}, 1) if {data} else ({vector}, 2)
if pair[1] > 1:
    {v:=vector} = pair[0] * 1
"""
    ),
)
