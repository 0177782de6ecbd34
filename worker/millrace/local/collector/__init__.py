"""The collector on this machine: who keeps one attempt of it alive, or starts one when there is enough to do (`keeper`); and what
its console sink shows (`shown`)."""
