"""Foolbox."""
