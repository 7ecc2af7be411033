"""A metric of a user."""


def largest_change(inputs, adv_inputs):
    """Of one image."""
    return (adv_inputs - inputs).abs().flatten(1).amax(1)
