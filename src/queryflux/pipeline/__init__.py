"""The order of a query, from a verified client to its answer. Doors use ``face`` and nothing else of it."""
