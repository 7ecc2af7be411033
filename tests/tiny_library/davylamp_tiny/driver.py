"""Calls tiny_attacks: a function for PGD, an object with a method for the corners."""


def run(attack, model, inputs, labels, threat_model, targets=None, **kwargs):
    if isinstance(attack, type):
        return attack(**kwargs).attack(model, inputs, labels, threat_model.epsilon)
    aim = labels if targets is None else targets
    return attack(model, inputs, aim, threat_model.epsilon, maximise=targets is None, **kwargs)
