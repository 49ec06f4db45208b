"""Who queues jobs: one module or folder per scheduler, found by its name."""
