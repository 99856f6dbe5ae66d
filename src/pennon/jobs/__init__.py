"""The job queue, the registry of workers, and the triggers that submit jobs automatically."""
