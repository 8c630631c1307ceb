"""Themes about what tensors are asked, what is computed of the answers, and claimed of them."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, SCALAR, VECTOR

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
        "other": (
            "{vector}",
            "{integers}",
            "{half}",
            "{mask}",
            "{matrix}",
            "{vector}[:2]",
            "{vector}[{mask}]",
            "{scalar}",
            "{vector}.double()",
            "{vector} + 1e-9",
            "{vector}.abs()",
        ),
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
