"""The parts of a spline flow. Their tensors hold one variable a row and one sample a column."""
