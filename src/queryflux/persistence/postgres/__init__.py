"""The PostgreSQL stores: pools, migrations, statements."""
