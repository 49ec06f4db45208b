"""Variational inference in torch: posterior estimators, its loop, models to fit."""
