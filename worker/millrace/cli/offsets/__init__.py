"""`millrace offsets`: the claims of a local run shown, set elsewhere, and written anew when they are lost.

`app` declares the commands, `commands` carries them out, `shown` prints. What is written, and as whom, is ownership's
affair (`repositioning`, `rewriting`).
"""
