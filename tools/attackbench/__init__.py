"""AttackBench's implementations and davylamp's on one model, compared by AttackBench's rule."""
