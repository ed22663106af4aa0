"""Export formats: one file or folder per backend, all with the interface in backend.py."""
