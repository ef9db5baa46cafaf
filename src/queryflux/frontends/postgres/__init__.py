"""The PostgreSQL door: clients of the frontend/backend protocol 3.0 and 3.2."""
