"""A record runs under the grad mode and the autocast of its statement."""

from __future__ import annotations

import pytest
import torch

from bcmend.delivery.settings import Settings, call_under


def _seen(settings: Settings) -> tuple[bool, bool, torch.dtype]:
    found: list[tuple[bool, bool, torch.dtype]] = []

    def look() -> None:
        dtype = torch.get_autocast_dtype("cpu")
        found.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), dtype))

    call_under(settings, look, ())
    return found[0]


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_the_grad_mode(outside: bool, inside: bool) -> None:
    with torch.set_grad_enabled(outside):
        assert _seen((("grad", inside, ""),))[0] is inside
        assert _seen(())[0] is outside
        assert torch.is_grad_enabled() is outside


def test_autocast_is_switched_on_with_its_dtype() -> None:
    assert _seen((("cpu", True, "bfloat16"),))[1:] == (True, torch.bfloat16)
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_is_switched_off() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert _seen((("cpu", False, "bfloat16"),))[1] is False
        assert torch.is_autocast_enabled("cpu")


def test_the_last_setting_is_the_innermost() -> None:
    assert _seen((("grad", True, ""), ("grad", False, "")))[0] is False


def test_settings_end_with_an_exception() -> None:
    def fail(value: int) -> None:
        raise ValueError(value)

    with pytest.raises(ValueError, match="3"):
        call_under((("grad", False, ""), ("cpu", True, "bfloat16")), fail, (3,))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_a_device_without_a_name_is_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def autocast(device: str, **settings: object) -> torch.no_grad:
        devices.append(device)
        return torch.no_grad()

    monkeypatch.setattr(torch, "autocast", autocast)
    for accelerator, expected in ((None, "cuda"), (torch.device("xpu"), "xpu")):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda a=accelerator: a)
        call_under((("", True, "float16"),), lambda: None, ())
        assert devices.pop() == expected
