"""PostgreSQL frontend/backend protocol 3.0, both sides of it (PostgreSQL manual, chapter 55)."""
