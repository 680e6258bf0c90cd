"""How well a model decides where the right answers can be computed; see `runtime.exam.exam.run`."""
