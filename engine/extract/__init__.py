"""From base and tuned weights to a bundle with an adapter; see `engine.extract.job.extract`."""
