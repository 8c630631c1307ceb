"""Themes about calls that Dynamo does not trace: on the host, of new leaves, with a substitute."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, INT, VECTOR

HOST_CALLS: Final = Theme(
    "calls on the host",
    {
        "drawn": (
            "random.random()",
            "random.randint(0, 3)",
            "random.choice(({int}, {int}))",
            "random.choice((1, 2.5))",
            "random.choice(({float}, 1.5))",
            "random.choices([0.5, 1.5, 2.5], k=2)[{int}]",
            "random.choices((1, 2), weights=[1, 3])[0]",
            "random.sample([True, False], 2)[0]",
            "random.sample(range(9), 2)[1]",
            "random.randrange(1, 4, {int})",
            "random.triangular(0, {float}, 0.5)",
            "random.getrandbits(70)",
            "len(random.choice(['a', 'bc']))",
            "numpy.random.normal({float}, 2.0)",
            "numpy.random.randint(3)",
            "numpy.random.randint(0, 3, size=2)[1]",
            "float(numpy.random.uniform(size=2).sum())",
            "int(numpy.random.permutation(3)[0])",
            "numpy.random.choice([1, 2, 3])",
            "numpy.random.choice(3, size=2, replace=False).sum()",
            "random.uniform({vector}.sum().item(), 1)",
            "random.random() * random.random()",
        ),
        "array": (
            "numpy.random.rand(3)",
            "numpy.random.randn(2, 3)[0]",
            "numpy.random.uniform(-1, 1, (3,))",
            "numpy.random.permutation(3)",
            "numpy.random.binomial(1, 0.5, size=3)",
            "numpy.random.normal(size=3).astype(numpy.float32)",
            "(numpy.random.rand(3) > 0.5)",
            "numpy.random.rand()",
            "spans({integers}, {int} + 3).sum(0)[:3]",
            "spans({integers}, size=3, value={float}, rows=(3,))",
            "spans({integers} % 3, rows=({int}, 3)).sum(0)[:3]",
            "sampled_spans({integers}.abs() % 3, 3)",
            "sampled_spans({integers}, share={float})[:, 0]",
            "as_many_as({mask}).sum()",
            "overwritten({integers})",
            "histogram({vector})",
            "histogram({vector}.detach(), high={float})",
            "histogram({vector}[{mask}], {float})",
            "{vector}.detach().numpy()",
        ),
        VECTOR: (
            "({vector} * {drawn})",
            "({vector} + torch.from_numpy({array}))",
            "({vector} * torch.tensor({array}, dtype=torch.float32))",
            "({vector} + torch.tensor({array}))",
            "({vector} - torch.as_tensor({array}).float())",
            "torch.full((3,), {drawn})",
            "({vector} + torch.tensor([{drawn}, 1.0, {drawn}]))",
        ),
        "data": ("{drawn} > 1", "{drawn} < {drawn}", "torch.tensor({array}).sum() > {float}"),
    },
    templates(
        r"""
# behind y:vector
spread = torch.from_numpy(spans({integers})).float()
if spread.sum() > 3:
    spread = spread * {drawn}
y = {vector} * spread.sum(-1)

# behind y:vector
y = {vector} * numpy.random.rand()
shown = sampled_spans({integers}.clamp(0, 3), 3)
y = y + torch.from_numpy(shown).float().sum(0) + torch.rand(3)

# behind y:vector
kept = torch.from_numpy(sampled_spans({integers}.abs() % 4, most=3))
y = torch.where(kept.any(0), {vector}, 0.0) * {drawn}

# behind y:vector
some = torch.from_numpy(as_many_as({mask}))
y = {vector} + some.sum()
print(len(some))

try:
    {v:=vector} = {v} + torch.tensor(sampled_spans({integers}, most={int})).sum()
except ValueError as error:
    print('not so many', error)

if {data}:
    {v:=vector} = {v} + torch.from_numpy(spans({integers}, 3)).float()[0]

random.seed({int})
first = {drawn}
random.seed('text')
print(first > {drawn}, {drawn})

numpy.random.seed({int})
{v:=vector} = {v} + torch.tensor({array}, dtype=torch.float32)

numpy.random.seed(5)
{v:=vector} = {v} * torch.from_numpy(numpy.random.choice([1.0, 2.0], 3))
state = random.getstate()

generator = torch.manual_seed(3)
{v:=vector} = {v} + torch.rand(3, generator=generator)

{v:=vector} = {v} + torch.rand(3)
torch.manual_seed({int})
{v} = {v} + torch.rand(3)

torch.random.manual_seed({int})
torch.manual_seed(4)
{v:=vector} = {v} + torch.rand(3) * {drawn}

if {data}:
    {v:=vector} = {v} * {drawn}
else:
    torch.manual_seed(2)

for i in range(2):
    if {drawn} > 0.5:
        {v:=vector} = {v} + i
        continue
    {v} = {v} * {drawn}

noise = {array}
scaled_noise = noise * 2 + 1
if {data}:
    scaled_noise = scaled_noise - noise
{v:=vector} = {v} + torch.tensor(scaled_noise, device='cpu')

print({drawn}, {drawn})

items = [{vector}, {vector}]
random.shuffle(items)
{v:=vector} = items[0] + 1
"""
    ),
)
LEAVES: Final = Theme(
    "new leaves",
    {
        "any tensor": (
            "{vector}",
            "{integers}",
            "{mask}",
            "{vector}.detach()",
            "({vector} * 2)",
            "nn.Parameter({vector}.detach())",
            "{half}",
            "{matrix}",
            "{list}[0]",
            "torch.zeros(3, dtype=torch.complex64).real",
            "{vector}.detach().to_sparse().to_dense()",
        ),
        "new leaf": (
            "torch.autograd.Variable({any tensor})",
            "torch.autograd.Variable({any tensor}, requires_grad={bool})",
            "torch.autograd.Variable({any tensor}, {int})",
            "torch.autograd.Variable(data={any tensor}, requires_grad=True)",
            "torch.autograd.Variable({any tensor}, False, volatile={bool})",
            "torch.autograd.variable.Variable({any tensor}, True)",
            "torch.zeros(3).requires_grad_({bool})",
            "{any tensor}.detach().requires_grad_()",
            "({any tensor}.detach() * 1).requires_grad_(requires_grad={bool})",
            "{any tensor}.requires_grad_({bool})",
            "{any tensor}.clone().requires_grad_(True)",
            "{any tensor}.detach().clone().requires_grad_(bool({data}))",
        ),
        VECTOR: ("({new leaf} * {vector}).float()", "({new leaf} + 1).detach().float() + {vector}"),
        "plain": (
            "isinstance({any}, torch.autograd.Variable)",
            "isinstance({any}, (int, torch.autograd.Variable))",
            "isinstance({new leaf}, torch.autograd.Variable)",
            "{new leaf}.requires_grad",
            "{new leaf}.is_leaf",
        ),
    },
    templates(
        r"""
# behind w:vector
leaf = {new leaf}
w = {vector} * leaf.detach().float().sum() + leaf.float().sum()

# behind w:vector
leaf = {any tensor}.detach() * 1
leaf.requires_grad = {bool}
w = leaf.float() * {vector}
print(leaf.requires_grad, w.requires_grad)

# behind w:vector
w = {any tensor} * 1
w.requires_grad = {bool}
w = w + {vector}

{any tensor}.requires_grad_({bool})

# behind w:vector
leaf = torch.zeros(3)
if {data}:
    leaf.requires_grad_()
w = (leaf + {vector}).detach()

# behind w:vector
leaf = ({vector}.detach() * 2).requires_grad_()
with torch.enable_grad():
    (slope,) = torch.autograd.grad((leaf * leaf).sum(), leaf)
w = {vector} * slope.sum()

leaf = {new leaf}
if {data}:
    {v:=vector} = {v} + leaf.float().sum()
else:
    {v} = {v} * leaf.detach().float().sum()

leaf = {new leaf}
try:
    leaf.requires_grad_(False)
except RuntimeError as error:
    print('not a leaf')
    <block>

return {new leaf}, {vector}

outcome = [{new leaf}, {vector} + 1]
if {data}:
    return outcome
{v:=vector} = outcome[1] + outcome[0].detach().float().sum()
"""
    ),
    gradients=True,
)
SUBSTITUTED: Final = Theme(
    "calls that have a substitute",
    {
        VECTOR: (
            "framed({vector})",
            "framed({vector}, own={bool})",
            "framed({vector}, {bool})",
            "cautious({vector})",
            "probe.measure({vector})",
            "other_probe.measure({vector})",
            "probe.level({vector})",
            "Probe.level({vector})",
            "other_probe({vector})",
            "Probe({int})({vector})",
            "untraced({vector})",
            "opaque({vector})",
            "Meter({vector}).read()",
            "codec({vector})",
            "{vector} * int(codec.stride)",
            "{vector} + torch.zeros(codec.form.tolist()).sum()",
            "{vector}[: codec.form[0].item()].sum() + {vector}",
            "{vector} * codec.ratio.item()",
        ),
        INT: (
            "codec.stride.item()",
            "int(codec.form.sum())",
            "codec.form.tolist()[{int}]",
            "codec.table[{int}].item()",
            "int(codec.form[1] - codec.stride)",
        ),
        FLOAT: ("float(codec.stride)", "codec.ratio.item()"),
        BOOL: ("bool(codec.stride > 1)", "(codec.form[0].item() == 1)"),
        "data": ("codec.stride > {int}", "(codec.form == 1).all()", "codec.form.sum() > {scalar}"),
    },
    templates(
        r"""
codec.stride.add_(1)
{v:=vector} = codec({v})

{v:=vector} = {v} * int(codec.stride)
codec.stride.copy_(torch.tensor({int}))

codec.stride = torch.tensor({int})
{v:=vector} = {v} + torch.ones(int(codec.stride.abs())).sum()

if {data}:
    codec.form[0] = 1
{v:=vector} = {v}.view(codec.form.tolist()).flatten()

same = codec.stride
if codec.stride.item() < 4:
    same += 1
{v:=vector} = {v} * same

for i in range(int(codec.form[1])):
    {v:=vector} = {v} + i * codec.stride.item()

if codec.stride > 2:
    {v:=vector} = {v} * 2
elif codec.form.prod() == 3:
    {v} = {v} - 1
else:
    <block>

if {data}:
    {v:=vector} = framed({v}, own={bool})
else:
    {v} = cautious({v})

step = probe.measure if {bool} else other_probe
{v:=vector} = step({v}) + Probe.level({v})

for each in (framed, probe.measure, opaque, untraced):
    {v:=vector} = each({v})
    if {data}:
        break

{v:=vector} = functools.partial(framed, own={bool})({v})
{v} = sum(map(cautious, [{v}, {vector}]))
"""
    ),
)
