"""views: shows the perturbed copies of a text."""
