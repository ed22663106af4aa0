"""stress: scans of inputs that are made ever stranger."""
