"""Composition: the only room that knows concrete engines, stores and doors."""
