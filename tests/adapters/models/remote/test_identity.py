"""What a server's model is known by; what is asked afresh; what happens where it changes."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.identity.fingerprint import (
    digest_answers,
    fingerprint,
    label_probe_images,
    outputs_match,
    probe_images,
)
from davylamp.adapters.models.remote.answer_cache import AnswerCache
from davylamp.adapters.models.remote.server_usage import ServerUsage, bypass_cache, read_traffic, total_usage
from davylamp.adapters.models.remote.transport import Transport
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.running.determinism import is_deterministic
from davylamp.engine.checks.model_checks import model_checks
from davylamp.engine.probes.probe_model import probe_model
from davylamp.errors import Unavailable


def identity(url, **settings):
    classifier = load_model(url, **settings)
    return identify_model(classifier, url)


def test_the_fixed_images_are_the_same_everywhere():
    images = probe_images((3, 16, 16))
    assert images.shape == (4, 3, 16, 16)
    assert float(images.min()) >= 0
    assert float(images.max()) <= 1
    assert torch.equal((images * 255).round() / 255, images)
    assert float(images.double().sum()) == pytest.approx(1536.0, abs=120)
    assert len({image.numpy().tobytes() for image in images}) == 4


def test_rounding_does_not_change_a_fingerprint_and_another_model_does(digits):
    generator = np.random.default_rng(0)
    answers = fingerprint(digits.module, (3, 16, 16)).answers
    noisy = [answers + 1e-6 * answers.std() * generator.standard_normal(answers.shape) for _ in range(200)]
    assert sum(digest_answers(each) != digest_answers(answers) for each in noisy) <= 1
    assert all(outputs_match(each, answers) for each in noisy)
    other = copy.deepcopy(digits.module)
    with torch.no_grad():
        other[5].bias[3] += 0.1 * float(answers.std())
    changed = fingerprint(other, (3, 16, 16))
    assert changed.digest != digest_answers(answers)
    assert not outputs_match(changed.answers, answers)


def test_labels_are_asked_of_more_images():
    """Two models that label the first four alike, and one of the others otherwise."""
    images = torch.cat([probe_images((1, 8, 8)), label_probe_images((1, 8, 8))])
    assert torch.equal((images * 255).round() / 255, images)
    assert len({image.numpy().tobytes() for image in images}) > 55
    means = images.mean((1, 2, 3))
    limits = means[:4].max(), means.max()
    assert limits[0] < limits[1] - 1e-3
    above = [lambda x, limit=limit: (x.mean((1, 2, 3)) > limit - 1e-4).long() + 3 for limit in (limits[1], 2.0)]
    one, other = (fingerprint(each, (1, 8, 8)) for each in above)
    assert np.array_equal(one.answers[:4], other.answers[:4])
    assert one.answers.shape == (64, 1)
    assert one.digest != other.digest
    assert not outputs_match(one.answers, other.answers)


def test_labels_that_noise_flips_are_unsteady():
    """The label is the bin of the mean, which noise moves by up to half a bin: two answers differ once in six.

    Of 64 images 11 are expected to flip; two flip neither in 25 of 36 tries.
    """
    generator, asked = torch.Generator().manual_seed(0), []

    def label(images, noise):
        asked.append(len(images))
        shaken = images.mean((1, 2, 3)) * 50 + noise * torch.rand(len(images), generator=generator)
        return shaken.floor().long()

    steady = fingerprint(lambda images: label(images, 0.0), (1, 8, 8))
    assert (steady.steady, sum(asked)) == (True, 128)
    judged = [fingerprint(lambda images: label(images, 0.5), (1, 8, 8)).steady for _ in range(20)]
    assert not any(judged)
    scores = fingerprint(lambda images: images.flatten(1)[:, :10], (1, 8, 8))
    assert (scores.steady, scores.answers.shape) == (True, (4, 10))


def test_a_random_server_of_labels_keeps_no_answers(digits, serve, tmp_path):
    server = serve(kind="labels")
    server.net = _NoisyPixels(digits.module)
    remote = load_model(f"{server.url}?classes=10", transport=Transport(answers=str(tmp_path / "answers.sqlite")))
    assert "different outputs for the same image" in identify_model(remote, server.url).reasons[0]
    before = server.images()
    for _ in range(2):
        remote.model(digits.inputs[:3])
    assert server.images() - before == 6
    server.net = digits.module  # so that the few images of the check itself are answered alike
    logits = remote.predict_logits(digits.inputs)
    checks = model_checks("m", probe_model(remote, digits.inputs, digits.labels, logits), [""] * 16, "")
    (unstable,) = (each for each in checks if each.name == "deterministic")
    assert (unstable.state, "for the same fixed images" in unstable.detail) == ("fail", True)


def test_an_identity_is_that_of_the_answers_and_the_metadata(digits, serve):
    server = serve()
    first = identity(server.url)
    assert first.reasons == ()
    assert identity(server.url) == first
    assert identity(f"{server.url}?outputs=logits").digest != first.digest  # another name, another model
    server.net = nn.Sequential(digits.module, nn.Linear(10, 10))
    assert identity(server.url).digest != first.digest
    server.net = digits.module
    server.batch = 8
    assert identity(server.url).digest != first.digest


def test_a_server_that_rounds_otherwise_is_known_again_by_its_kept_answers(digits, serve, tmp_path):
    server = serve()
    transport = Transport(answers=str(tmp_path / "answers.sqlite"))
    first = identity(server.url, transport=transport)
    for scale in (1.0005, 1.001, 0.9995):  # in half precision, or TF32; some of them cross a rounding
        server.net = _Scaled(digits.module, scale)
        assert identity(server.url, transport=transport) == first


def test_a_random_server_has_no_identity_and_keeps_no_answers(digits, serve, tmp_path):
    server = serve()
    server.net = _Noisy(digits.module)
    remote = load_model(server.url, transport=Transport(answers=str(tmp_path / "answers.sqlite")))
    known = identify_model(remote, server.url)
    assert "different outputs for the same image" in known.reasons[0]
    assert not torch.equal(remote(digits.inputs[:2]), remote(digits.inputs[:2]))
    meant = load_model(f"{server.url}?random=yes", transport=Transport(answers=str(tmp_path / "answers.sqlite")))
    assert meant.random
    assert identify_model(meant).reasons == ()
    assert not torch.equal(meant(digits.inputs[:2]), meant(digits.inputs[:2]))


def test_probes_pass_the_kept_answers_by(digits, serve, tmp_path):
    server = serve()
    remote = load_model(server.url, transport=Transport(answers=str(tmp_path / "answers.sqlite")))
    logits = remote.predict_logits(digits.inputs)
    assert not remote.model.has_changed()
    server.net = _Scaled(digits.module, -1.0)
    assert torch.equal(remote.predict_logits(digits.inputs), logits)  # kept
    with bypass_cache(remote):
        assert torch.allclose(remote.predict_logits(digits.inputs), -logits, atol=1e-4)
    assert not is_deterministic(remote, digits.inputs, logits, seed=0)
    assert remote.model.has_changed()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda images: images, ""),
        (lambda images: (images * 255).round() / 255, "8 bits"),
        (lambda images: _as_jpeg(images, 85), "JPEG of quality 85"),
        (lambda images: _as_jpeg(images, 75), "JPEG of quality 75"),
    ],
    ids=["as they are", "8 bits", "JPEG 85", "JPEG 75"],
)
def test_what_happens_to_images_on_their_way_is_seen(change, named, digits, serve):
    server = serve()
    server.change = change
    remote = load_model(server.url)
    logits = remote.check(digits.inputs, digits.labels)
    before = total_usage(remote).paid
    probes = probe_model(remote, digits.inputs, digits.labels, logits)
    assert total_usage(remote).paid - before <= 120
    checks = {each.name: each for each in model_checks("m", probes, [str(n) for n in range(16)], "")}
    assert checks["transport"].state == ("warn" if named else "pass")
    assert named in checks["transport"].detail
    assert checks["deterministic"].state == "pass"
    assert checks["gradients"].state == "unknown"


def test_answers_that_never_move_are_no_proof_of_how_images_arrive(digits, serve):
    server = serve(kind="labels")
    server.change = lambda images: _as_jpeg(images, 75)
    remote = load_model(server.url)
    logits = remote.check(digits.inputs, digits.labels)
    probes = probe_model(remote, digits.inputs, digits.labels, logits)
    (check,) = (each for each in model_checks("m", probes, [], "") if each.name == "transport")
    assert any(by_other == 0 for _, by_other in probes["transport"]["moved"].values())
    assert check.state == "unknown"
    assert "the outputs do not show whether images are changed" in check.detail


def test_an_answer_that_differs_later_is_an_unstable_prediction(digits, serve):
    server = serve()
    remote = load_model(server.url)
    logits = remote.check(digits.inputs, digits.labels)
    server.net = _Scaled(digits.module, -1.0)
    checks = model_checks(
        "m", probe_model(remote, digits.inputs, digits.labels, logits), [str(n) for n in range(16)], ""
    )
    assert {each.name: each.state for each in checks}["deterministic"] == "fail"


def test_what_is_no_file_of_answers_is_one_line(tmp_path):
    (tmp_path / "answers.sqlite").write_text("something else, and long enough to be no database at all" * 20)
    with pytest.raises(Unavailable, match=r"\(file is not a database\)\. Move the file away"):
        AnswerCache(tmp_path / "answers.sqlite")


def test_answers_come_back_bit_by_bit(tmp_path):
    kept = AnswerCache(tmp_path / "a" / "answers.sqlite")
    scores, label = np.array([1.5, -2e-9, 3e30], np.float32), np.int64(7).reshape(())
    kept.store("m", {b"1": scores, b"2": np.asarray(label)})
    read = AnswerCache(tmp_path / "a" / "answers.sqlite").look_up("m", [b"1", b"2", b"3"])
    assert set(read) == {b"1", b"2"}
    assert read[b"1"].tobytes() == scores.tobytes()
    assert (read[b"2"].dtype, read[b"2"].shape, int(read[b"2"])) == (np.int64, (), 7)
    assert kept.look_up("other", [b"1"]) == {}


def test_what_was_counted_is_read_back_and_nothing_of_older_records():
    traffic = ServerUsage(asked=10, paid=6, probes=2, retried=1, requests=3, cost=0.5)
    assert read_traffic(traffic.spec) == traffic
    assert not read_traffic(None)
    assert not read_traffic({"paid": "many"})
    assert traffic + traffic - traffic == traffic
    assert traffic.line == (
        "10 queries, 6 sent to the server and billed (2 by probes); price 0.5; "
        "1 resent after failed requests (the server may have processed them twice)"
    )


class _Scaled(nn.Module):
    def __init__(self, net, scale):
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, images):
        return self.net(images) * self.scale


class _Noisy(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.calls = net, 0

    def forward(self, images):
        self.calls += 1
        return self.net(images) + 5 * torch.randn(10, generator=torch.Generator().manual_seed(self.calls))


class _NoisyPixels(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.generator = net, torch.Generator().manual_seed(0)

    def forward(self, images):
        return self.net(images + 0.05 * torch.randn(images.shape, generator=self.generator))


def _as_jpeg(images, quality):
    from davylamp.engine.probes.image_transport import _compress

    return _compress(torch.from_numpy(images.copy()), quality).numpy()
