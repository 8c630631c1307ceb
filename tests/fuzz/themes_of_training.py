"""Themes about gradients: arms of which one has none to give, draws, losses, loops."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, MATRIX, SCALAR, VECTOR

UNTAKEN_SIDES: Final = Theme(
    "gradients of the side that is not taken",
    {
        VECTOR: (
            "({vector}.sqrt() if ({vector} > 0).all() else {vector})",
            "({vector}.log() if {vector}.min() > 0 else {vector} * 2)",
            "({vector} / {vector} if {data} else {vector})",
            "({vector}.pow(0.5) if {data} else {vector}.exp())",
            "({vector}.acos() if ({vector}.abs() < 1).all() else {vector})",
            "({vector} * {vector}.detach() if {data} else {vector})",
            "({vector} if {data} else {vector}.detach())",
            "({vector}.rsqrt() if {vector}.min() > 0 else {vector}.abs())",
            "{vector} / {vector}.norm()",
            "{vector}.nan_to_num(0.0)",
        ),
        SCALAR: (
            "({vector}.norm() if {data} else {vector}.sum())",
            "({vector}.std() if {data} else {vector}.mean())",
        ),
    },
    templates(
        r"""
if ({vector} > 0).all():
    {v:=vector} = {v}.sqrt()
else:
    {v} = {v} * 2

if {vector}.min() > 0:
    {v:=vector} = {v}.log() + {vector}.sqrt()

if {vector}.abs().sum() > 0:
    {v:=vector} = {v} / {vector}.norm()

length = {vector}.norm()
if length > 0:
    {v:=vector} = {v} / length

if {data}:
    {v:=vector} = {v}.detach()

if {data}:
    with torch.no_grad():
        {v:=vector} = {v} * 2

if {data}:
    fresh = {vector}.detach() * 2
else:
    fresh = {vector}
{v:=vector} = fresh

if {data}:
    fresh = ({vector} * 2).requires_grad_()
    {v:=vector} = {v} + fresh

if {data}:
    {v:=vector} = {v} * {scalar}
    {v} = {v}.clamp(min=0.1).log()
elif ({vector} != 0).all():
    {v} = 1 / {v}

own = {vector} * 1
if {vector}.min() > 0:
    own.sqrt_()
{v:=vector} = own

print({vector}.requires_grad)
if {data} and {vector}.requires_grad:
    {v:=vector} = {v} * 2

own = {vector} * 2
if {data}:
    own[0] = {vector}[1]
    own = own * own
{v:=vector} = own
"""
    ),
    gradients=True,
)
DRAWS_IN_ARMS: Final = Theme(
    "random draws in arms",
    {
        VECTOR: (
            "(functional.dropout({vector}, 0.5) if {data} else {vector})",
            "({vector} * torch.rand(3) if {data} else {vector})",
            "({vector} + torch.randn_like({vector}) if {data} else torch.rand(3))",
            "functional.dropout({vector}, 0.3)",
            "({vector} * torch.bernoulli(torch.full((3,), 0.5)) if {data} else {vector})",
        ),
    },
    templates(
        r"""
if {data}:
    {v:=vector} = functional.dropout({v} * 2, 0.5)
else:
    {v} = functional.dropout({v} - 1, 0.2)

if {data}:
    {v:=vector} = {v} + torch.rand(3) * torch.randn_like({vector})

if {data}:
    noise = torch.empty(3).normal_()
    noise.mul_(2)
    {v:=vector} = {v} * noise

if {data}:
    noise = torch.empty(2, 3).uniform_(-1, 1)
    {v:=vector} = {v} * noise.sum(0)
{v} = {v} + torch.rand(3)

if {data}:
    {v:=vector} = {v} * torch.empty(3).exponential_()
else:
    {v} = {v} + torch.randperm(3)

if {data}:
    {v:=vector} = functional.alpha_dropout({v}, 0.4, training=True)

if {data}:
    {v:=vector} = {v} * torch.bernoulli({vector}.detach().sigmoid())

if {data}:
    heads = {matrix}.view(1, 1, -1, 3)
    {v:=vector} = {v} + functional.scaled_dot_product_attention(
        heads, heads, heads, dropout_p=0.3
    ).sum((0, 1, 2))

if {data}:
    {v:=vector} = {v} + functional.dropout({vector}[{mask}], 0.5).sum()

if {mask}.any():
    noise = torch.rand(int({mask}.sum()))
    {v:=vector} = {v} + noise.sum()

for step in range(3):
    if torch.rand(()) < 0.4:
        continue
    {v:=vector} = functional.dropout({v}, 0.1)

skip = torch.rand([]) < 0.5
if not skip:
    {v:=vector} = {v} * torch.rand(3)

if {data}:
    if {data}:
        {v:=vector} = {v} * torch.rand(3)
    {v} = {v} + torch.randn(3)

with torch.autocast('cpu', dtype=torch.bfloat16):
    if {data}:
        {v:=vector} = functional.dropout({v}, 0.5)

if {data}:
    {v:=vector} = {v} + torch.randint(0, 5, (3,)) + torch.normal(0.0, 1.0, (3,))

if {data}:
    noise = torch.randn(3, 2).t()
    noise[0].bernoulli_(0.5)
    {v:=vector} = {v} * noise[0, 0]
"""
    ),
    gradients=True,
)
LOOPS_WITH_GRADIENTS: Final = Theme(
    "loops with gradients",
    {
        FLOAT: ("{vector}.detach().sum().item()",),
        BOOL: ("bool(({vector} > 5).any())",),
    },
    templates(
        r"""
while {v:=vector}.abs().max() < 20:
    {v} = {v}.abs() * 2 + 1

# behind total:scalar
total = torch.tensor(0.0)
while total < 10:
    total = total + {vector}.abs().sum() + 1

# behind total:vector
total, k = torch.zeros(3), 0
while total.sum() < {vector}.abs().sum().clamp(max=9) and k < 5:
    total = total + {vector}.abs() * 0.5 + 0.5
    k += 1

# behind y:vector
y = {vector}
for step in range(11):
    if y.abs().sum() > 30:
        break
    y = y * 1.5 + {vector} * step

# behind y:vector z:vector
y, z = {vector}, torch.ones(3)
while (y.abs() + z).sum() < 20:
    y, z = y + 1, z * y.detach().abs() + 1

# behind y:vector
y = {vector}.detach()
while y.abs().sum() < 15:
    y = y.abs() + {vector}.abs().clamp(max=5) + 1
    if y.max() > 12:
        break

# behind y:vector
y = {vector}
for step in range(int({mask}.sum())):
    y = y * {vector} + step

# behind y:vector
y = torch.zeros(3)
for step in range(int({vector}.detach().clamp(0, 3).sum())):
    y = y + {vector} * step
    if y.sum() > 9:
        continue
    y = y * 2

# behind y:vector
y, last = {vector}, None
while y.abs().sum() < 12:
    last = y
    y = y.abs() + 2

step = 0
while ({v:=vector} > -3).any():
    {v} = {v} - 2
    step += 1
print('steps', step)

while not ({v:=vector}.norm() > 9 or {v}.isnan().any()):
    {v} = {v} * {v} + 1
    {v} = functional.relu({v}) + 0.5
"""
    ),
    gradients=True,
)
LOSSES: Final = Theme(
    "losses",
    {
        SCALAR: (
            "functional.mse_loss({vector}, {vector})",
            "functional.l1_loss({vector}, {vector}.detach())",
            "functional.smooth_l1_loss({vector}, torch.zeros(3))",
            "functional.cross_entropy({vector}[None], torch.tensor([1]))",
            "functional.cross_entropy({matrix}, torch.arange({matrix}.shape[0]), reduction='sum')",
            "functional.nll_loss({vector}.log_softmax(0), torch.tensor(2))",
            "functional.binary_cross_entropy_with_logits({vector}, {mask}.float())",
            "functional.kl_div({vector}.log_softmax(0), {vector}.softmax(0), reduction='sum')",
            "functional.cosine_similarity({vector}, {vector}, dim=0)",
            "functional.huber_loss({vector}, {vector})",
            "functional.cross_entropy({vector}[None], {integers}[:1])",
        ),
        MATRIX: ("functional.normalize({matrix})", "functional.log_softmax({matrix}, dim=-1)"),
    },
    templates(
        r"""
# behind loss:scalar
loss = functional.mse_loss({vector}, {vector})
if torch.isnan(loss):
    loss = torch.zeros(())
else:
    print(f'''loss {loss.item():.3f}''')

# behind loss:scalar
loss = None
if {mask}.any():
    loss = functional.mse_loss({vector}[{mask}], {vector}[{mask}])
if loss is None:
    loss = {vector}.sum() * 0

# behind loss:scalar
loss = functional.cross_entropy({vector}[None], {integers}[:1].clamp(0, 2), ignore_index=1)
if not torch.isfinite(loss):
    raise ValueError(f'''loss is {loss.item()}''')

# behind loss:scalar
loss = 0
for v in {list}:
    if v.sum() > 0:
        loss = loss + functional.l1_loss(v, {vector})
loss = {scalar} + loss

# behind loss:scalar
loss = functional.binary_cross_entropy({vector}.sigmoid(), {mask}.float())
if loss > 2:
    loss = loss.clamp(max=2.0)
    logger.warning('large loss %.2f', loss.item())

# behind loss:scalar
weight = 1.0 if {data} else 0.1
loss = functional.smooth_l1_loss({vector}, {vector}) * weight

history = []
for v in {list}[:2]:
    loss = functional.mse_loss(v, {vector})
    history.append(loss.item())
    if loss < 0.5:
        break
print(len(history))
"""
    ),
    gradients=True,
)
