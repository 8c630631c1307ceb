"""Themes about what values are: numbers, random numbers, copies, views, dear operations."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, BOX, FLOAT, INT, INTEGERS, LIST, MATRIX, SCALAR, TABLE, VECTOR

NUMBERS: Final = Theme(
    "numbers out of tensors",
    {
        INT: (
            "int({vector}.clamp(0, 1).sum())",
            "{mask}.sum().item()",
            "int({scalar}.clamp(-2, 3)) + 1",
            "{integers}.max().item()",
            "{vector}.argmax().item()",
            "round({vector}.sum().item(), 1)",
            "max({int}, int({mask}.sum()))",
            "int({mask}.any())",
            "{integers}.tolist()[0]",
        ),
        FLOAT: (
            "{vector}.mean().item()",
            "float({vector}[0])",
            "abs({vector}.max().item())",
            "min({float}, {vector}.sum().item())",
            "math.sqrt(abs({float}))",
            "{vector}.tolist()[1]",
        ),
        VECTOR: (
            "{vector} * {vector}.sum().item()",
            "torch.full((3,), {float})",
            "{vector} + int({mask}.sum())",
            "{vector}[: int({mask}.sum())].sum() + {vector}",
            "torch.arange({mask}.sum().item()).sum() + {vector}",
            "{vector}[{mask}].sum() + {vector}",
            "{vector}[{vector}.argmax().item()] + {vector}",
        ),
        BOOL: (
            "bool({mask}.all())",
            "{vector}.sum().item() > 1",
            "{float} == {vector}.max().item()",
        ),
    },
    templates(
        r"""
# inside i:int, loop
for i in range(int({mask}.sum())):
    <block>

# inside i:int, loop
for i in range(1, int({mask}.sum()) + 2):
    <block>

# inside i:int, loop
for i in range({mask}.sum().item(), 0, -1):
    <block>

for i in range(int({vector}.clamp(0, 2).max())):
    {v:=vector} = {v} * 2 + i
    if {v}.sum() > 9:
        break

# behind total:float
total = 0.0
for i in range({mask}.sum().item()):
    total += i

if {mask}.sum().item() > 1:
    {v:=vector} = {v} - 1

k = {mask}.sum().item()
if k == 2:
    {v:=vector} = {v} + k
"""
    ),
)
LOOPS: Final = Theme(
    "loops on tensors",
    {},
    templates(
        r"""
# behind k:int
k = 0
while {v:=vector}.abs().max() < 40:
    {v} = {v}.abs() * 2 + 1
    k += 1

# behind k:int y:vector
k, y = {int}, {vector}
while ({v:=vector} > 0).any() and k < 6:
    {v} = {v} - 1
    y = y * 0.5
    k = k + 2

# behind z:vector
z = torch.zeros(3)
while z.sum() < {vector}.abs().sum().clamp(max=20):
    z = z + {vector}.abs() + 0.5
    if z.max() > 7:
        break
else:
    <block>

# behind rate:float
rate = 1.0
while {v:=vector}.sum() > 1:
    {v} = {v}.clamp(max=50) * 0.25 - 0.1
    rate *= 0.5

# behind flag:bool
flag = False
while not flag:
    {v:=vector} = {v}.abs() + 1
    flag = not bool({v}.sum() < 20)

# behind ids:integers
ids = torch.arange(3)
while ids.sum() < 30:
    ids = ids * 2 + 1

for i in range(12):
    {v:=vector} = {v} * 0.5
    if {v}.abs().max() < 0.5:
        break

for i in range(11):
    if {vector}.sum() > i:
        continue
    {v:=vector} = {v} + i

# behind w:vector
w = {vector}
while True:
    w = w.abs() + 1
    if not w.sum() < 25:
        break
    if w.max() > 9:
        w = w + 10

both = ({vector}, 0)
while both[0].abs().sum() < 10:
    both = (both[0].abs() + 1, both[1] + 1)

m = torch.eye(3)
while m.sum() < 9:
    m = m @ m + {vector}.abs() + 1
    x = x + m[0]

z = None
while {v:=vector}.abs().sum() < 9:
    {v} = {v}.abs() + 1
    z = {v}

with torch.no_grad():
    while {v:=vector}.abs().sum() < 9:
        {v} = {v}.abs() + torch.rand(3)
"""
    ),
)
RANDOM_NUMBERS: Final = Theme(
    "random numbers",
    {
        VECTOR: (
            "torch.randn(3)",
            "torch.rand_like({vector})",
            "torch.randn_like({vector}) * {vector}",
            "torch.bernoulli(torch.full((3,), 0.5))",
            "torch.normal(torch.zeros(3), 1.0)",
            "torch.randint(0, 3, (3,)).float()",
            "torch.randperm(3).float()",
            "functional.dropout({vector}, 0.5, training=True)",
            "functional.dropout({vector}, {float} * 0 + 0.3)",
            "functional.rrelu({vector}, training=True)",
            "functional.gumbel_softmax({vector}, dim=0)",
            "torch.multinomial({vector}.abs() + 1, 2).sum() + {vector}",
            "torch.empty(3).uniform_(0, 1)",
            "torch.tensor(numpy.random.rand(3)).float()",
            "(functional.dropout({vector}, 0.5) if {data} else {vector})",
            "({vector} * torch.rand(3) if {data} else {vector} + torch.randn(3))",
            "functional.dropout({vector} * torch.rand(3), 0.2)",
            "functional.scaled_dot_product_attention({matrix}[None], {matrix}[None], "
            "{matrix}[None], dropout_p=0.5)[0].sum(0)",
        ),
        FLOAT: (
            "random.random()",
            "random.uniform(-1, 1)",
            "random.gauss(0, 1)",
            "numpy.random.rand()",
            "float(numpy.random.randint(0, 5))",
            "torch.rand(()).item()",
            "random.choice((0.5, 1.5))",
        ),
        INT: (
            "random.randint(0, 3)",
            "random.randrange(4)",
            "random.getrandbits(2)",
            "len(random.sample(range(9), 2))",
        ),
        MATRIX: (
            "functional.dropout({matrix}, 0.5)",
            "torch.rand(2, 3)",
            "functional.dropout1d({matrix}[None])[0]",
        ),
        BOOL: (
            "random.random() < 0.5",
            "torch.rand(1).item() < 0.5",
            "random.choice((True, False))",
        ),
    },
    templates(
        r"""
random.seed(3)

torch.manual_seed({int})

numpy.random.seed(5)

torch.manual_seed(7)

{list}.append(torch.rand(3))

if {data}:
    {v:=vector} = functional.dropout({v}, 0.5)

if {data}:
    {v:=vector} = {v} + torch.randn(3)
else:
    {v} = functional.dropout({v} * 2, 0.3)

if torch.rand(1) < 0.5:
    {v:=vector} = {v} * 2

if random.random() < 0.5:
    {v:=vector} = {v} * 2

# behind w:vector
order = torch.zeros(3)
if {data}:
    order.normal_()
w = order + {vector}
"""
    ),
)
COPIES_LEAVES: Final = Theme(
    "copies and leaves",
    {
        VECTOR: (
            "copy.copy({vector})",
            "copy.deepcopy({vector}.detach())",
            "torch.autograd.Variable({vector})",
            "torch.autograd.Variable({vector}, requires_grad=False)",
            "torch.autograd.Variable({vector}.detach(), requires_grad=True)",
            "({vector}.detach() * 2).requires_grad_()",
            "{vector}.detach().clone().requires_grad_(False)",
            "opaque({vector})",
            "Meter({vector}).read()",
            "torch.zeros(3).requires_grad_() + {vector}",
        ),
        LIST: (
            "copy.copy({list})",
            "copy.deepcopy([{vector}.detach()])",
            "copy.deepcopy([each.detach() for each in {list}])",
        ),
        TABLE: (
            "copy.copy({table})",
            "copy.deepcopy({'a': {vector}.detach(), 'b': torch.ones(3)})",
        ),
        BOX: ("copy.copy({box})",),
    },
    templates(
        r"""
# behind w:vector
leaf = {vector}.detach().requires_grad_()
w = (leaf * leaf).sum() + {vector}

# behind w:vector
leaf = {vector}.detach().clone()
leaf.requires_grad = True
with torch.enable_grad():
    (slope,) = torch.autograd.grad((leaf * {vector}).sum(), leaf)
w = slope.detach()

# behind w:vector
twin = copy.deepcopy({'a': {vector}.detach(), 'n': [1, (2, {int})]})
twin['a'] += 1
w = twin['a']

# behind other:list
other = copy.copy({list})
other.append({vector})

# behind w:vector
base = {vector}.detach()
pair = copy.deepcopy([base, base])
pair[0].add_(1)
w = pair[1]
"""
    ),
)
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
DEAR_OPERATIONS: Final = Theme(
    "dear operations",
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
