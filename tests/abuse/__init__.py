"""The campaign against our own software: `python -m tests.abuse --minutes 60 --seed 1`. See README.md."""
