"""Where jobs run: one folder or file per backend, all with the verbs of `base.Backend`."""
