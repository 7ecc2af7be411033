"""Mutation tests: whether the test suite notices a broken line, sampled at random over the product."""
