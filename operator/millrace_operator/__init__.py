"""The operator: it makes a ConsumerPipeline on Kubernetes run, and says what it does and why not.

What happens is decided in `reconcile`, a pure function from what is `observed` to an `Outcome`; `children` are the
objects that a pipeline should have, `collector` its Spark job, `pods` what its pods tell, `standstill` what workers say
that stand still, `status` what its author is told. `cluster` is the way to the API server, `kafka` the way to the broker
and to the protocol's control plane. `controller` carries outcomes out, one pipeline at a time, in the order of the
`work_queue`; `handlers` only put names into that, of the pipelines that the `selector` leaves.

It never imports the worker's engine or strategies, and holds no state that matters: whatever it must know again after a
crash is in the API server or in Kafka.
"""
