"""Themes about what arms change in place."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates

CHANGED_IN_ARMS: Final = Theme(
    "what arms change in place",
    {
        "mine": (
            "own",
            "own",
            "part",
            "rows",
            "twin",
            "wide",
            "turned",
            "kept[0]",
            "{box}.value",
            "{list}[0]",
            "x",
            "grown",
        ),
        "change": (
            "{mine}.add_(1)",
            "{mine}.mul_({float})",
            "{mine}[0] = {float}",
            "{mine}[1:] = 0",
            "{mine}.zero_()",
            "{mine}.copy_({vector})",
            "{mine}.clamp_(min=0)",
            "{mine}[{mask}] = {float}",
            "{mine}[{integers} % 2] = 1.0",
            "{mine}.t_()",
            "{mine}.resize_(1)",
            "{mine}.squeeze_()",
            "{mine}.requires_grad_()",
            "torch.add({mine}, 1, out={mine})",
            "{mine}.data.add_(1)",
            "{mine}.normal_()",
            "{mine}.index_fill_(0, torch.tensor(1), 5.0)",
            "{mine}.masked_fill_({mask}, 0.0)",
            "{mine}.add_({vector} * {mine})",
            "{mine} += 1",
            "part = own[:2]",
            "own = own + 1",
            "rows = rows * 2",
            "print({mine})",
            "kept.append({mine})",
        ),
    },
    templates(
        "\n\n".join(
            f"""\
# behind own:vector
own = {{vector}}{cut} * 1
part, twin, wide, turned = own[1:], own, torch.ones(1).expand(3), own.view(3, 1).t()
rows, kept, grown = torch.zeros(2, 3), [own, own[:1]], torch.zeros(3)
"""
            + text.strip()
            for cut in ("", ".detach()")
            for text in (
                """
if {data}:
    {change}
{v:=vector} = {v} + own + rows.sum(0) + grown
""",
                """
product = own * own + part.sum()
if {data}:
    {change}
    {change}
else:
    {change}
return own, part, rows, twin, product, kept, grown
""",
                """
if {data}:
    {change}
    if {data}:
        {change}
elif {data}:
    {change}
print(own.sum().item(), part.sum().item())
{v:=vector} = {v} + own * twin
""",
                """
with torch.no_grad():
    if {data}:
        {change}
    else:
        {change}
if {data}:
    {change}
return own, rows, turned, wide, kept
""",
                """
for i in range(2):
    if {data}:
        {change}
        continue
    {change}
{v:=vector} = {v} + own.sum() + grown
""",
                """
if {data}:
    {change}
    if {data}:
        return own, part
    {change}
    <block>
""",
            )
        )
    ),
)
