//! (builder)
