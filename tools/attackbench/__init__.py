"""AttackBench's rows and ours on one model, under its rule."""
