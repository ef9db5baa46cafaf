"""The Arrow Flight SQL door. Its gRPC server runs handlers in threads of its own; everything else is on the
loop."""
