"""The elements of a page, those that are folded away included."""


def flatten(blocks):
    """Yield every element, a fold or two columns before what is in it."""
    for block in blocks:
        yield block
        inside = (getattr(block, name, ()) for name in ("blocks", "left", "right", "figures"))
        for part in inside:
            yield from flatten(part)
