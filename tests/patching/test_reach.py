"""Every way by which a model reaches a function, and what must not be run or reached."""

from __future__ import annotations

import collections
import functools
import logging
import sys
import types
import weakref
from typing import Any, NoReturn

import pytest

from bcmend.errors import UnsupportedObject
from bcmend.patching.reach import reach
from bcmend.policy import DEFAULT, Policy

torch = pytest.importorskip("torch")
nn = torch.nn


def _reached(obj: object, policy: Policy = DEFAULT) -> list[types.FunctionType]:
    return [found.function for found in reach(obj, policy)]


def _explode(*arguments: object, **named: object) -> NoReturn:
    raise AssertionError("code of the user ran")


def _new_function(name: str = "made") -> types.FunctionType:
    """Return a function of its own, so that a test cannot reach it by another way."""

    def made(x: Any) -> Any:
        return x

    made.__qualname__ = name
    return made


def _module_calling(source: str, **scope: Any) -> Any:
    """Return a module whose forward is `return <source>`, with a global scope of its own."""
    scope["__name__"] = "made_model"
    exec(f"def forward(self, x):\n    return {source}", scope)
    return type("Made", (nn.Module,), {"forward": scope["forward"], "__module__": "made_model"})()


class Inner(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return self.scale(x)

    def scale(self, x: Any) -> Any:
        return x * 2

    def not_named(self) -> None:
        pass


class Outer(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(Inner()), Inner()])

    def forward(self, x: Any) -> Any:
        return x


# --- What a module consists of ---


def test_submodules_and_the_methods_they_name_are_reached_in_order() -> None:
    found = reach(Outer(), DEFAULT)
    assert [entry.function for entry in found] == [Outer.forward, Inner.forward, Inner.scale]
    assert [entry.path for entry in found] == [
        "Outer.forward",
        "Inner.forward (blocks.1)",  # The walk is breadth first: blocks.0.0 is one level below.
        "Inner.forward -> scale",
    ]


def test_a_class_reaches_its_constructor_and_what_it_constructs() -> None:
    assert set(_reached(Outer)) == {
        *(Outer.__init__, Outer.forward, Inner.forward, Inner.scale),
    }


def test_the_forward_of_the_instance_is_reached() -> None:
    net, own = Inner(), _new_function()
    net.forward = own
    assert own in _reached(net)


def test_hooks_are_reached() -> None:
    net = Outer()
    hooks = [_new_function(f"hook{number}") for number in range(4)]
    net.register_forward_hook(hooks[0])
    net.blocks[1].register_forward_pre_hook(hooks[1], with_kwargs=True)
    net.blocks[1].register_full_backward_hook(hooks[2])
    net.register_full_backward_pre_hook(hooks[3])
    assert set(hooks) <= set(_reached(net))


def test_hooks_of_saving_and_loading_are_not() -> None:
    net, hook = Outer(), _new_function()
    net.register_state_dict_post_hook(hook)
    net.register_load_state_dict_post_hook(hook)
    assert hook not in _reached(net)


def test_instance_attributes_are_reached() -> None:
    class Helper:
        def convert(self, x: Any) -> Any:
            return x

        def __call__(self, x: Any) -> Any:
            return x

        def idle(self) -> None:
            pass

    names = "self.partial, self.bound, self.table"
    net = _module_calling(f"self.helper.convert(self.activation(x)), {names}")
    functions = [_new_function(f"attribute{number}") for number in range(4)]
    net.activation = functions[0]
    net.partial = functools.partial(len, functions[1])
    net.bound = types.MethodType(functions[2], Inner())
    net.table = {"nested": [(functions[3],)]}
    net.helper = Helper()
    found = _reached(net)
    assert set(functions) <= set(found)
    assert {Helper.convert, Helper.__call__, Inner.forward} <= set(found)
    assert Helper.idle not in found


def test_attributes_of_plain_objects_in_dictionary_and_slots_are_reached() -> None:
    class Config:
        __slots__ = ("__dict__", "in_slot", "unset")

    net = _module_calling("self.config.in_slot, self.config.in_dictionary, self.config.unset")
    net.config = config = Config()
    config.in_slot = _new_function("slot")
    config.in_dictionary = functools.partial(_new_function("dictionary"))  # type: ignore[attr-defined]
    names = [function.__qualname__ for function in _reached(net)]
    assert set(names) == {"forward", "dictionary", "slot"}


def test_modules_in_plain_containers_are_reached() -> None:
    net = _module_calling("self.hidden")
    net.hidden = {"list": [Inner()]}
    assert Inner.scale in _reached(net)


def test_attributes_that_no_code_names_are_not_reached() -> None:
    class Holder:
        def __init__(self, held: Any) -> None:
            self.held = held

    class Settings:
        def __init__(self) -> None:
            self.named, self.other = Holder(_new_function("named")), Holder(_new_function("other"))

        def update(self, **values: Any) -> None:
            pass

    scope: dict[str, Any] = {"__name__": "made_model"}
    exec("def late(net): return net.settings.named", scope)
    for source, names in {
        "cache.update(x)": ["forward"],
        "cache.update(self.settings)": ["forward", "update"],
        "cache.update(late(self))": ["forward", "late", "update", "named"],
        "cache.update(getattr(self, 'settings'))": ["forward", "update"],
    }.items():
        net = _module_calling(source, cache={}, late=scope["late"])
        net.settings = Settings()
        found = [function.__qualname__.rpartition(".")[2] for function in _reached(net)]
        assert found == names


def test_what_a_computed_name_may_call_is_reached_unnamed() -> None:
    first, second, third = (_new_function(name) for name in ("first", "second", "third"))
    net = _module_calling("getattr(self, name)(x)", name="first")
    net.first, net.second = first, functools.partial(second)
    net.__dict__["table"] = [Inner(), third]
    assert {first, second, third, Inner.scale} <= set(_reached(net))


def test_an_attribute_that_stands_for_a_method_is_reached_unnamed() -> None:
    net = Inner()
    net.forward = _new_function("forward of the instance")
    assert net.forward in _reached(net)


def test_attributes_that_code_left_alone_may_name_are_reached() -> None:
    activation, shown = _new_function("activation"), _new_function("shown")
    layer = nn.TransformerEncoderLayer(4, 1, activation=activation)
    assert activation in _reached(nn.Sequential(layer))

    class Layer(nn.TransformerEncoderLayer):  # type: ignore[misc, name-defined]
        pass

    assert activation in _reached(Layer(4, 1, activation=activation))

    class Shown(collections.UserList):  # type: ignore[type-arg]
        pass

    net = _module_calling("self.shown")
    net.shown = Shown([shown])
    assert shown in _reached(net)
    assert shown not in _reached(_module_calling("x"))


# --- What a class offers under a name ---


def test_methods_and_properties_are_reached_by_name() -> None:
    class Offers(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            self.writable = x
            return self.of_class(), self.static()

        @classmethod
        def of_class(cls) -> None: ...

        @staticmethod
        def static() -> None: ...

        @property
        def writable(self) -> NoReturn:
            raise AssertionError("the property ran")

        @writable.setter
        def writable(self, value: Any) -> None: ...

        @property
        def not_named(self) -> None: ...

    members = vars(Offers)
    assert set(_reached(Offers())) == {
        Offers.forward,
        members["of_class"].__func__,
        Offers.static,
        members["writable"].fget,
        members["writable"].fset,
    }


def test_wrapped_methods_are_reached_by_name() -> None:
    class Offers(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return self.lazy, self.cached(x), self.partial(), self.single(x)

        @functools.cached_property
        def lazy(self) -> NoReturn:
            _explode()

        @functools.lru_cache  # noqa: B019
        def cached(self, x: Any) -> None: ...

        partial = functools.partialmethod(_new_function("partial"))

        @functools.singledispatchmethod
        def single(self, x: Any) -> None: ...

        @single.register
        def _on_int(self, x: int) -> None: ...

    members = vars(Offers)
    assert {
        Offers.forward,
        members["lazy"].func,
        members["cached"].__wrapped__,
        members["partial"].func,
        members["single"].func,
        members["_on_int"],
    } <= set(_reached(Offers()))


def test_a_name_reached_late_finds_classes_known_early_and_the_reverse() -> None:
    class Late:
        def early_name(self) -> None: ...

    def makes_late() -> Any:
        return Late()

    def names_late_method(x: Any) -> Any:
        return x.late_method()

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return makes_late().early_name(), names_late_method(x)

        def late_method(self) -> None: ...

    assert {Late.early_name, Net.late_method} <= set(_reached(Net()))


def test_super_reaches_every_class_of_the_resolution_order() -> None:
    class Base(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return self.step(x)

        def step(self, x: Any) -> Any:
            return x

    class Side(Base):
        def step(self, x: Any) -> Any:
            return super().step(x)

    class Net(Side, Base):
        def __init__(self) -> None:
            super().__init__()

        def forward(self, x: Any) -> Any:
            return super().forward(x)

    # The class that super() captures is not constructed by the call.
    assert set(_reached(Net())) == {Net.forward, Base.forward, Side.step, Base.step}


def test_super_in_a_constructor_does_not_reach_every_constructor() -> None:
    class Made:
        def __init__(self) -> None:
            super().__init__()

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()

        def forward(self, x: Any) -> Any:
            return Made()

    assert _reached(Net()) == [Net.forward, Made.__init__]


@pytest.mark.parametrize(
    "method",
    [
        *("__getattr__", "__getattribute__", "__setattr__", "__call__", "__enter__", "__exit__"),
        *("__getitem__", "__len__", "__bool__", "__iter__", "__next__", "__contains__"),
        *("__add__", "__radd__", "__iadd__", "__matmul__", "__lt__", "__torch_function__"),
    ],
)
def test_methods_that_run_without_being_named_are_reached(method: str) -> None:
    function = _new_function()
    kind = type("Kind", (), {method: function, "__module__": "made_model"})
    net = _module_calling("self.held")
    net.__dict__["held"] = object.__new__(kind)
    assert function in _reached(net)


def test_the_call_of_a_metaclass_is_reached() -> None:
    class Meta(type):
        def __call__(cls) -> Any:
            return 3

    class Made(metaclass=Meta):
        pass

    assert Meta.__call__ in _reached(_module_calling("Made()", Made=Made))


def test_names_in_nested_code_and_texts_for_getattr_count() -> None:
    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return [self.in_comprehension(y) for y in x], lambda: self.in_lambda(), self.by_text()

        def in_comprehension(self, x: Any) -> None: ...

        def in_lambda(self) -> None: ...

        def by_text(self) -> Any:
            return getattr(self, "named_in_text")()  # noqa: B009

        def named_in_text(self) -> None: ...

    assert {Net.in_comprehension, Net.in_lambda, Net.named_in_text} <= set(_reached(Net()))


def test_containers_of_a_class_are_reached_by_name() -> None:
    net = _module_calling("self.TABLE['a'](x)")
    function = _new_function()
    type(net).TABLE = {"a": function}
    assert function in _reached(net)


# --- Globals ---


def test_global_functions_classes_and_containers_are_reached() -> None:
    class Made:
        def __init__(self) -> None: ...
        def __call__(self) -> None: ...
        def forward(self) -> None: ...
        def named(self) -> None: ...
        def unnamed(self) -> None: ...

    functions = {
        name: _new_function(name)
        for name in ("f", "in_dict", "in_list", "in_tuple", "in_set", "in_deque", "default")
    }
    net = _module_calling(
        "f(x), Made().named(), D['k'], L[0], T[0], S, Q, P(x), W(x)",
        f=functions["f"],
        unused=_new_function("unused"),
        Made=Made,
        D={"k": [functions["in_dict"]]},
        L=[functions["in_list"]],
        T=(functions["in_tuple"],),
        S={functions["in_set"]},
        Q=collections.deque([functions["in_deque"]]),
        P=functools.partial(functions["default"]),
        W=functools.lru_cache(_explode),
    )
    found = _reached(net)
    assert set(functions.values()) | {_explode} <= set(found)
    assert {Made.__init__, Made.__call__, Made.forward, Made.named} <= set(found)
    assert Made.unnamed not in found
    assert "unused" not in [function.__qualname__ for function in found]


def test_registries_are_reached_without_calling_their_methods() -> None:
    class Activation(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x

    class Instantiator(collections.OrderedDict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> Any:
            _explode()

        items = values = __iter__ = __len__ = _explode  # type: ignore[assignment]

    registry = Instantiator()
    registry["relu"] = (Activation, {"inplace": True})
    net = _module_calling("REGISTRY['relu'](x)", REGISTRY=registry)
    assert {Activation.forward, Instantiator.__getitem__} <= set(_reached(net))


def test_mapping_like_objects_are_reached_by_their_attributes() -> None:
    class Interface(collections.abc.MutableMapping):  # type: ignore[type-arg]
        _global_mapping = {"eager": _new_function("global")}  # noqa: RUF012

        def __init__(self) -> None:
            self._local_mapping = {"own": _new_function("local")}

        def __getitem__(self, key: str) -> Any:
            return self._local_mapping.get(key) or self._global_mapping[key]

        __setitem__ = __delitem__ = __iter__ = __len__ = _explode  # type: ignore[assignment]

    net = _module_calling("ALL['eager'](x)", ALL=Interface())
    names = [function.__qualname__ for function in _reached(net)]
    assert {"global", "local"} <= set(names)


def test_containers_are_read_to_a_limit_only() -> None:
    entries = [_new_function(f"entry{number}") for number in range(700)]
    net = _module_calling("L", L=entries)
    assert len(_reached(net)) == 1 + 500


def test_a_container_reached_too_deep_first_is_read_when_reached_higher() -> None:
    shared = [_new_function()]
    deep = [[[shared]]]
    assert shared[0] not in _reached(_module_calling("deep", deep=deep))
    # The walk is breadth first: a chain this long comes to the list after the nested way to it.
    scope: dict[str, Any] = {"__name__": "made_model", "shared": shared}
    exec("def a(): b()\ndef b(): c()\ndef c(): d()\ndef d(): shared", scope)
    assert shared[0] in _reached(_module_calling("deep, a()", deep=deep, a=scope["a"]))


def test_modules_are_followed_by_the_names_in_the_function_alone() -> None:
    package = types.ModuleType("made_package")
    package.sub = sub = types.ModuleType("made_package.sub")  # type: ignore[attr-defined]
    sub.wanted, sub.other = _new_function("wanted"), _new_function("other")  # type: ignore[attr-defined]
    package.__getattr__ = _explode  # type: ignore[method-assign]
    net = _module_calling("pkg.sub.wanted(x), pkg.missing", pkg=package)
    assert sub.wanted in _reached(net)
    assert sub.other not in _reached(net)
    net.held = sub
    assert sub.wanted in _reached(net)
    assert sub.other not in _reached(net)


def test_imports_inside_functions_are_looked_up_and_never_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = types.ModuleType("made_loaded")
    loaded.wanted = _new_function("wanted")  # type: ignore[attr-defined]
    loaded.used_as = _new_function("used")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_loaded", loaded)

    def function(x: Any) -> Any:
        import antigravity_is_not_loaded  # type: ignore[import-not-found]
        import made_loaded as renamed  # type: ignore[import-not-found]
        from made_loaded import wanted

        return wanted(renamed.used_as(x)), antigravity_is_not_loaded

    assert _reached(function)[1:] == [loaded.wanted, loaded.used_as]


def test_a_monkeypatched_method_of_an_untouched_class_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warn_once = functools.lru_cache(_new_function("warn_once"))
    monkeypatch.setattr(logging.Logger, "made_warn_once", warn_once, raising=False)
    net = _module_calling("log.made_warn_once(x)", log=logging.getLogger("made"))
    assert warn_once.__wrapped__ in _reached(net)


# --- What a function holds ---


def test_closures_defaults_and_attributes_are_reached() -> None:
    captured, default, keyword, attribute = (_new_function(f"held{number}") for number in range(4))
    helper = Inner()

    def outer(missing: bool) -> Any:
        def function(x: Any, first: Any = default, *, second: Any = keyword) -> Any:
            return captured(x), helper, unset

        if missing:
            unset = 1
        return function

    function = outer(False)
    function.attribute = attribute
    assert set(_reached(function)) == {
        *(function, captured, default, keyword, attribute, Inner.forward, Inner.scale),
    }


def test_a_wrapper_comes_before_what_it_wraps() -> None:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*arguments: Any) -> Any:
            return function(*arguments)

        return wrapper

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        @decorate
        def forward(self, x: Any) -> Any:
            return x

    wrapped = Net.forward.__wrapped__
    assert _reached(Net()) == [Net.forward, wrapped]


def test_untouched_wrappers_are_looked_through_and_left_out() -> None:
    class Net(nn.Module):  # type: ignore[misc, name-defined]
        @torch.no_grad()
        def forward(self, x: Any) -> Any:
            return x

        @torch.compiler.disable
        def helper(self) -> None: ...

    # functools.wraps copies the module of the wrapped function; the code is torch's all the same.
    assert Net.forward.__module__ == __name__
    assert _reached(Net()) == [Net.forward.__wrapped__]


# --- What the walk begins with ---


def test_bound_methods_reach_their_object() -> None:
    assert _reached(Inner().scale) == [Inner.scale, Inner.forward]


def test_partials_reach_function_and_arguments() -> None:
    argument, keyword = _new_function("argument"), _new_function("keyword")
    function = _new_function("function")
    assert set(_reached(functools.partial(function, argument, key=keyword))) == {
        *(function, argument, keyword),
    }


def test_compiled_modules_and_functions_reach_what_was_compiled() -> None:
    net = Outer()
    compiled = torch.compile(net, backend="eager")
    assert reach(compiled, DEFAULT) == reach(net, DEFAULT)
    assert set(_reached(torch.compile(compiled, backend="eager"))) == set(_reached(net))
    function = _new_function()
    assert _reached(torch.compile(function, backend="eager")) == [function]
    net.compile(backend="eager")
    assert set(_reached(net)) == set(_reached(Outer()))


@pytest.mark.parametrize("refused", [None, 3, len, object(), collections.OrderedDict])
def test_what_cannot_be_patched_is_refused(refused: object) -> None:
    with pytest.raises(UnsupportedObject, match="takes an nn"):
        reach(refused, DEFAULT)


@pytest.mark.filterwarnings("ignore")
def test_script_modules_below_are_passed_by() -> None:
    net = Outer()
    net.blocks.append(torch.jit.trace(nn.ReLU(), torch.zeros(1)))
    assert reach(net, DEFAULT) == reach(Outer(), DEFAULT)


# --- The policy ---


def test_the_policy_leaves_out_and_takes_in() -> None:
    net = nn.Sequential(nn.Linear(1, 1), Inner())
    assert _reached(net) == [Inner.forward, Inner.scale]
    assert nn.Linear.forward in _reached(net, Policy(include=("torch.nn.modules.linear",)))
    assert _reached(net, Policy(exclude=(__name__,))) == []


def test_a_left_out_function_is_not_followed() -> None:
    target = _new_function("target")
    scope = {"__name__": "left_out", "target": target}
    exec("def hop(x): return target(x)", scope)
    net = _module_calling("hop(x)", hop=scope["hop"])
    assert target in _reached(net)
    assert _reached(net, Policy(exclude=("left_out",))) == [type(net).forward]


# --- Never run, never raise, never drown ---


class _ExplosiveMeta(type):
    __getattribute__ = _explode
    __hash__ = _explode  # type: ignore[assignment]
    __eq__ = _explode
    __instancecheck__ = _explode
    __subclasscheck__ = _explode
    __call__ = _explode


class _Explosive(metaclass=_ExplosiveMeta):
    __class__ = property(_explode)  # type: ignore[assignment]
    __getattribute__ = _explode  # type: ignore[assignment]
    __getattr__ = _explode
    __hash__ = _explode  # type: ignore[assignment]
    __eq__ = __bool__ = __len__ = __iter__ = __repr__ = _explode  # type: ignore[assignment]
    __get__ = __call__ = _explode


class _ExplosiveDescriptor:
    __get__ = __set__ = _explode


def test_objects_that_explode_on_any_touch_are_walked() -> None:
    class Net(nn.Module):  # type: ignore[misc, name-defined]
        descriptor = _ExplosiveDescriptor()

        def forward(self, x: Any) -> Any:
            return self.odd, self.descriptor, self.loud, self.TABLE, explosive

        @property
        def loud(self) -> NoReturn:
            _explode()

        def __getattr__(self, name: str) -> NoReturn:
            _explode()

        def __dir__(self) -> NoReturn:
            _explode()

        def named_modules(self, *arguments: Any) -> NoReturn:
            _explode()

        modules = children = named_children = parameters = __iter__ = __len__ = named_modules

    explosive = object.__new__(_Explosive)
    weak = weakref.proxy(Inner())
    net = Net()
    content = object.__getattribute__(net, "__dict__")
    content["odd"] = [explosive, weak, {"key": explosive}]
    type.__setattr__(Net, "TABLE", {"kind": type(explosive)})
    found = _reached(net)
    assert found[0] is Net.forward
    assert Net.__dict__["loud"].fget in found
    # What is found is found although it explodes when it is run.
    assert _explode in found


def test_half_made_modules_are_walked() -> None:
    half_made = Outer.__new__(Outer)
    assert _reached(half_made) == [Outer.forward]
    odd = Outer()
    odd.__dict__["_modules"] = None
    odd.__dict__["_forward_hooks"] = [1]
    assert _reached(odd) == [Outer.forward]


def test_cycles_end() -> None:
    net = Inner()
    net.__dict__["self"] = net
    loop: list[Any] = [net]
    loop.append(loop)
    net.loop = loop
    net.bound = net.forward
    assert _reached(net) == [Inner.forward, Inner.scale]


def test_the_answer_is_the_same_each_time_and_holds_each_function_once() -> None:
    net = Outer()
    net.extra = [Inner.scale, Inner().scale, functools.partial(Inner.scale)]
    found = reach(net, DEFAULT)
    assert found == reach(net, DEFAULT)
    assert len({id(entry.function) for entry in found}) == len(found)


def test_the_walk_is_linear_in_the_functions_reached() -> None:
    def calls(count: int) -> int:
        functions = {f"f{number}": _new_function(f"f{number}") for number in range(count)}
        classes = [
            type(f"C{number}", (nn.Module,), {"forward": _new_function(), f"m{number}": _explode})
            for number in range(count)
        ]
        net = _module_calling(", ".join(functions), **functions)
        net.blocks = nn.ModuleList(cls() for cls in classes)
        counted = 0

        def count_call(*event: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count_call)
        try:
            found = reach(net, DEFAULT)
        finally:
            sys.setprofile(None)
        assert len(found) == 1 + 2 * count
        return counted

    few, many = calls(50), calls(400)
    assert many < 8 * few * 1.1


def _table_of(count: int, scope: dict[str, Any]) -> dict[str, Any]:
    """Return a table of functions that call `scores`; the first of them asserts something."""
    table = {}
    for number in range(count):
        check = "    assert x\n" if number == 0 else ""
        exec(f"def choice{number}(x):\n{check}    return scores(x)", scope)
        table[f"{number}"] = scope[f"choice{number}"]
    return table


def test_functions_of_a_large_table_are_deferred_and_what_they_reach() -> None:
    scores = _new_function("scores")
    scope: dict[str, Any] = {"__name__": "made_model", "scores": scores}
    small, large = _table_of(8, scope), _table_of(9, scope)
    net = _module_calling("TABLE['0'](x)", TABLE=small)
    assert [each.function for each in reach(net, DEFAULT)][1:] == [*small.values(), scores]
    assert not any(each.deferred for each in reach(net, DEFAULT))
    net = _module_calling("TABLE['0'](x)", TABLE=large)
    found = reach(net, DEFAULT)
    assert [each.function for each in found][1:] == [*large.values(), scores]
    # Dynamo takes an assertion in its own way, and does not stop.
    assert [each.deferred for each in found] == [False, False, *[True] * 9]
    assert found[1].path == "forward -> TABLE[...]"


def test_functions_of_a_large_table_that_are_reached_otherwise_are_not_deferred() -> None:
    scope: dict[str, Any] = {"__name__": "made_model", "scores": _new_function("scores")}
    table = _table_of(9, scope)
    net = _module_calling("TABLE['0'](choice5(x))", TABLE=table, choice5=table["5"])
    at_once = [each.function.__qualname__ for each in reach(net, DEFAULT) if not each.deferred]
    assert set(at_once) == {"forward", "choice0", "choice5", "scores"}
    assert reach(net, Policy(exclude=("made_model",))) == ()
    at_once = [each.function for each in reach(table["3"], DEFAULT) if not each.deferred]
    assert at_once == [table["3"], scope["scores"]]


def test_lists_of_functions_are_not_deferred() -> None:
    net = _module_calling("L", L=[_new_function(f"step{number}") for number in range(20)])
    assert not any(each.deferred for each in reach(net, DEFAULT))


def test_what_converts_or_saves_a_module_is_not_reached_by_name() -> None:
    class Quantized(nn.Module):
        def to(self, *arguments: Any) -> Any:
            _explode()

        def float(self) -> Any:
            _explode()

        def convert(self) -> Any:
            return self

        def forward(self, x: Any) -> Any:
            return self.convert() and x.to("cpu").float()

    assert _reached(Quantized()) == [Quantized.forward, Quantized.convert]
