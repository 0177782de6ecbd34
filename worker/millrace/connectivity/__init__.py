"""Connectivity: the lowest room. How Millrace talks to Kafka, and nothing of what it says.

`ports` and `survey` have the small protocols that all else is written against and their errors; `confluent` implements
them over librdkafka, `memory` in this process (for tests, the simulation and `millrace.testing`). Both pass the one
contract suite in tests/contract/connectivity. `settings` says how each client is configured and why, `credentials` who we are.
Nothing here knows of claims, epochs, stages or manifests.
"""
