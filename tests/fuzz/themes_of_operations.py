"""Themes about operations that are expensive, may fail, or give values of other kinds."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, INT, INTEGERS, VECTOR

EXPENSIVE_OPERATIONS: Final = Theme(
    "expensive operations",
    {
        VECTOR: (
            "({matrix} @ torch.ones(3, 3)).sum(0)",
            "torch.linalg.inv(torch.eye(3) * 2 + {vector}.detach().abs().diag())[0]",
            "{vector}.sort()[0]",
            "{vector}.cumsum(0)",
            "functional.linear({vector}, torch.ones(3, 3))",
            "functional.conv1d({vector}[None, None], torch.ones(1, 1, 1))[0, 0]",
            "torch.topk({vector}, 3)[0]",
            "functional.embedding({integers} % 3, torch.eye(3)).sum(0)",
            "functional.embedding({integers}, torch.eye(3)).sum(0)",
            "torch.einsum('ij,j->i', torch.ones(3, 3), {vector})",
            "functional.scaled_dot_product_attention({matrix}[None], "
            "{matrix}[None], {matrix}[None])[0].sum(0)",
            "({vector} @ torch.ones(3, 3) if {data} else {vector} @ torch.eye(3))",
            "({vector}[{integers}] if {data} else {vector})",
            "torch.gather({vector}, 0, {integers})",
            "torch.linalg.cholesky(torch.eye(3) * {vector}.sum())[0]",
            "{vector}.index_select(0, {integers})",
            "{vector}.view({int}, -1).flatten()",
            "functional.layer_norm({vector}, (3,))",
            "functional.one_hot({integers}.abs() % 3, 3).float().sum(0)",
        ),
        INTEGERS: (
            "{integers} % {integers}",
            "torch.nonzero({mask}).flatten().sum() + {integers}",
            "torch.bincount({integers}.abs() % 3, minlength=3)",
        ),
    },
    templates(
        r"""
if {data}:
    {v:=vector} = {v} @ torch.ones(3, 3)
else:
    {v} = torch.mv(torch.eye(3), {v})

if {data}:
    {v:=vector} = ({v}[None] @ torch.ones(3, 3))[0]
    print('product', {v}.sum().item())

if {data}:
    {v:=vector} = {v}.sort()[0]
    found = {vector} @ {vector}
else:
    found = 0.0
print(found is None)

if {data}:
    {v:=vector} = {v}[{integers}]
    {list}.append({vector})

if {data}:
    own = {vector} * 1
    own.add_(1)
    {v:=vector} = own @ torch.ones(3, 3)

if {data}:
    with torch.no_grad():
        {v:=vector} = {v} @ torch.ones(3, 3)
"""
    ),
)
MAY_FAIL: Final = Theme(
    "operations that may fail on the data",
    {
        VECTOR: (
            "({vector}[{integers}] if ({integers} < 3).all() else {vector})",
            "{vector}[{integers}]",
            "{vector}.gather(0, {integers}.clamp(min=0))",
            "torch.linalg.cholesky({vector}.diag())[0]",
            "torch.linalg.solve(torch.diag({vector}), {vector})",
            "functional.embedding({integers}, torch.eye(3))[0]",
            "{vector}.view({mask}.sum().item(), -1).flatten()",
            "torch.multinomial({vector}, 2).sum() + {vector}",
        ),
        INTEGERS: (
            "{integers} // {integers}",
            "{integers}[{integers}]",
            "functional.one_hot({integers}, 4).sum(0)[:3]",
            "torch.bincount({integers}, minlength=3)[:3]",
        ),
        FLOAT: ("{float} / {vector}.sum().item()", "{vector}.tolist()[{int}]"),
    },
    templates(
        r"""
if ({integers} >= 0).all():
    {v:=vector} = {v}[{integers}]

if {data}:
    {v:=vector} = {v}[{integers}]
else:
    {v} = {v} * 2

if {integers}.max() < 3:
    {v:=vector} = {v} + functional.embedding({integers}.abs(), torch.eye(3)).sum(0)

if {vector}.min() > 0:
    {v:=vector} = {v} + torch.linalg.cholesky({vector}.diag())[0]

if ({integers} != 0).all():
    {v:=vector} = {v} + 6 // {integers}

if {data}:
    own = {vector} * 1
    own[{integers}] = {float}
    {v:=vector} = own

own = {vector} * 1
if {data}:
    own.index_add_(0, {integers}, {vector})
{v:=vector} = own

if {data}:
    print('picked', {vector}[{integers}].sum().item())
    {v:=vector} = {v} + 1

try:
    {v:=vector} = {v}[{integers}]
except IndexError as error:
    print('out of range')
    {v} = {v} - 1

if {data}:
    level = {vector}.tolist()[{int}]
else:
    level = {float}
{v:=vector} = {v} * level
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
