"""A small evaluation on the digits whose every number can be recomputed."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from davylamp.adapters import ThreatModel
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.run.local_executor import InProcessExecutor
from davylamp.metrics import adversarial_confidence_increase

_TIMES = {"seconds", "attack_seconds", "fit_seconds", "written"}
ATTACKS = (
    AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 5}),
    AttackChoice("torchattacks:fgsm", "linf", 0.05),
    AttackChoice("foolbox:ddn", "l2", parameters={"steps": 20}),
)


@pytest.fixture(autouse=True)
def _few_draws(few_draws):
    """Of a ranking what is printed counts here; how good it is is tested in tests/scoring."""


@pytest.fixture(scope="session")
def images(digits) -> Data:
    return Data(digits.inputs, digits.labels, [f"digit_{i}" for i in range(len(digits.labels))])


@pytest.fixture(scope="session")
def small_plan(digits, images):
    """Three attacks on the digits CNN, 16 images in shards of 6."""
    config = Config(attacks=ATTACKS, data="digits", shard_size=6, keep_images=True)
    return make_plan(config, models={"cnn": digits.classifier}, data=images)


@pytest.fixture(scope="session")
def small_folder(small_plan, tmp_path_factory):
    """Its results folder."""
    folder = tmp_path_factory.mktemp("results")
    evaluate(small_plan, ResultsStore(folder))
    return folder


@pytest.fixture(scope="session")
def assert_same():
    """Raises unless two folders have equal records of cells and clean images, every bit, the times aside."""

    def check(folder, whole, kinds=("clean", "cells")):
        ours, theirs = _contents(folder), _contents(whole)
        assert ours == theirs
        assert {kind for kind, _ in ours} == set(kinds)  # nothing is left over

    return check


def _contents(folder) -> dict:
    store, files = ResultsStore(folder, create=False), {}
    for kind in ("clean", "cells", "parts", "fits", "transfer"):
        for key, record in store.read_all(kind):
            table, stream = record.table, pa.BufferOutputStream()
            table = table.drop_columns([name for name in _TIMES if name in table.column_names]).combine_chunks()
            with pa.ipc.new_stream(stream, table.schema) as file:
                file.write_table(table)
            meta = {name: value for name, value in record.meta.items() if name not in _TIMES}
            files[kind, key] = stream.getvalue().to_pybytes(), meta
    return files


@pytest.fixture
def digits_files(digits, tmp_path, monkeypatch):
    """The digits CNN as net.py:build and its images as npz:images.npz, in the working folder."""
    monkeypatch.chdir(tmp_path)
    code = "import torch\n\n\ndef build():\n    return torch.load('net.pt', weights_only=False)\n"
    (tmp_path / "net.py").write_text(code)
    torch.save(digits.module, tmp_path / "net.pt")
    np.savez(tmp_path / "images.npz", inputs=digits.inputs.numpy(), labels=digits.labels.numpy())
    return tmp_path


class Interrupted(InProcessExecutor):
    """Stops after some tasks, as a kill would."""

    def __init__(self, tasks):
        super().__init__()
        self.left = tasks

    def __call__(self, tasks, progress):
        for outcome in super().__call__(tasks, progress):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            yield outcome


class FolderWriter:
    """Records written by hand: logits, outcomes and distances are the caller's, so that every table has a truth."""

    def __init__(self, folder):
        self.store = ResultsStore(folder)

    def clean(
        self,
        model: str,
        logits: Tensor,
        labels: Tensor,
        *,
        data: str = "demo",
        digest: str = "d",
        model_digest: str = "",
    ) -> ModelOnData:
        subject = ModelOnData(model, model_digest or f"digest-{model}", data, digest, len(labels))
        right = (logits.argmax(1) == labels).double()
        known = {
            "predicted": logits.argmax(1),
            "CA": right,
            "CC": logits.softmax(1)[range(len(labels)), labels].double(),
        }
        table = self._table(labels, known, "logits", logits)
        self.store.write("clean", subject.key, table, self._meta(subject, subject.key))
        return subject

    def cell(
        self, subject: ModelOnData, attack: str, logits: Tensor, adv_logits: Tensor, labels: Tensor, **spec
    ) -> AttackRun:
        """A finished cell; `own` are arguments of Cell, and columns in place of the plain ones."""
        norm, epsilon = spec.pop("norm", "linf"), spec.pop("epsilon", 0.1)
        given = {name: spec.pop(name) for name in ("parameters", "seed", "target", "measures") if name in spec}
        threat_model = ThreatModel(norm, epsilon, bool(given.get("target")))
        cell = AttackRun(subject, attack, threat_model, **{"measures": ("effect",), **given})
        n, attacked = len(labels), logits.argmax(1) == labels
        violated = spec.pop("violated", torch.zeros(n, dtype=torch.bool))
        success = spec.pop("success", attacked & (adv_logits.argmax(1) != labels) & ~violated)
        sizes = spec.pop("sizes", torch.full((n,), epsilon or 0.1, dtype=torch.double))
        rise = adversarial_confidence_increase(logits, adv_logits, labels, reduction="none").double()
        columns = {
            "attacked": attacked,
            "success": success,
            "success_8bit": success,
            "violated": violated,
            "violations": np.where(violated.numpy(), "no-start", ""),
            "robust": attacked & ~success & ~violated,
            "predicted": logits.argmax(1),
            "adv_predicted": adv_logits.argmax(1),
            "forwards": torch.full((n,), 3),
            "backwards": torch.full((n,), 2),
            "seconds": torch.full((n,), 0.5, dtype=torch.double),
            "distance": torch.where(attacked, torch.where(success, sizes, torch.inf), 0.0),
            **dict.fromkeys(("l0", "l1", "l2", "linf"), sizes),
            "MR": torch.where(attacked, success.double(), torch.nan),
            "AIAC": torch.where(violated, torch.nan, rise),
            **spec,
        }
        table = self._table(labels, columns, "adv_logits", adv_logits)
        self.store.write("cells", cell.key, table, self._meta(subject, cell.key, cell))
        return cell

    def failed(self, subject: ModelOnData, attack: str, reason: str) -> AttackRun:
        cell = AttackRun(subject, attack, ThreatModel("linf", 0.1))
        meta = {**self._meta(subject, cell.key, cell), "status": "failed", "reason": reason}
        self.store.write("cells", cell.key, pa.table({}), meta)
        return cell

    def transfer(self, cell: AttackRun, tested: ModelOnData, predicted: Tensor, logits: Tensor | None = None) -> None:
        """What a model predicts on the examples of a cell; NaN: it gave no finite logits."""
        answers = pa.array(predicted.nan_to_num().long().numpy(), mask=predicted.isnan().numpy())
        columns = {"index": range(len(predicted)), "adv_predicted": answers}
        if logits is not None:
            flat = pa.array(logits.float().numpy().reshape(-1))
            columns["adv_logits"] = pa.FixedSizeListArray.from_arrays(flat, logits.shape[1])
        table = pa.table(columns)
        self.store.write("transfer", f"{cell.key}-{tested.key}", table, self._meta(tested, cell.key, cell))

    @staticmethod
    def _table(labels: Tensor, columns: dict, name: str, logits: Tensor) -> pa.Table:
        flat = pa.FixedSizeListArray.from_arrays(pa.array(logits.float().numpy().reshape(-1)), logits.shape[1])
        arrays = {key: np.asarray(values) for key, values in columns.items()}
        images = {"index": range(len(labels)), "image": [str(i) for i in range(len(labels))], "label": labels.numpy()}
        return pa.table({**images, **arrays, name: flat})

    @staticmethod
    def _meta(subject: ModelOnData, key: str, cell: AttackRun | None = None) -> dict:
        spec = {} if cell is None else {"spec": cell.spec}
        return {"key": key, "subject": subject.spec, "status": "done", "reason": "", "unmeasured": {}, **spec}


@pytest.fixture
def writer(tmp_path):
    """Writes a results folder by hand; `writer.store.folder` is where."""
    return FolderWriter(tmp_path / "folder")
