"""One file for each kind of rule; none knows another."""
