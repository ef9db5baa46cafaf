"""The configuration: one frozen, validated Snapshot, from YAML now, from rows and wire documents later."""
