-- lowest compatible version: 1
-- Leases by the process that holds them, in the order in which clusters are locked.

CREATE INDEX cluster_capacity_leases_instance_cluster ON cluster_capacity_leases (instance_id, cluster_name);
DROP INDEX cluster_capacity_leases_instance_id;
