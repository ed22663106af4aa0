"""lab: for people who study layers."""
