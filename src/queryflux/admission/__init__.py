"""Is there room: slots per cluster, the queue in order of arrival, and the choice of a member."""
