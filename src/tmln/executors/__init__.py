"""Many runs: plan, schedule, executors (serial, processes, Ray, SLURM), progress display, estimate of ``--dry-run``."""
