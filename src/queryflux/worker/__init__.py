"""A worker: its configuration, its leases and its history are the control plane's business."""
