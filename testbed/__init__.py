"""A real Kubernetes on one machine, without images from the internet; see docs/testbed.md."""
