"""metrics: lists the metrics."""
