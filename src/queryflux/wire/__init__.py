"""Bytes become messages and back, and legality is decided. No I/O and no clock in this room."""
