"""Black boxes attacked through HTTP, with faults: results as in process, no query lost or counted twice."""

import pytest
import torch

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.models.remote.server_usage import total_usage
from davylamp.adapters.models.remote.transport import Transport
from davylamp.adapters.models.zoo.load import load_model

IMAGES = 2
ATTACKS = {
    "foolbox:hopskipjump": (ThreatModel("l2"), {"steps": 2, "initial_evaluations": 8, "max_evaluations": 20}),
    "foolbox:boundary": (ThreatModel("l2"), {"steps": 15}),
    "art:simba": (ThreatModel("l2"), {"steps": 50, "step_size": 0.8}),
    "torchattacks:square": (ThreatModel("linf", 0.1), {"steps": 20}),
    "torchattacks:spsa": (ThreatModel("linf", 0.1), {"steps": 2, "samples": 16}),
}
FAULTS = ["", "500", "", "429", "half", "", "", "half", "500", "500", "", "429", "429"]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_through_a_server_with_faults_gives_what_it_gives_in_process(name, digits, serve, tmp_path):
    threat_model, parameters = ATTACKS[name]
    inputs, labels = digits.inputs[:IMAGES], digits.labels[:IMAGES]
    expected = run_attack(name, Classifier(digits.module), inputs, labels, threat_model, seed=3, **parameters)

    server = serve()
    remote = load_model(server.url, transport=Transport(answers=str(tmp_path / "answers.sqlite")))
    server.faults = list(FAULTS)
    result = run_attack(name, remote, inputs, labels, threat_model, seed=3, **parameters)

    assert torch.equal(result.adv_inputs, expected.adv_inputs)
    assert torch.equal(result.forwards, expected.forwards)
    assert torch.equal(result.success, expected.success)
    # The server judges in other batches: those images whose answer is not known yet.
    torch.testing.assert_close(result.adv_logits, expected.adv_logits, rtol=0, atol=1e-4)

    traffic = total_usage(remote)
    half = server.lost("half")
    assert half > 0  # looked at, and the answer was lost
    assert server.images() == traffic.paid + half
    assert traffic.retried == half + server.lost("500")
    # A query that is asked twice is paid once: only probes and lost answers bring an image to the server again.
    repeated = sum(count - 1 for count in server.seen.values())
    assert repeated <= half + traffic.probes
    assert traffic.asked >= int(result.forwards.sum())

    paid = traffic.paid
    again = run_attack(name, remote, inputs, labels, threat_model, seed=3, **parameters)
    assert torch.equal(again.adv_inputs, expected.adv_inputs)
    assert torch.equal(again.forwards, expected.forwards)  # what the attack asked, whoever answered
    assert total_usage(remote).paid == paid


def test_without_kept_answers_every_query_is_paid(digits, serve):
    server = serve()
    remote = load_model(server.url, transport=Transport(cost=0.5))
    images = digits.inputs[:3]
    for _ in range(2):
        remote.predict_logits(images)
    traffic = total_usage(remote)
    assert (traffic.asked, traffic.paid, traffic.cost) == (6, 6, 3.0)
    assert server.images() == 6


def test_an_image_that_stands_twice_in_a_batch_is_paid_once(digits, serve, tmp_path):
    server = serve()
    remote = load_model(server.url, transport=Transport(answers=str(tmp_path / "answers.sqlite")))
    logits = remote.predict_logits(digits.inputs[[0, 1, 0, 0]])
    assert torch.equal(logits[0], logits[2])
    traffic = total_usage(remote)
    assert traffic.asked - traffic.probes == 4
    assert traffic.paid - traffic.probes == 2
