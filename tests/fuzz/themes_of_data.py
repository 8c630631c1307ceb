"""Themes about what is data-dependent: sizes, and the iterations of loops."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, INT, MASK, MATRIX, SCALAR, VECTOR

SIZES: Final = Theme(
    "data-dependent sizes",
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
    {v:=vector} = {v} + named_experts[f'''expert_{i}''']({v})

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
