"""Why a job, or an attempt of it, ended."""
