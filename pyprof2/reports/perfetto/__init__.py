"""A recording as a trace of Perfetto's: a file of protobuf messages, written in a stream."""
