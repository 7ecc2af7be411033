"""davylamp: adversarial robustness of image classifiers, measured with one meaning for every parameter.

Importing this package loads nothing. The parts are `davylamp.adapters` (attacks), `davylamp.metrics` (measures,
importable alone) and `davylamp.engine` (comparisons).
"""

__version__ = "0.2.0.dev0"
