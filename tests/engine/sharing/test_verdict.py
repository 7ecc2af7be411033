"""Verdicts: the claims are those of the folder, every example is judged again, and nothing in a file is believed."""

import hashlib
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import nn

import davylamp
from davylamp.engine import ResultsStore
from davylamp.engine.sharing.bundle import write_bundle
from davylamp.engine.sharing.signed_archive import read_private_key, sign
from davylamp.engine.sharing.verdict_file import read_verdict
from davylamp.engine.sharing.verdict_writer import write_verdict_file
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import InvalidInput, Unavailable, UnknownName

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def file(small_folder, images, tmp_path_factory):
    """A signed verdict on the digits CNN, which it is judged on as `digits.module`."""
    return write_verdict_file(small_folder, tmp_path_factory.mktemp("verdict") / "cnn.zip", data=images, key=KEY).path


@pytest.fixture
def rewrite(file, tmp_path):
    """A verdict with other files in it: bytes by name, None to leave one out. Hashes fit unless `honest` is False."""

    def write(changes, *, honest=True, key=KEY, compression=zipfile.ZIP_STORED, manifest=None, entries=()):
        with zipfile.ZipFile(file) as good:
            files = {name: good.read(name) for name in good.namelist()}
        files = {name: content for name, content in (files | changes).items() if content is not None}
        document = json.loads(files.pop("verdict.json")) | (manifest or {})
        files.pop("signature.json")
        if honest:
            document["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        text = json.dumps(document).encode()
        files["verdict.json"] = text
        if key is not None:
            files["signature.json"] = json.dumps(sign(text, key)).encode()
        path = tmp_path / "other.zip"
        with zipfile.ZipFile(path, "w", compression) as made:
            for name, content in [*files.items(), *entries]:
                made.writestr(name, content)
        return path

    return write


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_the_claims_are_the_counts_of_the_folder_and_the_examples_are_the_stored_ones(file, small_folder, images):
    verdict, outcomes = read_verdict(file), read_outcomes(small_folder)
    assert len(verdict.manifest.claims) == len(outcomes.done) == 3
    for claim, (rows, examples, targets) in zip(verdict.manifest.claims, verdict.examples, strict=True):
        (run,) = [each for each in outcomes.done if each.cell.threat_model == claim.threat_model]
        fooled = torch.from_numpy(run.columns["success"].astype(bool))
        stored = np.concatenate([np.load(path)["inputs"] for path in _images_of(small_folder, run.cell)])
        assert claim.fooled == int(fooled.sum()) > 0
        assert torch.equal(verdict.index[rows], fooled.nonzero()[:, 0])
        assert torch.equal(examples, torch.from_numpy(stored)[fooled])
        assert torch.equal(verdict.originals.inputs[rows], images.inputs[fooled])
        assert torch.equal(verdict.originals.labels[rows], images.labels[fooled])
        assert claim.largest_distance == pytest.approx(run.columns["distance"][fooled.numpy()].max())
        assert targets is None


def _images_of(folder, cell):
    return sorted((ResultsStore(folder).folder / "images").glob(f"{cell.key}-*.npz"))


def test_of_two_attacks_with_one_threat_model_the_nearest_example_counts(digits, images, tmp_path):
    how = {"epsilon": 0.1, "norm": "linf", "data": "digits", "keep_images": True, "names": images.names}
    attacks = ["torchattacks:fgsm", "foolbox:pgd"]
    davylamp.evaluate(
        {"cnn": digits.module}, images.inputs, images.labels, attacks=attacks, out=tmp_path / "both", **how
    )
    outcomes = read_outcomes(tmp_path / "both")
    verdict = read_verdict(write_verdict_file(tmp_path / "both", tmp_path / "both.zip", data=images).path)
    least = np.min([each.columns["distance"] for each in outcomes.done], axis=0)
    (claim,), (found,) = verdict.manifest.claims, verdict.examples
    assert claim.fooled == int(np.isfinite(least).sum())
    distances = (found.adv_inputs.double() - verdict.originals.inputs[found.rows].double()).abs().flatten(1).amax(1)
    np.testing.assert_allclose(distances, least[np.isfinite(least)])
    assert set(claim.attacks) == set(attacks)


def test_the_model_confirms_every_example_and_the_data_every_original(file, digits, images):
    done = davylamp.verify(file, digits.module, data=(images.inputs, images.labels), key=_public(KEY))
    assert done.document["holds"]
    assert done.document["same_model"]
    assert [row["confirmed"] for row in done.rows] == [row["claimed"] for row in done.rows]
    assert done.notes == ()
    assert davylamp.verify(file, digits.module).notes  # the author and the originals were not checked
    assert "within linf 0.1" in done.headline


class _Noisy(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, inputs):
        return self.module(inputs + 0.02 * torch.randn_like(inputs))


@pytest.mark.parametrize("kind", ["targeted on 8 bits", "random", "unrestricted"])
def test_every_kind_of_result_is_judged_as_in_its_evaluation(kind, digits, images, tmp_path):
    module, attack, how = digits.module, "foolbox:pgd", {"norm": "linf", "epsilon": 0.2}
    if kind == "targeted on 8 bits":
        how |= {"target": "second-likely", "eight_bit": True}
    elif kind == "random":
        module = davylamp.Classifier(_Noisy(module), random=True)
    else:
        attack, how = "foolbox:blur", {}
    how |= {"attacks": attack, "keep_images": True, "out": tmp_path / "results"}
    davylamp.evaluate({"net": module}, images.inputs, images.labels, **how)
    (outcome,) = read_outcomes(tmp_path / "results").done
    davylamp.export(tmp_path / "results", tmp_path / "a.zip", form="verdict", data=(images.inputs, images.labels))
    (claim,) = davylamp.verify(tmp_path / "a.zip", module).document["claims"]
    assert claim["confirmed"] == claim["claimed"] == int(outcome.columns["success"].sum()) > 0
    ((_, examples, targets),) = read_verdict(tmp_path / "a.zip").examples
    if targets is not None:
        assert torch.equal(module(examples).argmax(1), targets)
        assert torch.equal((examples * 255).round() / 255, examples)


def test_another_model_confirms_what_it_is_fooled_by(file, digits, images):
    other = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    done = davylamp.verify(file, other)
    verdict = read_verdict(file)
    right = other(verdict.originals.inputs).argmax(1) == verdict.originals.labels
    for row, (rows, examples, _) in zip(done.rows, verdict.examples, strict=True):
        labels = verdict.originals.labels[rows]
        assert row["confirmed"] == int((right[rows] & (other(examples).argmax(1) != labels)).sum()) < row["claimed"]
    assert not done.document["holds"]
    assert not done.document["same_model"]


def test_other_originals_and_labels_are_found_by_the_data(rewrite, digits, images):
    with zipfile.ZipFile(rewrite({})) as made:
        labels = np.load(io.BytesIO(made.read("labels.npy")))
    wrong = labels.copy()
    wrong[0] = (wrong[0] + 1) % 10
    path = rewrite({"labels.npy": npy(wrong)})
    foreign = davylamp.verify(path, digits.module, data=(images.inputs, images.labels)).document
    assert not foreign["holds"]
    assert any("not in the data" in reason for claim in foreign["claims"] for reason in claim["reasons"])
    with pytest.raises(InvalidInput, match="16 images"):
        davylamp.verify(path, digits.module, data=(images.inputs[:9], images.labels[:9]))


class _Line(nn.Module):
    """Two classes; class 1 where the mean of the pixels is above 1/2."""

    def forward(self, inputs):
        mean = inputs.flatten(1).mean(1)
        return torch.stack([0.5 - mean, mean - 0.5], 1)


def test_each_reason_on_a_line_of_which_every_distance_is_known(rewrite):
    """Grey images: an example fools exactly if its grey crosses 1/2, and is allowed if it moved by at most 0.1."""
    greys = np.array([0.45, 0.45, 0.45, 0.45, 0.55, 0.45, 0.96], np.float32)
    moved = np.array([0.54, 0.56, 0.49, np.nan, 0.46, 0.54, 1.02], np.float32)
    #                 fooled  far  not there  nan  fooled  wrong original  outside the box
    labels = np.array([0, 0, 0, 0, 1, 1, 1])
    images, examples = (np.broadcast_to(each[:, None, None, None], (7, 1, 4, 4)) for each in (greys, moved))
    claim = {
        **{"threat_model": {"norm": "linf", "epsilon": 0.1, "targeted": False}, "eight_bit": False, "fooled": 7},
        **{"judge_samples": 0, "criterion": "", "largest_distance": 0.1, "attacks": ["by hand"]},
    }
    arrays = {"index": np.arange(7), "labels": labels, "originals": images}
    arrays |= {"claim-0-rows": np.arange(7), "claim-0-examples": examples}
    changes = dict.fromkeys([f"claim-{i}-{name}.npy" for i in range(3) for name in ("rows", "examples")])
    changes |= {f"{name}.npy": npy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    done = davylamp.verify(rewrite(changes, manifest={"claims": [claim]}), _Line())
    (row,) = done.document["claims"]
    assert row["confirmed"] == 2
    assert sorted(row["reasons"].values()) == [1, 1, 3]  # the wrong original, not fooled, and three outside
    assert row["reasons"]["the example is outside the threat model"] == 3
    assert "at least 2 of 16 images are fooled within linf 0.1" in done.headline
    assert any("3 of the 7 originals" in note for note in done.notes)  # three greys


def _public(key):
    return Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw().hex()


def test_who_signed_it_is_checked(file, rewrite, tmp_path):
    assert read_verdict(file, _public(KEY)).signed_by == _public(KEY)
    for path, key in ((file, _public(bytes(32))), (rewrite({}, key=None), _public(KEY))):
        with pytest.raises(InvalidInput, match="expected"):
            read_verdict(path, key)
    with zipfile.ZipFile(file) as good, zipfile.ZipFile(tmp_path / "edited.zip", "w") as made:
        for name in good.namelist():
            text = good.read(name)
            made.writestr(name, text.replace(b'"fooled":', b'"fooled": ') if name == "verdict.json" else text)
    with pytest.raises(InvalidInput, match="changed after it was signed"):
        read_verdict(tmp_path / "edited.zip")


def test_keys_are_read_from_pem_and_from_32_bytes(tmp_path):
    private = Ed25519PrivateKey.from_private_bytes(KEY)
    how = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "pem").write_bytes(private.private_bytes(*how, serialization.NoEncryption()))
    (tmp_path / "raw").write_bytes(KEY)
    (tmp_path / "locked").write_bytes(private.private_bytes(*how, serialization.BestAvailableEncryption(b"word")))
    (tmp_path / "none").write_bytes(b"no key")
    assert read_private_key(tmp_path / "pem") == read_private_key(tmp_path / "raw") == KEY
    for name in ("locked", "none"):
        with pytest.raises(InvalidInput, match=name):
            read_private_key(tmp_path / name)


class _Trap:
    def __reduce__(self):
        return pytest.fail, ("unpickled",)


_HUGE = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 3, 999, 999), }".ljust(117)
    + b"\n"
)


@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        ({"claim-0-examples.npy": npy(np.zeros((1, 3, 16, 16), np.float32))}, {"honest": False}, "was changed"),
        ({"claim-0-examples.npy": npy(np.zeros((1, 3, 16, 16), np.float32))}, {}, "expected"),
        ({"originals.npy": npy(np.full((16, 3, 16, 16), np.nan, np.float32))}, {}, r"\[0, 1\]"),
        ({"originals.npy": npy(np.full((16, 3, 16, 16), 0.5))}, {}, "float64"),
        ({"originals.npy": _HUGE}, {}, "larger array than the file contains"),
        ({"originals.npy": pickle.dumps(_Trap())}, {}, "damaged"),
        ({"originals.npy": npy(np.array([_Trap()], object))}, {}, "pickled"),
        ({"labels.npy": npy(np.full(16, 1 << 40))}, {}, "labels"),
        ({"labels.npy": npy(np.full(16, -1))}, {}, "labels"),
        ({"index.npy": npy(np.zeros(16, np.int64))}, {}, "increasing"),
        ({"index.npy": npy(np.arange(1, 17))}, {}, "below 16"),
        ({"claim-0-rows.npy": None}, {}, "damaged"),
        ({}, {"manifest": {"verdict": 2}}, "format 1"),
        ({}, {"manifest": {"claims": [{}]}}, "claims"),
        ({}, {"manifest": {"subject": {}}}, "subject"),
        ({}, {"compression": zipfile.ZIP_DEFLATED}, "stores files unchanged"),
        ({}, {"entries": [("more.npy", b"")]}, "more.npy"),
        ({}, {"entries": [("labels.npy", b"")]}, "same name"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_no_verdict_is_refused_by_name(rewrite, changes, settings, reason):
    path = rewrite(changes, **settings)
    with pytest.raises(InvalidInput, match=reason) as refusal:
        read_verdict(path)
    assert str(path) in str(refusal.value)


def test_truncated_and_foreign_files_are_refused_by_name(file, small_folder, tmp_path):
    content = file.read_bytes()
    files = {"half": content[: len(content) // 2], "empty": b"", "text": b"a verdict", "numbers": npy(np.zeros(3))}
    for name, other in files.items():
        (tmp_path / name).write_bytes(other)
        with pytest.raises(InvalidInput, match=name):
            read_verdict(tmp_path / name)
    with pytest.raises(InvalidInput, match="davylamp import"):
        read_verdict(write_bundle(small_folder, tmp_path / "bundle.zip", images=False).path)
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Unavailable, match="expected a verdict"):
            read_verdict(place)


def test_every_changed_byte_of_a_signed_verdict_is_noticed(file, tmp_path):
    content = bytearray(file.read_bytes())
    whole = read_verdict(file)
    for place in np.random.default_rng(0).integers(len(content), size=60):
        changed = content.copy()
        changed[place] ^= 16
        (tmp_path / "changed.zip").write_bytes(changed)
        try:
            read = read_verdict(tmp_path / "changed.zip", _public(KEY))
        except (InvalidInput, Unavailable):
            continue
        assert read.manifest == whole.manifest  # a byte between the files, which nothing reads
        assert all(
            torch.equal(one.adv_inputs, other.adv_inputs)
            for one, other in zip(read.examples, whole.examples, strict=True)
        )


def test_equal_folders_make_equal_bytes(file, small_folder, images, tmp_path):
    again = write_verdict_file(small_folder, tmp_path / "again.zip", data=images, key=KEY).path
    assert again.read_bytes() == file.read_bytes()


def test_what_cannot_be_exported_is_refused(small_folder, images, tmp_path, writer):
    with pytest.raises(UnknownName, match="other"):
        write_verdict_file(small_folder, tmp_path / "a.zip", model="other", data=images)
    with pytest.raises(InvalidInput, match=r"NAME\.zip"):
        write_verdict_file(small_folder, tmp_path / "a.txt", data=images)
    logits = torch.tensor([[1.0, 0.0]] * 3)
    subject = writer.clean("net", logits, torch.zeros(3, dtype=torch.long))
    writer.cell(subject, "foolbox:pgd", logits, logits, torch.zeros(3, dtype=torch.long))
    with pytest.raises(Unavailable, match="not stored"):
        write_verdict_file(writer.store.folder, tmp_path / "a.zip")
    for form in ("bundle", "attackbench"):
        with pytest.raises(InvalidInput, match="verdict"):
            davylamp.export(small_folder, tmp_path / "a.zip", form=form, key="k")


_WITHOUT = """
import sys

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {blocked}:
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import davylamp, torch
module = torch.load({module!r}, weights_only=False)
done = davylamp.verify({file!r}, module)
print(done.document["holds"], len(done.rows), sorted({blocked} & set(sys.modules)))
"""


def test_no_attack_library_is_needed(file, digits, run_fresh, tmp_path):
    torch.save(digits.module, tmp_path / "net.pt")
    blocked = {"art", "foolbox", "torchattacks", "torchattack", "adv_lib", "cleverhans", "secmlt", "pyautoattack"}
    code = _WITHOUT.format(blocked=blocked, module=str(tmp_path / "net.pt"), file=str(file))
    assert run_fresh(code) == "True 3 []\n"


def test_the_commands_say_so_by_their_exit_codes(run, digits_files):
    code, *_ = run(
        *("evaluate", "--models", "net.py:build", "--data", "npz:images.npz", "--attacks", "foolbox:pgd"),
        *("--norm", "linf", "--epsilon", "0.1", "--keep-images", "-o", "results"),
    )
    assert code == 0
    (digits_files / "key").write_bytes(KEY)
    assert run("export", "results", "--verdict", "--key", "key")[0] == 0
    how = "results.verdict.zip", "--data", "npz:images.npz", "--key", _public(KEY)
    code, out, _ = run("verify", *how, "--model", "net.py:build", "--json")
    assert code == 0
    assert json.loads(out)["same_model"]
    code, _, err = run("verify", *how)
    assert (code, "net.py:build" in err) == (2, True)
    text = (digits_files / "net.py").read_text()
    (digits_files / "blind.py").write_text(f"{text.replace('build', 'whole')}\n\ndef build():\n{_BLIND}")
    code, out, _ = run("verify", *how, "--model", "blind.py:build", "--json")
    assert (code, json.loads(out)["holds"]) == (1, False)


_BLIND = """    class Blind(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = whole()

        def forward(self, inputs):
            return self.net(inputs * 0 + 0.5)

    return Blind()
"""
