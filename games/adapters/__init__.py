"""Games of other libraries."""
