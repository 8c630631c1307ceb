"""Libraries that train: each compiles or trains a mended model as it does any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import bcmend
from tests.works_with.small import Graphs, Small, assert_equal, inputs, logged

pytestmark = [
    pytest.mark.usefixtures("dynamo_begun_anew"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


class WithLoss(nn.Module):
    """A model as transformers' trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.small = Small()

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        found = self.small(x)
        loss = found.square().mean() if labels is None else (found - labels).square().mean()
        return {"loss": loss, "logits": found}


def _rows() -> list[dict[str, Tensor]]:
    first, second, _ = inputs()
    return [{"x": row, "labels": row} for x in (first, second) for row in x]


def _both(train: Any) -> None:
    """Compare what ``train(patch, backend)`` shows, stock and mended, with eager execution."""
    with torch.compiler.set_stance("force_eager"):
        expected = train(lambda model: model, Graphs("aot_eager"))
    counts = []
    for patch in (lambda model: model, bcmend.patch):
        bcmend.unpatch()
        torch._dynamo.reset()
        graphs = Graphs("aot_eager")
        assert_equal(train(patch, graphs), expected)
        counts.append(graphs.count)
    stock, mended = counts
    assert stock > mended >= 1


def _weights(model: Any) -> list[Tensor]:
    return [each.detach().clone() for each in model.parameters()]


def test_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    def train(patch: Any, graphs: Graphs) -> Any:
        model = patch(WithLoss())
        model.compile(backend=graphs)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=2,
            num_train_epochs=2,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            seed=0,
            disable_tqdm=True,
            max_grad_norm=1.0,
        )
        with logged() as texts:
            trainer = transformers.Trainer(model=model, args=arguments, train_dataset=_rows())
            loss = trainer.train().training_loss
        return loss, _weights(model), list(texts)

    _both(train)


def test_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")

    def train(patch: Any, graphs: Graphs) -> Any:
        accelerator = accelerate.Accelerator(cpu=True)
        model = patch(Small())
        model.compile(backend=graphs)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        first, second, _ = inputs()
        loader = DataLoader([*first, *second], batch_size=3)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        with logged() as texts:
            for x in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(x).square().sum())
                    optimizer.step()
                    optimizer.zero_grad()
        return _weights(model), list(texts)

    _both(train)


def test_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", torch.compile)  # which it replaces once it is imported
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            found: Tensor = self.inner(batch).square().sum()
            return found

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def train(patch: Any, graphs: Graphs) -> Any:
        model = Module(Small())
        patch(model.inner).compile(backend=graphs)
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        first, second, _ = inputs()
        with logged() as texts:
            trainer.fit(model, DataLoader([*first, *second], batch_size=3))
        return _weights(model), list(texts)

    _both(train)


def test_lora() -> None:
    peft = pytest.importorskip("peft")

    def train(patch: Any, graphs: Graphs) -> Any:
        torch.manual_seed(0)
        config = peft.LoraConfig(target_modules=["linear", "other"], r=2, lora_dropout=0.0)
        model = peft.get_peft_model(Small(), config)
        with torch.no_grad():
            for name, each in model.named_parameters():
                if "lora_B" in name:
                    each.fill_(0.1)
        compiled = torch.compile(patch(model), backend=graphs)
        given = [each for each in model.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(given, lr=0.1)
        with logged() as texts:
            for x in inputs()[:2]:
                optimizer.zero_grad()
                compiled(x).square().sum().backward()
                optimizer.step()
        return _weights(model), list(texts)

    _both(train)


def test_torchao() -> None:
    quantization = pytest.importorskip("torchao.quantization")

    def run(patch: Any, graphs: Graphs) -> Any:
        model = Small(32)
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
        compiled = torch.compile(patch(model), backend=graphs)
        with torch.no_grad(), logged() as texts:
            return [compiled(x) for x in inputs(width=32)[:2]], list(texts)

    _both(run)
