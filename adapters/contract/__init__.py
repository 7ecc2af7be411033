"""Checks of the contract: the rules that every implementation of an attack must keep."""
