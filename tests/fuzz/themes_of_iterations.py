"""Themes about what iterations of loops change, and what loops go over."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates

#: What stands in an iteration, the plainest first; `_STATE` binds what they name.
_STEPS: Final = (
    "w = w + i",
    "w = w.abs() * 2 + 1",
    "w, y = y + 1, w.abs() + 1",
    "y = y + w",
    "y = w.detach() + 1",
    "total = total + w.sum()",
    "total += y.max()",
    "own.add_(1)",
    "own[0] = {float}",
    "own = own + w",
    "rate = rate * 0.5",
    "rate = rate + 1",
    "rate = w.sum().item()",
    "rate = rate * 0.5 + abs(y.max().item() - rate)",
    "rate = min(rate, w.max().item())",
    "flag = not flag",
    "flag = w.sum().item() > {float}",
    "n = n + 2",
    "n = n * 2 + i",
    "n = w.argmax().item()",
    "w = w * torch.rand(3)",
    "w = w if {data} else w + 1",
    "last = w",
    "last = w if {data} else last",
    "w = w.double()",
    "w = w[{integers} % 3]",
    "w = w[{integers}]",
    "w = w @ torch.ones(3, 3) / 3",
    "print(i)",
    "{box}.count += 1",
    "{list}.append(w)",
    "assert w.sum() < 60",
    "y.mul_(2)",
)
_STATE: Final = """\
w, y, own, last = {vector}, {vector}, {vector} * 1, None
total, rate, flag, n, i = torch.tensor(0.0), 1.0, True, 0, 0
"""
#: Of what the iterations leave, what is used.
_LEFT: Final = (
    "{v:=vector} = {v} + w.float() + total + n",
    "{v:=vector} = {v} + y * rate + own",
    "return w, y, own, last, total, rate, flag, n, i",
    "return w, n",
    "return y, total, last",
)
_GOING: Final = (
    "w.abs().sum() < 30",
    "(w < 9).any()",
    "not w.max() > 12",
    "(y.sum() + w.sum()) < 40",
    "rate > 0.1",
    "flag",
    "total < 20",
    "{data}",
    "w.sum().item() < 25",
    "abs(rate - w.sum().item()) < 5",
    "torch.equal(w, y)",
)


def _loops(*heads: str) -> str:
    """Return templates of loops, each with a use of what it leaves."""
    texts = []
    for number, head in enumerate(heads):
        left = _LEFT[number % len(_LEFT)]
        texts.append(f"# behind w:any\n{_STATE}{head.strip()}\n{left}")
    return "\n\n".join(texts)


ITERATIONS: Final = Theme(
    "iterations of loops",
    {
        "step": _STEPS,
        "going": _GOING,
        "turns": (
            "{mask}.sum().item()",
            "int({mask}.sum())",
            "12",
            "11",
            "16",
            "20",
            "{mask}.sum()",
            "1, {mask}.sum().item() + 2",
            "{mask}.sum().item(), 0, -1",
            "0, {mask}.sum().item() + 3, 2",
            "{integers}[0].clamp(0, 4)",
            "len(torch.nonzero({mask}))",
            "int({vector}.nan_to_num().clamp(0, 3).max())",
            "n, {mask}.sum().item()",
        ),
    },
    templates(
        _loops(
            """
while {going} and i < 5:
    {step}
    i += 1
""",
            """
while w.abs().max() < 40:
    {step}
    w = w.abs() * 2 + 1
""",
            """
while i < 4 and {going}:
    {step}
    if {going}:
        {step}
    else:
        {step}
    i = i + 1
""",
            """
for i in range({turns}):
    {step}
""",
            """
for i in range({turns}):
    {step}
    if {going}:
        break
    {step}
""",
            """
for i in range({turns}):
    {step}
    if {going}:
        {step}
    elif {going}:
        break
    {step}
""",
            """
for i in range({turns}):
    {step}
    if {going}:
        continue
    {step}
    if {going}:
        break
""",
            """
for i in range({turns}):
    {step}
    if {going}:
        n += 1
        if {going}:
            {step}
            break
    {step}
""",
            """
for i in range({turns}):
    {step}
    if {going}:
        break
    elif {going}:
        {step}
        continue
    {step}
    if {going}:
        return w, n, i
else:
    n = n - 5
""",
            """
while {going} and i < 14:
    i += 1
    {step}
    if {going}:
        n += 2
    else:
        {step}
        if {going}:
            break
""",
            """
rate = float("inf")
while rate > 0.5 and i < 14:
    {step}
    w = w * 0.5
    rate, last = w.abs().sum().item(), rate
    if {going} or abs(rate - last) < 0.25:
        break
    i += 1
""",
            """
for i in range({turns}):
    if {going}:
        continue
    {step}
else:
    {step}
""",
            """
for i in range(11):
    w = w.abs() + 1
    {step}
    if w.sum() > 30:
        break
""",
            """
while not flag or w.abs().max() < 20:
    flag = True
    w = w.abs() * 2 + {float}.__abs__() + 1
    own = own + w
""",
            """
while True:
    {step}
    w = w.abs() + 2
    i += 1
    if not w.sum() < 25:
        break
    if i > 3:
        return w, n
""",
            """
with torch.no_grad():
    while {going} and i < 4:
        {step}
        i += 1
""",
            """
turns = range({turns})
for i in turns:
    {step}
for i in turns:
    {step}
print(len(turns), turns)
""",
            """
for i, each in zip(range({turns}), range({turns})):
    {step}
    n = n + each
""",
            """
for i in range({turns}):
    for each in range({turns}):
        {step}
    if {going}:
        break
""",
            """
walk = iter(range({turns}))
for i in walk:
    {step}
    n = next(walk, 7)
""",
            """
total = torch.zeros(3)
while total.sum() < 12:
    total = total + y.abs() + 1
    {step}
total = total.sum()
""",
            """
total, last = 0, None
for each in {list}[:2]:
    while each.abs().sum() < 15:
        each = each.abs() + w.abs() + 1
        last = each
    total = total + each
""",
        )
    ),
)
WALKS: Final = Theme(
    "walks over what a mask has",
    {
        "hits": (
            "torch.nonzero({mask}).flatten().tolist()",
            "{mask}.nonzero()",
            "{mask}.nonzero().flatten()",
            "torch.where({mask})[0]",
            "torch.where({mask})[0].tolist()",
            "{mask}.nonzero(as_tuple=True)[0].tolist()",
            "torch.argwhere({mask})[:, 0].tolist()",
            "(functional.one_hot({integers}.abs() % 3, 3).sum(0) > 0).nonzero()",
            "torch.zeros(3).index_fill(0, {integers}.abs() % 3, 1.0).nonzero().flatten().tolist()",
            "torch.nonzero({mask}).reshape(-1).clone().int()",
        ),
        "hit": (
            "w = w + i",
            "w = experts[i](w)",
            "w = w + experts[int(i)](y)",
            "w = w + y[i]",
            "w = w * y[i : i + 1]",
            "own[i] = {float}",
            "own[i] += 1",
            "own.index_add_(0, torch.where({mask})[0], w[{mask}])",
            "print(f'''hit {i}''')",
            "w = named_experts[f'''expert_{i}'''](w)",
            "total = total + i",
            "n += int(i)",
            "w = functional.dropout(w, 0.5)",
            "w = w + functional.one_hot({integers}.abs() % 3, 3)[i]",
            "{list}.append(w)",
            "last = i",
            "y = torch.where({mask}, y, experts[i](y))",
            "w = torch.cat([w[i + 1 :], w[: i + 1]])",
            "rows = torch.zeros(3, 3).index_fill(0, torch.tensor(1), 2.0)[i]",
        ),
        "going": _GOING,
    },
    templates(
        _loops(
            """
for i in {hits}:
    {hit}
""",
            """
for i in {hits}:
    {hit}
    {hit}
""",
            """
for i in {hits}:
    if {going}:
        {hit}
    else:
        {hit}
""",
            """
for i in {hits}:
    if {going}:
        break
    {hit}
""",
            """
for i in {hits}:
    if i == 1:
        continue
    {hit}
else:
    {hit}
""",
            """
found = {hits}
print(len(found))
for i in found:
    {hit}
for i in found:
    {hit}
""",
            """
found = {hits}
if len(found) > 1:
    n = found[0]
for i in found:
    {hit}
n = int(n)
""",
            """
for n, i in enumerate({hits}):
    {hit}
""",
            """
for (i,) in {mask}.nonzero():
    {hit}
""",
            """
for i, n in zip({hits}, {hits}):
    {hit}
""",
            """
found = {hits}
walk = iter(found)
for i in walk:
    {hit}
    n = int(next(walk, 0))
""",
            """
for i in sorted({hits})[:2]:
    {hit}
found = [each for each in {hits} if each > 0]
n = len(found)
""",
            """
for row in torch.nonzero({mask}):
    i = row[0]
    own[row] = {float}
    {hit}
""",
            """
for i in {hits}:
    for n in range(2):
        {hit}
    if {going}:
        return w
""",
        )
    ),
)
