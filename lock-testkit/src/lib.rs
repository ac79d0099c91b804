//! The conformance suite.

#![forbid(unsafe_code)]
