"""An errand, where it is done: one command that a pod beside the workers carries out for somebody whom the broker is out of
reach of.

All that comes out of a pod is its log, where everything that was written is mixed. `wire` is how an answer and what is said
on the way are told apart from the rest, exactly; `in_pod` carries a command out and answers. Who makes the pod and hears it
is `millrace.cli.kubectl.errand`; what the errands are is the commands' own affair.
"""
