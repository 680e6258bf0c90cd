"""Every benchmark that needs no GPU, one after the other: `python -m benchmarks`."""

from __future__ import annotations

import anyio

from benchmarks import games, http_overhead, log_appends, matches, queue_overhead, replay

games.main()
log_appends.main()
queue_overhead.main()
http_overhead.main()
anyio.run(matches.main)
anyio.run(replay.main)
