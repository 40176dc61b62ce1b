"""The figures of arena, measured beside what a user would pick instead: `make bench`."""
