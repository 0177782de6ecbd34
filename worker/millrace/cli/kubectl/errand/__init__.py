"""An errand, from where kubectl is: a pod made for one command, waited for, heard, and taken away again.

Kafka is seldom reached from where kubectl is. So a pod beside the workers does what needs it, made with the user's own
rights: whoever may not make pods may not do this. `pod` says what it is (a worker's, with another thing to do), `sending` has
it made and takes it away, `hearing` shows what it says meanwhile, and brings its answer or why there is none. What happens in
the pod is `millrace.cli.errand`.
"""
