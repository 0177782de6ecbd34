"""The engine: polls batches, submits them to a chain of strategies, keeps the account of offsets, and follows the
rules of ownership while it does (R1-R3 of docs/protocol.md).

It runs on one thread, waits only in the consumer's bounded fetch and, while back-pressured, a few milliseconds on an
injected clock, from which it also reads time; so the very same code is stepped by the simulation. It knows what a
strategy is (`strategy`), not which ones there are.
"""
