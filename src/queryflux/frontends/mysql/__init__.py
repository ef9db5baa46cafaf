"""The MySQL door: one connection, one task; what is about the connection is answered here."""
