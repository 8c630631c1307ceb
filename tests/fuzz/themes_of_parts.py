"""Themes about data-dependent parts and sizes of tensors."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import SCALAR, VECTOR

PARTS: Final = Theme(
    "data-dependent parts",
    {
        "at": (
            "{mask}.sum().item()",
            "{mask}.sum()",
            "int({mask}[0])",
            "{integers}[0]",
            "({integers}.sum() % 3)",
            "({mask}.sum().item() - 1)",
            "-int({mask}.sum())",
            "{int}",
            "{vector}.argmax()",
            "{vector}.argmax().item()",
            "({vector} > 0).sum().item()",
            "min({mask}.sum().item(), 2)",
            "{integers}.clamp(-3, 2)[1].to(torch.int32)",
        ),
        "part": (
            "{at}",
            "{at}:",
            ":{at}",
            "{at}:{at}",
            ":{at}:2",
            "{at}::2",
            "1:{at}",
            "..., {at}",
            "{at}, ...",
            "None, :{at}",
            "{mask}",
        ),
        "parts": (
            "0, {at}",
            "{at}",
            "{at}:",
            ":, {at}:{at}",
            ":, :{at}",
            "{at}, {at}",
            "{at}:, {at}",
            ":{at}, 1:{at}:2",
            "..., {at}:",
            "{at}, ..., {at}",
            "None, :, {at}",
            "-1, {at}:",
            "[0, 1], {at}",
            "{mask}[:2], {at}",
            "0, {at}:",
            "1, :{at}",
        ),
        "stored": (
            "{float}",
            "{int}",
            "True",
            "{at}",
            "{mask}.sum().item()",
            "{vector}.sum().item()",
            "{scalar}",
            "{vector}",
            "{vector}[:1]",
            "{vector}[{part}]",
            "{vector}[:{at}]",
            "{vector}[{mask}]",
            "{vector}[:0]",
            "{integers}",
            "torch.arange({at})",
            "torch.arange({int}, {at})",
            "torch.arange({at}, 3)",
            "torch.ones(1, 1, 3)[..., :2]",
            "{matrix}[0]",
            "{matrix}[:2]",
            "1j",
            "{float}",
            "{int}",
            "{vector}[0]",
            "{vector}.sum()",
            "{vector}[:1] * 2",
        ),
        VECTOR: (
            "({vector}[{part}].sum() + {vector})",
            "({matrix}[{parts}].sum() * {vector})",
            "torch.roll({vector}, {at})",
        ),
        SCALAR: ("{vector}[{at}]", "{vector}[{part}].sum()", "{matrix}[{parts}].mean()"),
    },
    templates(
        r"""
# behind own:vector
own = {vector} * 1
own[{part}] = {stored}

# behind own:vector
own = torch.zeros(3)
own[{part}] = {stored}
own[{at}:] = {stored}

# behind own:vector
own = torch.zeros(3)
own[:{at}] = {float}
own[{at}] = {scalar}
own[{at}:] = {vector}[{at}:]

# behind rows:matrix
rows = torch.zeros(2, 3)
rows[{parts}] = {stored}

# behind rows:matrix
rows = {matrix} * 1
rows[{parts}] = {stored}
rows[:, {at}] = {stored}

# behind places:integers
places = torch.zeros(3, dtype=torch.long)
places[{part}] = {stored}

# behind places:integers
first = {mask}.sum().item()
places = torch.full((3,), -1)
places[first:] = torch.arange(3 - first)
places[:first] = torch.arange(first)

# behind own:vector
own = {vector} * 1
if {data}:
    own[{part}] = {stored}
else:
    own[{at}:] = 0

# behind own:vector
own = {vector} * 1
for i in range({mask}.sum().item()):
    own[i:] = own[i:] * 0.5
    own[i] = {float}

# behind own:vector
own = {vector} * 1
own[{at}] += {float}
own[{at}:] *= 2

# behind own:vector
first, last = {at}, {at}
own = {vector} * 1
own[first:last] = {vector}[first:last] * 2
own[last:][:1] = 3.0

cube = torch.zeros(2, 3, 3)
cube[{int}, {at}, :{at}] = {stored}
cube[..., {at}, {at}:] = 1
{v:=vector} = {v} + cube.sum((0, 1))

same = {vector} * 1
twin = same[:]
twin[{at}:] = same[:1]
{v:=vector} = same + 0

kept = {vector}.half() * 1
kept[{part}] = {stored}
{v:=vector} = {v} + kept.float()

flags = {mask} & True
flags[{part}] = {stored}
if flags.any():
    {v:=vector} = {v} + 1

{vector}[{part}] = {stored}

try:
    own = {vector} * 1
    own[{part}] = {stored}
    {v:=vector} = own
except (IndexError, RuntimeError) as error:
    print('no such part', type(error).__name__)
"""
    ),
)
KNOWN_OF_SIZES: Final = Theme(
    "what arms know of sizes",
    {
        "found": (
            "{vector}[{mask}]",
            "torch.nonzero({mask}).flatten()",
            "{mask}.nonzero()[:, 0]",
            "torch.nonzero({mask})",
            "torch.argwhere({mask})[:, 0]",
            "torch.where({mask})[0]",
            "{mask}.nonzero(as_tuple=True)[0].long()",
            "torch.nonzero({mask}, as_tuple=True)[0]",
            "torch.masked_select({vector}, {mask})",
            "torch.unique({integers})",
            "{integers}[{mask}]",
            "torch.zeros({mask}.sum().item(), 2)",
            "torch.squeeze({mask}.nonzero(), 1)",
            "torch.nonzero({mask}).reshape(-1).clone().to(torch.int32)",
            "torch.nonzero({mask} | ~{mask}).view(-1)",
        ),
        "size": ("len(found)", "found.numel()", "found.shape[0]", "found.size(0)", "count"),
        "known": (
            "{size} > 0",
            "{size} == 0",
            "{size} != 0",
            "{size} == 1",
            "{size} >= 2",
            "{size} < 3",
            "0 < {size} < 3",
            "{size} <= 1",
            "{size} > {int}",
            "not {size}",
            "{size}",
            "{size} * 2 == 4",
            "{size} + 1 > 2",
            "{size} == 2 and count > 1",
            "{size} == {vector}.shape[0]",
        ),
        "used": (
            "found.float().mean()",
            "found[0].float().sum()",
            "found[-1].float().sum()",
            "found[1:].float().sum()",
            "found.max().float()",
            "found.float().softmax(0).sum()",
            "found.reshape(-1)[0].float()",
            "found.squeeze().float().sum()",
            "torch.cat([found, found]).float().sum()",
            "torch.stack([found, found]).float().sum()",
            "found.view(-1, 1).float().sum()",
            "(found.float() @ torch.ones(2, 1)).sum()",
            "torch.ones(count).mean()",
            "torch.arange(count).float().cumsum(0).sum()",
            "{vector}[:count].sum()",
            "{vector}[count - 1]",
            "torch.eye(count).sum()",
            "torch.linspace(0, 1, count).sum()",
            "{vector}.expand(count, 3).sum()",
            "torch.ones(3).view(-1, count).sum()",
            "torch.zeros(count, 3)[0].sum()",
            "functional.pad({vector}, (0, count)).sum()",
            "torch.ones(2, count).flatten().sum()",
            "torch.split({vector}, count)[0].sum()",
        ),
    },
    templates(
        r"""
found, count = {found}, {mask}.sum().item()
if {known}:
    {v:=vector} = {v} + {used}

found, count = {found}, int({mask}.sum())
if {known}:
    {v:=vector} = {v} + {used}
else:
    {v} = {v} - {used}

found, count = {found}, {integers}.sum().item() % 4
if {known}:
    if {known}:
        {v:=vector} = {v} + {used}
    {v} = {v} * {used}

found, count = {found}, {mask}.sum().item()
if not ({known}):
    return {vector}
{v:=vector} = {v} + {used} + {used}

found, count = {found}, {mask}.sum().item()
torch._check({known})
{v:=vector} = {v} + {used}

found, count = {found}, {mask}.sum().item()
assert {known}
{v:=vector} = {v} * {used}

found, count = {found}, {mask}.sum().item()
{v:=vector} = {v} + {used}
if {known} and {data}:
    {v} = {v} + {used}

found, count = {found}, {mask}.sum().item()
extra = {used} if {known} else 0.0
if {data}:
    {v:=vector} = {v} * extra
print(count, len(found))

found, count = {found}, {mask}.sum().item()
while {known} and count < 6:
    count += 2
    {v:=vector} = {v} + count

found, count = torch.nonzero({mask}).flatten(), 0
for i in found.tolist():
    count += i
    if {known}:
        continue
    {v:=vector} = {v} * 0.5 + experts[i]({v})

for i in {found}.flatten().tolist():
    {v:=vector} = {v} + i

for i in {found}:
    {v:=vector} = {v} + i

found, count = {found}, {mask}.sum().item()
for i in range(count):
    if {known}:
        {v:=vector} = {v} + {used}
"""
    ),
)
