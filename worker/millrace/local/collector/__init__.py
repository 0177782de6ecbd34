"""The collector on this machine: who keeps one attempt of it alive, or starts one when there is enough to do (`keeper`);
what its console sink shows (`shown`); and what makes its starts quick (`class_data`)."""
