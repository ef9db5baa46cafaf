"""Which group: the chain of rules, the fallback, the trace."""
