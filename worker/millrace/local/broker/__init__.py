"""A real Kafka broker of one node, as a child process: its jars and shared class data (`jars`, `class_data`), its
configuration and ports (`server`, `addresses`), its life (`process`, `embedded`), and who brings it back (`keeper`).
"""
