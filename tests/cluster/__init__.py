"""How tests get a real Kubernetes, on any machine that can start processes.

Two kinds are to be had. `plane` is a control plane alone (etcd, API server, controllers) as processes of a test: ready
in seconds, no containers, pods at most claimed to run. `python -m cluster up` (`make cluster`) is a whole kind cluster,
with Kafka in it, that stays until `down`.

What they are made of is fetched the ordinary way where that works (releases, the stock node image), and else built from
packages: Go modules (`binaries`, `go/`), Debian packages and jars (`images`, `node/`). Which of the two, no test knows.
Everything fetched or built is kept under a name that its content gives, so a second run does neither. All versions are
in versions.env. Of Millrace only its images are known in here (`products`) and how they are installed (`release`); what they do is for
tests/e2e.
"""
