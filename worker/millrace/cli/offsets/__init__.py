"""`offsets`: a pipeline's claims shown, set elsewhere, and written anew when they are lost.

`requests` is what is asked, `work` carries it out, `answers` is what comes of it, `shown` prints that. `app` declares the
commands for a local run and `commands` finds its broker; for a pipeline on a cluster `in_pod` is what a pod there does.
What is written, and as whom, is ownership's affair (`repositioning`, `rewriting`).
"""
