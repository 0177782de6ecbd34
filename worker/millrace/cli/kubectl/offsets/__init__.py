"""`kubectl millrace offsets`: the claims of a pipeline on a cluster shown, set elsewhere, and written anew.

Kafka is seldom reached from where kubectl is. So a pod beside the workers does that part (`pod` says what it is, `errand`
sends it and brings its answer), made with the user's own rights: whoever may not make pods may not do this. `course` has
the workers stopped before and started again after. `app` declares the commands.
"""
