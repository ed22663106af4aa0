"""doctor: can this model be read, and read rightly?"""
