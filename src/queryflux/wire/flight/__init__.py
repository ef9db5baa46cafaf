"""Arrow Flight SQL: its messages, which pyarrow does not ship (Arrow, ``FlightSql.proto``)."""
