"""Does the suite notice a broken line? Places drawn at random over the product, one broken at a time."""
