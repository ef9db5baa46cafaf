"""The answer: Arrow batches, opaque frames of the client's own protocol, or a count."""
