"""The parts of the wave_inversion workload: velocity, survey, shots, team, inversion, pictures."""
