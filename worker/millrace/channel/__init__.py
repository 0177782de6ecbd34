"""The channel between a chain and its collector: what its records look like, and how far event time has come in them.

`wire` is the form of the records, shared by those who write them and the job that reads them; `schema` makes a row of a
value, checked against the columns of the collect stage (`columns` has the check of each type); `progress` decides which
time a partition that is read to its end may promise (docs/adr/0006-what-an-idle-mark-promises.md); `backlog` tells how
much waits to be collected, for whoever starts collectors: the parent of a local run, the operator.
Nothing here has a client of its own or reads a clock; of the manifest it knows the types of columns only (millrace_api.ddl).
"""
