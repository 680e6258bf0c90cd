"""Many matches between several agents, and what they say about the agents."""
