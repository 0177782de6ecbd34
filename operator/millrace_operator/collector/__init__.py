"""The collector of a pipeline on Kubernetes: its job's attempts, one at a time, each in a driver's pod.

`attempts` is what the resource's status tells of them, `drivers` what their pods tell. `life` decides, from these two, what
comes next; it alone knows the order in which things may happen (docs/adr/0011-collector-on-kubernetes.md). `driver_pod`,
`executors` and `access` are the objects that this takes, `course` puts it together for `reconcile`, and says how it goes.

Pure, as all that decides is: no clock, no client. Of Spark it knows settings only; what the job does is the worker's affair.
"""

from millrace_operator.collector.course import Collecting, Inputs, collecting, ending

__all__ = ["Collecting", "Inputs", "collecting", "ending"]
