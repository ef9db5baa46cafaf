"""What control planes and workers say to each other: versioned messages, no I/O."""
