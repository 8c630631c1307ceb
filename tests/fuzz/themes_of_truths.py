"""Themes about what tensors are asked, what is computed of the answers, and parts that they name."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, INT, SCALAR, VECTOR

#: Numbers out of tensors, the plainest first.
_NUMBERS: Final = (
    "{vector}.max().item()",
    "{scalar}.item()",
    "{integers}.sum().item()",
    "{mask}.sum().item()",
    "{mask}[0].item()",
    "{half}[0].item()",
    "{vector}[:1].item()",
    "{vector}[1].double().item()",
    "{integers}.clamp(-5, 9).amax().item()",
    "float({scalar})",
    "float({integers}[0])",
    "int({mask}[1])",
    "int({vector}.nan_to_num().clamp(-3, 3).sum())",
    "bool({mask}.any())",
    "{vector}.tolist()[{int}]",
    "{matrix}[:2].tolist()[0][1]",
    "{integers}.tolist()[1]",
    "{scalar}.tolist()",
    "{float}",
    "{int}",
    "-{asked}",
    "abs({asked})",
    "({asked} + {asked})",
    "({asked} - {asked})",
    "({asked} * {asked})",
    "({asked} / {asked})",
    "({asked} // 2)",
    "({asked} % 3)",
    "({asked} * 0.5 + 1)",
    "({asked} / 4)",
    "(1 - {asked})",
    "max({asked}, {asked})",
    "min({asked}, {int})",
    "({asked} if {data} else {asked})",
)

TRUTHS: Final = Theme(
    "questions to tensors",
    {
        "asked": _NUMBERS,
        "other": ("{vector}", "{integers}", "{half}", "{mask}", "{matrix}", "{vector}[:2]")
        + ("{vector}[{mask}]", "{scalar}", "{vector}.double()", "{vector} + 1e-9", "{vector}.abs()"),
        "limit": ("2.5", "3", "3.0", "2**53", "2.0**53", "-2.5", "0", "0.0", "nan", "inf", "True"),
        "compared": (">", ">=", "<", "<=", "==", "!="),
        "data": (
            "torch.equal({other}, {other})",
            "{other}.equal({other})",
            "torch.equal(input={vector}, other={other})",
            "torch.allclose({vector}, {other}, rtol={float}, equal_nan={bool})",
            "{vector}.allclose({other}, atol=0.1)",
            "torch.allclose({vector}, {vector} + 1e-9)",
            "torch.allclose({matrix}, {vector})",
            "torch.is_nonzero({other})",
            "{scalar}.is_nonzero()",
            "torch.is_nonzero({vector}[:1])",
            "not {scalar}",
            "not {vector}[:1]",
            "not {asked}",
            "not not {asked}",
            "not {asked} {compared} {limit}",
            "{asked} {compared} {limit}",
            "{asked} {compared} {limit}",
            "{asked} {compared} {asked}",
            "{asked} {compared} {scalar}",
            "{scalar} {compared} {asked}",
            "0 {compared} {asked} {compared} {limit}",
            "({vector}.shape[0], {int}) == ({mask}.sum(), 1)",
            "{vector}.shape == ({integers}[0],)",
            "[{asked}, 1] == [{integers}[1], {int}]",
            "[{mask}.sum().item(), {vector}.shape[0]] == [{int}, {integers}[2]]",
            "{asked} in (1, 2)",
            "{asked}",
            "int({asked} > 1) == {int}",
            "float({asked}) {compared} {limit}",
        ),
        BOOL: ("bool({asked})", "(not {asked})", "({asked} {compared} {limit})"),
        FLOAT: ("{asked}", "float({asked})"),
        SCALAR: ("torch.tensor({asked})", "({asked} + {scalar})"),
        VECTOR: ("{vector} * {asked}", "torch.full((3,), {asked})", "({vector} / {asked})"),
    },
    templates(
        r"""
# behind rate:float
rate = {asked} * {asked} - {float}
if rate {compared} {limit}:
    {v:=vector} = {v} * rate
else:
    rate = abs(rate) / 2

level = {asked}
for i in range(2):
    if level {compared} {limit}:
        level = level - 1
    elif not level:
        level = level + {asked}
print('level', level)

level = float({asked})
while level < 4 and level > -4:
    level = level * 2 + 1
{v:=vector} = {v} + level

k = {mask}.sum().item()
while k < 5:
    k += 2
    if k * 0.5 == {limit}:
        break
{v:=vector} = {v} * k

found = -1
for i, each in enumerate({vector}.tolist()):
    if each {compared} {limit}:
        found = i
        break
{v:=vector} = {v} + found

rows = {matrix}[:2].tolist()
total = sum([sum(row) for row in rows])
if total {compared} {asked}:
    {v:=vector} = {v} - total

both = {asked}, {asked}
if both[0] == both[1] or not both[0]:
    {v:=vector} = {v} * 2
print(both, max(both))

if {data} and {asked} {compared} {limit}:
    outcome = {asked}
else:
    outcome = {asked} + 0.5
return outcome, {vector}

if {asked} / {asked} > 1:
    {v:=vector} = {v} + 1
else:
    <block>

text = 'many' if {asked} > 1 else f'''only {{asked}}'''
print(text, {asked})

{box}.count = {asked}
if {box}.count {compared} {limit}:
    {box}.count += 1
print({box}.count)

share = {asked} / 3
if {data}:
    share = 1.0 - share
{v:=vector} = torch.where({mask}, {vector} * share, share)

return {asked}, {asked} / 2, -{asked}
"""
    ),
)
PARTS: Final = Theme(
    "parts that the data tell",
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
CLAIMS: Final = Theme(
    "claims about data",
    {
        "claim": (
            "bool({data})",
            "{bool}",
            "{int} < 2",
            "{mask}.sum().item() >= {int}",
            "{vector}.shape[0] == 3",
            "{scalar}.item() > 0",
            "{integers}[0].item() != {int}",
            "{data}",
            "bool({mask}.all()) and {bool}",
            "{int}",
        ),
        "said": (
            "",
            ", lambda: 'said'",
            ", lambda: f'''at {{int}}'''",
            ", lambda: {int}",
            ", None",
            ", message=lambda: 'named'",
            ", message=None",
            ", lambda: str({scalar}.item())",
            ", lambda: f'''{{vector}.sum().item():.1f}'''",
            ", lambda: text",
            ", lambda: repr({box}.count)",
        ),
        "check": (
            "torch._check",
            "torch._check_value",
            "torch._check_index",
            "torch._check_type",
            "torch._check_not_implemented",
            "functools.partial(torch._check_with, KeyError)",
            "functools.partial(torch._check_with, RuntimeWarning)",
        ),
        "errors": ("KeyError", "ValueError", "Odd", "UserWarning", "RuntimeError", "BaseException"),
    },
    templates(
        r"""
text = {text}
{check}({claim}{said})

text = 'behind'
{v:=vector} = {v} + 1
{check}({claim}{said})
{v} = {v} * 2

text = {text}
try:
    {check}({claim}{said})
    <block>
except (RuntimeError, ValueError, IndexError, KeyError, TypeError) as error:
    print(type(error).__name__)

text = 'with'
torch._check_with({errors}, {claim}{said})

text = 'cond'
torch._check(cond={claim}{said})

text = 'all'
torch._check_tensor_all({mask}{said})

torch._check_tensor_all({vector} < 50, lambda: f'''large {{vector}.max().item()}''')

text = 'all with'
torch._check_tensor_all_with({errors}, {vector} > -60{said})

torch._check_tensor_all({vector}, lambda: 'no mask')

torch._assert({claim}, 'asserted')

torch._assert({vector}.sum() < {float}, f'''asserted {{int}}''')

torch._assert({mask}, message='of several')

torch._assert_async({vector}.abs().max() < 70)

{list}.append({vector})
torch._assert({data}, 'behind a list')

if {data}:
    {check}({claim}, lambda: 'in an arm')

print('before')
{check}({claim}, lambda: 'behind output')

{box}.count += 1
text = 'counted'
{check}({claim}{said})

torch._check_is_size({mask}.sum().item())
{v:=vector} = {v} + torch.ones({mask}.sum().item()).sum()

count = {integers}.sum().item()
torch._check(count > 0{said})
torch._check(count < 9)
{v:=vector} = {v} + torch.ones(count).sum()
"""
    ),
)
