"""The MySQL client/server protocol, server side (MySQL internals, "Client/Server Protocol")."""
